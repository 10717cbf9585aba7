"""What a call of the C interface costs above memcpy: a 4 KiB copy, and a batch of the 122 pieces of a KV block.

Both sides are C programs (c_interface.c): one copies into the memory of the other.

    python benchmarks/c_interface.py [--rounds 7]
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import tempfile
from pathlib import Path

from support.report import Report, bar

import memfabric_hybrid as mf

SOURCE = Path(__file__).with_suffix(".c")
OVERHEAD_BAR_NS = 60.0  # of a 4 KiB copy above memcpy
BATCH_BAR = 1.05  # of the memcpy loop's time


def build(folder: str) -> str:
    program = f"{folder}/c_interface"
    lib = mf.get_lib_path()
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{mf.get_include_path()}"]
    subprocess.run(
        ["gcc", *flags, str(SOURCE), f"-L{lib}", "-lmf_smem", f"-Wl,-rpath,{lib}", "-o", program], check=True
    )
    return program


def measure(program: str, rounds: int) -> dict[str, float]:
    """Nanoseconds of a call, by shape and by what was called."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        url = f"tcp://127.0.0.1:{holder.getsockname()[1]}"
    with subprocess.Popen([program, url, "target"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as target:
        assert target.stdout is not None
        assert target.stdout.readline() == "ready\n"
        said = subprocess.run([program, url, "source", str(rounds)], check=True, capture_output=True, text=True).stdout
        target.communicate("")
    return {f"{shape} {what}": float(ns) for shape, what, ns in (line.split() for line in said.splitlines())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="how often memcpy and we take turns")
    parser.add_argument("--peers", action="store_true", help="accepted: there is nobody to compare with")
    arguments = parser.parse_args()
    report = Report("c_interface")
    with tempfile.TemporaryDirectory() as folder:
        ns = measure(build(folder), arguments.rounds)
    above = ns["4KiB smem"] - ns["4KiB memcpy"]
    verdict = f"{'ok' if above <= OVERHEAD_BAR_NS else 'MISSED'} (bar ≤ {OVERHEAD_BAR_NS:g} ns)"
    report.add(
        f"4KiB   memcpy {ns['4KiB memcpy']:8.0f} ns   smem_bm_copy       {ns['4KiB smem']:8.0f} ns   "
        f"+{above:.0f} ns {verdict}",
        shape="4KiB", memcpy_ns=ns["4KiB memcpy"], smem_ns=ns["4KiB smem"],
    )  # fmt: skip
    ratio = ns["kv122 smem"] / ns["kv122 memcpy"]
    report.add(
        f"kv122  memcpy {ns['kv122 memcpy'] / 1000:8.0f} µs   smem_bm_copy_batch {ns['kv122 smem'] / 1000:8.0f} µs   "
        f"× {ratio:.2f} {bar(ratio, BATCH_BAR)}",
        shape="kv122", memcpy_ns=ns["kv122 memcpy"], smem_ns=ns["kv122 smem"],
    )  # fmt: skip
    report.save()


if __name__ == "__main__":
    main()
