"""Barrier, all-gather and all-reduce of a symmetric heap beside MPI and gloo: the same ranks, one run.

    python benchmarks/share_memory.py [--ranks 2 4 8] [--repeat 3] [--peers]

`scripts/bench share_memory --peers` installs the peers first; without it what is missing is said. The best of the
repetitions counts. With more ranks than cores MPI is told to yield. The limit of the all-reduce is the time in which
the cores copy what it has to read and write.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
from support.limits import Limits
from support.peers import PYTHON, REMEDY, has_package
from support.report import Report, bar

import memfabric_hybrid as mf

ROOT = Path(__file__).resolve().parents[1]
RANK = ROOT / "benchmarks" / "support" / "collective_rank.py"
KERNELS = ROOT / "examples" / "reduce_kernels.cpp"
DEADLINE_S = 180
REDUCED_BYTES = 64 << 20


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def measure(peer: str, ranks: int, what: str, library: str) -> dict[str, float]:
    """The figures of rank 0, in µs."""
    port = free_port()
    if peer == "mpi":
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
        command += [str(PYTHON), str(RANK), "mpi"]
        if os.geteuid() == 0:
            command.insert(1, "--allow-run-as-root")
        if ranks > (os.cpu_count() or 1):
            command[1:1] = ["--mca", "mpi_yield_when_idle", "1"]
        commands = [[*command, "0", str(ranks), "-", what, library]]
    else:
        place = f"tcp://127.0.0.1:{port}" if peer == "ours" else str(port)
        python = sys.executable if peer == "ours" else str(PYTHON)
        commands = [[python, str(RANK), peer, str(rank), str(ranks), place, what, library] for rank in range(ranks)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    try:
        outputs = [process.communicate(timeout=DEADLINE_S)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(process.returncode for process in processes):
        raise SystemExit(f"{peer} with {ranks} ranks failed")
    return dict(json.loads(next(line for line in "".join(outputs).splitlines() if line.startswith("{"))))


def memory_limit_us(ranks: int) -> float:
    """Every core copies, at once, its part of the bytes that an in-place all-reduce reads and writes."""
    cores = min(ranks, os.cpu_count() or 1)
    part = REDUCED_BYTES * ranks // cores // 4
    arrays = [(np.zeros(part, np.float32), np.ones(part, np.float32)) for _ in range(cores)]
    pieces = [
        [np.array([number], np.uint64) for number in (target.ctypes.data, source.ctypes.data, source.nbytes)]
        for target, source in arrays
    ]
    limits = Limits()
    best = float("inf")
    for kind in ("memcpy", "non-temporal") * 5:
        took_us = [0.0] * cores

        def copy(core: int, kind: str = kind, took_us: list[float] = took_us) -> None:
            took_us[core] = limits.run(kind, *(array.ctypes.data for array in pieces[core]), 1)

        threads = [threading.Thread(target=copy, args=(core,)) for core in range(cores)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        best = min(best, max(took_us))
    return best


def peers(wanted: bool) -> list[str]:
    found = ["ours"]
    if not wanted:
        return found
    for peer, package, tool in (("mpi", "mpi4py", "mpirun"), ("gloo", "torch", None)):
        missing = [name for name in (package,) if not has_package(name)]
        missing += [name for name in (tool,) if name and not shutil.which(name)]
        if missing:
            print(f"{peer} is not measured, there is no {' and no '.join(missing)}: {REMEDY}")
        else:
            found.append(peer)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--peers", action="store_true", help="measure MPI and gloo in the same run")
    options = parser.parse_args()
    report = Report("share_memory")
    names = peers(options.peers)
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/kernels.so"
        flags = ["-std=c++17", "-O3", "-march=native", "-shared", "-fPIC", f"-I{mf.get_include_path()}"]
        subprocess.run(["c++", *flags, str(KERNELS), "-o", library], check=True)
        for ranks in options.ranks:
            for what in ("latency", "bandwidth") if ranks <= 4 else ("latency",):
                best: dict[tuple[str, str], float] = {}
                for _ in range(options.repeat):
                    for peer in names:
                        for case, us in measure(peer, ranks, what, library).items():
                            best[peer, case] = min(us, best.get((peer, case), us))
                show(report, ranks, best)
    report.save()


def show(report: Report, ranks: int, best: dict[tuple[str, str], float]) -> None:
    crowded = ranks > (os.cpu_count() or 1)
    bars = {"barrier": 3.0 if crowded else 2.0, "all-gather": 3.0, "all-reduce": 1.0}
    for case in dict.fromkeys(case for _, case in best):
        ours = best["ours", case]
        text = f"{case:>10} of {ranks} ranks  ours {ours:9.2f} µs"
        row = {"case": case, "ranks": ranks, "ours_us": ours}
        for peer in ("mpi", "gloo"):
            if (peer, case) in best:
                ratio = ours / best[peer, case]
                row |= {f"{peer}_us": best[peer, case], f"ratio_to_{peer}": ratio}
                judged = f"  {bar(ratio, bars[case])}" if peer == "mpi" or case == "all-reduce" else ""
                text += f"   {peer} {best[peer, case]:9.2f} µs, ratio {ratio:.2f}{judged}"
        if case == "all-reduce":
            limit = memory_limit_us(ranks)
            row |= {"memory_limit_us": limit}
            text += f"   copying as much takes {limit:.0f} µs, ratio {ours / limit:.2f}"
        report.add(text, **row)


if __name__ == "__main__":
    main()
