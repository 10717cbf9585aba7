"""Samples, ratios, tables and the JSON file of one benchmark run."""

from __future__ import annotations

import json
import os
import platform
import statistics
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results"


def best_median(rounds: list[list[float]]) -> float:
    """The quietest round's median: other work on the machine only ever adds time."""
    return min(statistics.median(samples) for samples in rounds)


class Report:
    """Rows are printed when they are known and written by `save`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: list[dict[str, Any]] = []

    def add(self, text: str, **row: Any) -> None:
        self.rows.append(row)
        print(text, flush=True)

    def save(self) -> None:
        RESULTS.mkdir(exist_ok=True)
        machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
        path = RESULTS / f"{self.name}.json"
        path.write_text(json.dumps({"machine": machine, "rows": self.rows}, indent=1) + "\n")
        print(f"written: benchmarks/results/{path.name}")


def bar(ratio: float, limit: float, *, at_least: bool = False) -> str:
    """`ok` or `MISSED`, for a bar that is a ratio."""
    met = ratio >= limit if at_least else ratio <= limit
    return f"{'ok' if met else 'MISSED'} (bar {'≥' if at_least else '≤'} {limit:g})"
