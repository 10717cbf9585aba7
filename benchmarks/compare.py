"""Two builds of this package side by side, in turn in one run: does a change cost anything?

    git worktree add build/other COMMIT && build/other/scripts/environment      # once
    python benchmarks/compare.py build/other/.venv/bin/python [--rounds 9]

Each figure is the best of the rounds, and beside it the median of the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

PROBE = Path(__file__).parent / "support" / "probe.py"


def figures(python: str) -> dict[str, float]:
    done = subprocess.run([python, str(PROBE)], stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    return dict(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", help="the Python of the other build's environment")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    rounds: dict[str, list[dict[str, float]]] = {options.other: [], sys.executable: []}
    for number in range(options.rounds):
        order = list(rounds) if number % 2 == 0 else list(reversed(rounds))  # whoever comes second finds warm caches
        for python in order:
            rounds[python].append(figures(python))
    print(f"{'µs, best (median)':32}{'other':>20}{'this':>20}{'this / other':>18}")
    for name in rounds[sys.executable][0]:
        other, this = ([one[name] for one in rounds[python]] for python in rounds)
        best = min(this) / min(other)
        middle = statistics.median(this) / statistics.median(other)
        shown = "".join(f"{min(all_):>11.3f} ({statistics.median(all_):.3f})" for all_ in (other, this))
        print(f"{name:32}{shown}{best:>9.3f} ({middle:.3f})", flush=True)


if __name__ == "__main__":
    main()
