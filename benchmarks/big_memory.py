"""Big Memory's copies beside the limits of the machine, in one run on the same buffers.

Rank 0 (this process) copies from private memory into the memory of rank 1 (another process) through the public calls,
in turn with bare C loops: memcpy, non-temporal stores, memcpy by two threads. Each figure is the best round's median.

    python benchmarks/big_memory.py [--rounds 7] [--only SHAPE]
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from support.limits import KINDS, Limits
from support.report import Report, bar, best_median
from support.shapes import REGION_BYTES, Shape, all_shapes

import memfabric_hybrid as mf
from memfabric_hybrid import bm

H2G = bm.BmCopyType.H2G
OVERHEAD_BAR_US = 0.22  # of a 4 KiB copy above memcpy
RATIO_BAR = 0.9  # of the best limit, for the large shapes
LIST_BAR_US = 0.1  # per piece, for Python lists instead of numpy arrays

TARGET = """
import sys
from memfabric_hybrid import bm
import memfabric_hybrid as mf
assert bm.initialize(sys.argv[1], 2, 0, bm.BmConfig()) == 0, mf.get_last_err_msg()
pool = bm.create(0, int(sys.argv[2]))
assert pool.join() == 0, mf.get_last_err_msg()
pool.array(bm.bm_rank_id(), int(sys.argv[2]), "u1")[:] = 2
print("ready", flush=True)
sys.stdin.read()
"""


class Bench:
    """One pool, one source buffer, and the candidates that copy between them."""

    def __init__(self, pool: bm.BigMemory, rounds: int) -> None:
        self.pool = pool
        self.rounds = rounds
        self.limits = Limits()
        self.source = np.random.default_rng(7).integers(0, 256, REGION_BYTES, dtype=np.uint8)
        self.target = pool.peer_rank_ptr(1, bm.BmMemType.HOST)
        self.report = Report("big_memory")

    def measure(self, shape: Shape) -> None:
        base = np.uint64(self.source.ctypes.data)
        layouts = [(one.sources + base, one.targets + np.uint64(self.target), one.sizes) for one in shape.layouts]
        candidates: dict[str, Callable[[], list[float]]] = {
            kind: lambda kind=kind: self._limit(kind, shape, layouts)  # type: ignore[misc]
            for kind in KINDS
        }
        candidates["ours"] = lambda: self._ours(shape, layouts)
        samples: dict[str, list[list[float]]] = {name: [] for name in candidates}
        for _ in range(self.rounds):
            for name, run in candidates.items():
                self.limits.spin(name, True)
                samples[name].append(run())
                self.limits.spin(name, False)
        list_us = self._list_cost(shape, layouts) if shape.pieces > 1 else None
        self._tell(shape, {name: best_median(rounds) for name, rounds in samples.items()}, list_us)

    def _limit(self, kind: str, shape: Shape, layouts: list[Any]) -> list[float]:
        pointers = [tuple(array.ctypes.data for array in one) for one in layouts]
        samples = []
        for i in range(shape.operations):
            sources, targets, sizes = pointers[i % len(pointers)]
            samples.append(self.limits.run(kind, targets, sources, sizes, shape.pieces))
        return samples

    def _batch(self, shape: Shape, layout: Any) -> float:
        sources, targets, sizes = layout
        start = time.perf_counter_ns()
        code = self.pool.copy_data_batch(sources, targets, sizes, shape.pieces, H2G)
        took = time.perf_counter_ns() - start
        assert code == 0, mf.get_last_err_msg()
        return took / 1e3

    def _list_cost(self, shape: Shape, layouts: list[Any]) -> float:
        """What Python lists cost more than numpy arrays, per piece. Far less than what copies of megabytes vary by: the
        same pieces are taken at one byte each."""
        arrays = [(sources, targets, np.ones_like(sizes)) for sources, targets, sizes in layouts]
        lists = [tuple(array.tolist() for array in one) for one in arrays]
        samples: dict[str, list[list[float]]] = {"arrays": [], "lists": []}
        for _ in range(self.rounds):
            for name, chosen in (("arrays", arrays), ("lists", lists)):
                samples[name].append([self._batch(shape, chosen[i % len(chosen)]) for i in range(shape.operations)])
        return (best_median(samples["lists"]) - best_median(samples["arrays"])) / shape.pieces

    def _ours(self, shape: Shape, layouts: list[Any]) -> list[float]:
        if shape.pieces > 1:
            return [self._batch(shape, layouts[i % len(layouts)]) for i in range(shape.operations)]
        copy = self.pool.copy_data
        calls = [(int(s[0]), int(t[0]), int(n[0])) for s, t, n in layouts]
        repeat = 20 if shape.total_bytes < 1 << 20 else 1  # the clock itself costs 0.05 µs
        samples = []
        for i in range(shape.operations):
            source, target, size = calls[i % len(calls)]
            start = time.perf_counter_ns()
            for _ in range(repeat):
                code = copy(source, target, size, H2G)
            samples.append((time.perf_counter_ns() - start) / 1e3 / repeat)
            assert code == 0, mf.get_last_err_msg()
        return samples

    def _tell(self, shape: Shape, medians: dict[str, float], list_us: float | None) -> None:
        best = min(KINDS, key=lambda kind: medians[kind])
        ours = medians["ours"]
        figures = "  ".join(f"{name} {us:.2f}" for name, us in medians.items())
        verdict = f"{shape.total_bytes / ours / 1e3:.1f} GB/s"
        row: dict[str, Any] = {"shape": shape.name, "bytes": shape.total_bytes, "median_us": medians, "best": best}
        if shape.name == "4KiB":
            row["overhead_us"] = ours - medians["memcpy"]
            verdict += f", {row['overhead_us']:.2f} µs above memcpy: {bar(row['overhead_us'], OVERHEAD_BAR_US)}"
        else:
            row["ratio"] = medians[best] / ours
            verdict += f", {row['ratio']:.2f} of {best}"
            if shape.name in ("64MiB", "kv122", "4096x4KiB"):
                verdict += f": {bar(row['ratio'], RATIO_BAR, at_least=True)}"
        if list_us is not None:
            row["list_us_per_piece"] = list_us
            verdict += f"; lists {list_us:+.3f} µs/piece: {bar(list_us, LIST_BAR_US)}"
        self.report.add(f"{shape.name:>10}  µs: {figures}\n{'':>10}  {verdict}", **row)

    def verify(self, shape: Shape) -> None:
        """The bytes of the last layout written really are in the other process's memory."""
        one = shape.layouts[(shape.operations - 1) % len(shape.layouts)]
        there = self.pool.array(1, REGION_BYTES, "u1")
        for source, target, size in zip(one.sources, one.targets, one.sizes, strict=True):
            a, b, n = int(source), int(target), int(size)
            assert np.array_equal(self.source[a : a + n], there[b : b + n]), f"{shape.name}: wrong bytes at {b}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", help="one shape")
    parser.add_argument("--peers", action="store_true", help="as for the others; here there are limits, but no peers")
    options = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    assert bm.initialize(url, 2, 0, bm.BmConfig()) == 0, mf.get_last_err_msg()
    pool = bm.create(0, REGION_BYTES)
    assert pool.join() == 0, mf.get_last_err_msg()
    command = [sys.executable, "-c", TARGET, url, str(REGION_BYTES)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as target:
        assert target.stdout is not None
        assert target.stdin is not None
        assert target.stdout.readline() == "ready\n", "the target process did not start"
        bench = Bench(pool, options.rounds)
        for shape in all_shapes():
            if options.only in (None, shape.name):
                bench.measure(shape)
                bench.verify(shape)
        bench.report.save()
        target.stdin.close()
    bm.uninitialize()


if __name__ == "__main__":
    main()
