"""The store's collectives beside torch's TCPStore: one real process per client, both stores in one run.

    python benchmarks/store.py [--clients 64 256] [--rounds 15] [--repeat 3] [--peers]

A round's time is the moment its last client is through minus the same moment of the round before; the figure is the
median. Of the repetitions the best counts. `scripts/bench store --peers` installs TCPStore first.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from support.peers import PYTHON, REMEDY, has_package
from support.report import Report, bar

BARS = {"barrier": 0.5, "all-gather": 0.2}
SUPPORT = Path(__file__).resolve().parent / "support"
DEADLINE_S = 600


def python_of(kind: str) -> str:
    return sys.executable if kind == "ours" else str(PYTHON)


class Server:
    """A store in a process of its own, as on a rank-0 node."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.environment = {**os.environ, "PYTHONPATH": str(SUPPORT.parent)}
        command = [python_of(kind), str(SUPPORT / "store_peers.py"), kind, str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self.environment)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n", f"the {kind} server did not start"

    def figures(self, clients: list[int], rounds: int) -> dict[str, float]:
        """Microseconds, as clients see them."""
        command = [python_of(self.kind), str(SUPPORT / "store_figures.py"), self.kind, str(self.port), str(rounds)]
        done = subprocess.run(
            [*command, *map(str, clients)],
            stdout=subprocess.PIPE,
            stderr=None if self.kind == "ours" else subprocess.DEVNULL,  # TCPStore says a line for every client
            text=True,
            env=self.environment,
            timeout=DEADLINE_S,
            check=True,
        )
        return dict(json.loads(done.stdout))

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--repeat", type=int, default=3, help="whole measurements; the best counts")
    parser.add_argument("--peers", action="store_true", help="measure TCPStore in the same run")
    options = parser.parse_args()
    kinds = ["ours"]
    if options.peers:
        if has_package("torch"):
            kinds.append("TCPStore")
        else:
            print(f"TCPStore is not measured, there is no torch: {REMEDY}")
    figures: dict[tuple[str, str], float] = {}
    for _ in range(options.repeat):
        for kind in kinds:
            server = Server(kind)
            try:
                for name, us in server.figures(options.clients, options.rounds).items():
                    figures[kind, name] = min(us, figures.get((kind, name), us))
            finally:
                server.stop()
    report = Report("store")
    for case in dict.fromkeys(case for _, case in figures):
        ours, theirs = figures["ours", case], figures.get(("TCPStore", case))
        text = f"{case:>20}  ours {ours:10.0f} µs"
        ratio = None
        if theirs is not None:
            ratio = ours / theirs
            limit = BARS.get(case.split(" of ")[0])
            text += f"  TCPStore {theirs:10.0f} µs  ratio {ratio:.2f}" + (f"  {bar(ratio, limit)}" if limit else "")
        report.add(text, case=case, ours_us=ours, tcp_store_us=theirs, ratio=ratio)
    report.save()


if __name__ == "__main__":
    main()
