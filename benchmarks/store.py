"""The store beside others: torch's TCPStore, Redis, and our store on an etcd; all of them in one run.

    scripts/bench store [--clients 64 256 1024] [--rounds 15] [--repeat 3] [--patience 60] [--kinds ours] [--peers]

Every client is a process of its own, or several share one where memory is short, which is said. All but one enter at
once ("start"), the last one joins them; then come the collectives, a death (of that one) and a leave. A round's time is
the moment its last client is through minus the same moment of the round before; the figure is the median. Of the
repetitions the best counts. Nothing takes longer than --patience: what did not finish is said. The curves go to
results/store.svg, and to store.png if rsvg-convert is here. `--peers` installs the others first.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from support.peers import PYTHON, REMEDY, has_package
from support.report import Report, bar

from support import store_plot

SUPPORT = Path(__file__).resolve().parent / "support"
OURS, TORCH, REDIS, ETCD = KINDS = "ours", "TCPStore", "redis", "etcd"
RATIO_BARS = {("barrier", 64): 0.6, ("barrier", 256): 0.6, ("all-gather 64 B", 64): 0.2, ("all-gather 64 B", 256): 0.2}
TIME_BARS_MS = {("barrier", 1024): 150.0, ("all-gather 64 B", 1024): 600.0}
COMPARED = ("barrier", "all-gather 64 B", "all-gather 4 KiB", "set", "get")
FIGURES = 14  # of one measurement that may take as long as patience lasts
START_S = 60


class Case(NamedTuple):
    figure: str
    clients: int


class Found:
    """The best of all repetitions, or why there is nothing."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, Case], float] = {}
        self.missing: dict[tuple[str, Case], str] = {}

    def add(self, kind: str, case: Case, value: float | None, why: str = "") -> None:
        if value is None:
            self.missing.setdefault((kind, case), why)
        else:
            self.values[kind, case] = min(value, self.values.get((kind, case), value))
            self.missing.pop((kind, case), None)

    def cases(self) -> list[Case]:
        return list(dict.fromkeys(case for _, case in [*self.values, *self.missing]))


def wanted(kinds: list[str]) -> Iterator[str]:
    """Those that are here; of the others it is said why not."""
    needs = {TORCH: ("torch", None), REDIS: ("redis", "redis-server"), ETCD: (None, "etcd")}
    for kind in kinds:
        package, program = needs.get(kind, (None, None))
        if package is not None and not has_package(package):
            print(f"{kind} is not measured, there is no {package}: {REMEDY}")
        elif program is not None and shutil.which(program) is None:
            print(f"{kind} is not measured, there is no {program}: {REMEDY}")
        else:
            yield kind


def python_of(kind: str) -> str:
    return sys.executable if kind in (OURS, ETCD) else str(PYTHON)


@contextlib.contextmanager
def program(kind: str, script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """In a process group of its own, which is gone afterwards."""
    command = [python_of(kind), str(SUPPORT / script), *map(str, arguments)]
    quiet = subprocess.DEVNULL if kind == TORCH else None  # it says a line for every client
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT.parent)}
    started = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=quiet, text=True, env=environment, start_new_session=True
    )
    try:
        yield started
    finally:
        started.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):  # then the next line ends it
            started.communicate(timeout=START_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)


def measure(found: Found, kind: str, clients: int, options: argparse.Namespace) -> None:
    """A server and its clients, all of them new."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with program(kind, "store_peers.py", kind, port) as server:
        assert server.stdout is not None
        word, _, pid = server.stdout.readline().partition(" ")
        assert word == "ready", f"the {kind} server did not start"
        numbers = (port, int(pid), clients, options.rounds, options.patience, options.processes)
        with program(kind, "store_figures.py", kind, *numbers, *options.only) as figures:
            assert figures.stdout is not None
            ending = threading.Timer(FIGURES * options.patience, os.killpg, (figures.pid, signal.SIGKILL))
            ending.start()
            for line in figures.stdout:
                name, *value = json.loads(line)
                found.add(kind, Case(name, clients), *value)
            ending.cancel()


def shown(figure: str, value: float) -> str:
    if "per process" in figure:
        return f"{value:.0f}"
    if figure.endswith("KiB") and "," in figure:
        return f"{value:.0f} KiB"
    return f"{value / 1000:.2f} ms" if value >= 1000 else f"{value:.0f} µs"


def verdict(case: Case, ours: float, theirs: float | None) -> str:
    text = []
    if theirs is not None:
        limit = RATIO_BARS.get(case)
        text.append(f"ratio to TCPStore {ours / theirs:.2f}" + (f" {bar(ours / theirs, limit)}" if limit else ""))
    if case in TIME_BARS_MS:
        limit_ms = TIME_BARS_MS[case]
        text.append(f"{'ok' if ours / 1000 <= limit_ms else 'MISSED'} (bar ≤ {limit_ms:g} ms)")
    return "; ".join(text)


def tell(report: Report, found: Found, kinds: list[str], case: Case) -> None:
    values = {kind: found.values[kind, case] for kind in kinds if (kind, case) in found.values}
    missing = {kind: found.missing[kind, case] for kind in kinds if (kind, case) in found.missing}
    texts = [f"{kind} {shown(case.figure, value)}" for kind, value in values.items()]
    texts += [f"{kind} – ({why})" for kind, why in missing.items()]
    row: dict[str, Any] = {"figure": case.figure, "clients": case.clients, "values": values, "missing": missing}
    said = ""
    if OURS in values and case.figure in COMPARED:
        row["ratios"] = {kind: values[OURS] / value for kind, value in values.items() if kind != OURS}
        said = verdict(case, values[OURS], values.get(TORCH))
    report.add(f"{case.clients:>5} {case.figure:<30} {'  '.join(texts)}{'  ' + said if said else ''}", **row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--repeat", type=int, default=3, help="whole measurements; the best counts")
    parser.add_argument("--patience", type=int, default=60, help="seconds that one figure may take")
    parser.add_argument("--processes", type=int, default=0, help="at most, for clients; 0: what memory allows")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, help="which stores; all of them with --peers")
    parser.add_argument("--only", nargs="+", default=[], choices=COMPARED[:3], help="of the collectives")
    parser.add_argument("--peers", action="store_true", help="measure the others in the same run")
    options = parser.parse_args()
    kinds = list(wanted(options.kinds or (list(KINDS) if options.peers else [OURS])))
    found = Found()
    print(f"load of the machine: {os.getloadavg()[0]:.1f}", flush=True)
    for clients in options.clients:
        for _ in range(options.repeat):
            for kind in kinds:
                measure(found, kind, clients, options)
    report = Report("store")
    for case in found.cases():
        tell(report, found, kinds, case)
    report.save()
    store_plot.save(report.rows, kinds)


if __name__ == "__main__":
    main()
