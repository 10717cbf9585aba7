"""Transfer beside the limits of the machine, in one run on the same buffers.

This process writes from private memory into another process through the public calls: into private memory there, in
turn with bare process_vm_writev; into memory of `trans_malloc` and of a pool that only the other process has joined, in
turn with memcpy, non-temporal stores and memcpy by two threads on the same mapping. Each figure is the best round's
median.

    scripts/bench transfer [--rounds 7] [--only SHAPE] [--memory private|trans_malloc|pool] [--peers]

`--peers` measures Mooncake's transfer engine (the wheel without CUDA) beside ours in the same run.
"""

from __future__ import annotations

import argparse
import ctypes
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from support.limits import KINDS, Limits
from support.mooncake_peer import Mooncake
from support.report import Report, bar, best_median
from support.shapes import REGION_BYTES, Shape, all_shapes

import memfabric_hybrid as mf

RAW = "process_vm_writev"
LARGE = ("64MiB", "kv122", "4096x4KiB")
SMALL_BAR, LARGE_BAR, PEER_BAR = 0.9, 1.5, 5  # times as fast as one raw thread; as Mooncake
OVERHEAD_BAR_US, MAPPED_BAR = 0.22, 0.9  # above memcpy at 4 KiB; of the best limit for large shapes

TARGET = """
import ctypes, sys
import numpy as np
import memfabric_hybrid as mf
from memfabric_hybrid import bm
size = int(sys.argv[1])
engine = mf.TransferEngine()
assert engine.initialize(None, "127.0.0.1:0", "Decode", 0) == 0, mf.get_last_err_msg()
private = np.full(size, 2, np.uint8)
assert engine.register(private) == 0, mf.get_last_err_msg()
config = bm.BmConfig()
assert bm.initialize(f"tcp://127.0.0.1:{sys.argv[2]}", 1, 0, config) == 0, mf.get_last_err_msg()
pool = bm.create(0, size)
assert pool.join() == 0, mf.get_last_err_msg()
slot = pool.peer_rank_ptr(0, bm.BmMemType.HOST)
assert engine.register_memory(slot, size) == 0, mf.get_last_err_msg()
arena = engine.trans_malloc(size)
for place in (arena, slot):
    ctypes.memset(place, 2, size)
print(engine.session_id, private.ctypes.data, arena, slot, flush=True)
sys.stdin.read()
"""
MAPPED = ("trans_malloc", "pool")

Layouts = list[tuple[Any, Any, Any]]


class Bench:
    """One target process, one source buffer, and the candidates that copy between them."""

    def __init__(self, engine: mf.TransferEngine, pid: int, session: str, places: dict[str, int], rounds: int) -> None:
        """`places` are addresses there, by the kind of memory."""
        self.engine, self.pid, self.session = engine, pid, session
        self.places, self.rounds = places, rounds
        self.limits = Limits()
        self.source = np.random.default_rng(7).integers(0, 256, REGION_BYTES, dtype=np.uint8)
        self.report = Report("transfer")
        # Where the target's memory is in this process: the first transfer maps it, the limits copy there as well.
        self.here = {name: mapping_of(places[name], session, engine) for name in MAPPED if name in places}

    def measure(self, shape: Shape, mooncake: Mooncake | None) -> None:
        for name in self.places:
            if name in MAPPED:
                self._measure_mapped(shape, name)
            else:
                self._measure_private(shape, mooncake)

    def _layouts(self, shape: Shape, target: int) -> Layouts:
        base = np.uint64(self.source.ctypes.data)
        return [(one.sources + base, one.targets + np.uint64(target), one.sizes) for one in shape.layouts]

    def _run(self, candidates: dict[str, Callable[[], list[float]]]) -> dict[str, float]:
        samples: dict[str, list[list[float]]] = {name: [] for name in candidates}
        for _ in range(self.rounds):
            for name, run in candidates.items():
                self.limits.spin(name, True)
                samples[name].append(run())
                self.limits.spin(name, False)
        return {name: best_median(rounds) for name, rounds in samples.items()}

    def _measure_private(self, shape: Shape, mooncake: Mooncake | None) -> None:
        layouts = self._layouts(shape, self.places["private"])
        candidates: dict[str, Callable[[], list[float]]] = {
            RAW: lambda: self._limit(lambda t, s, n, c: self.limits.run_into(self.pid, t, s, n, c), shape, layouts),
            "ours": lambda: self._ours(shape, layouts),
        }
        if mooncake is not None:
            candidates["Mooncake"] = lambda: mooncake.run(shape)
        medians = self._run(candidates)
        ours = medians["ours"]
        ratio = medians[RAW] / ours
        row: dict[str, Any] = {"shape": shape.name, "memory": "private", "median_us": medians, "ratio": ratio}
        verdict = f"{shape.total_bytes / ours / 1e3:.1f} GB/s, {ratio:.2f} × as fast as one raw thread"
        if shape.name == "4KiB":
            verdict += f": {bar(ratio, SMALL_BAR, at_least=True)}, {ours - medians[RAW]:+.2f} µs"
        elif shape.name in LARGE:
            verdict += f": {bar(ratio, LARGE_BAR, at_least=True)}"
        if "Mooncake" in medians:
            row["to_mooncake"] = medians["Mooncake"] / ours
            verdict += f"; {row['to_mooncake']:.1f} × Mooncake: {bar(row['to_mooncake'], PEER_BAR, at_least=True)}"
        self._tell(shape, "private", medians, verdict, row)

    def _measure_mapped(self, shape: Shape, memory: str) -> None:
        layouts = self._layouts(shape, self.places[memory])
        here = self._layouts(shape, self.here[memory])
        candidates: dict[str, Callable[[], list[float]]] = {
            kind: lambda kind=kind: self._limit(  # type: ignore[misc]
                lambda t, s, n, c, kind=kind: self.limits.run(kind, t, s, n, c), shape, here
            )
            for kind in KINDS
        }
        candidates["ours"] = lambda: self._ours(shape, layouts)
        medians = self._run(candidates)
        ours, best = medians["ours"], min(KINDS, key=lambda kind: medians[kind])
        row: dict[str, Any] = {"shape": shape.name, "memory": memory, "median_us": medians, "best": best}
        verdict = f"{shape.total_bytes / ours / 1e3:.1f} GB/s"
        if shape.name == "4KiB":
            row["overhead_us"] = ours - medians["memcpy"]
            verdict += f", {row['overhead_us']:.2f} µs above memcpy: {bar(row['overhead_us'], OVERHEAD_BAR_US)}"
        else:
            row["ratio"] = medians[best] / ours
            verdict += f", {row['ratio']:.2f} of {best}"
            if shape.name in LARGE:
                verdict += f": {bar(row['ratio'], MAPPED_BAR, at_least=True)}"
        self._tell(shape, memory, medians, verdict, row)

    def _limit(self, run: Callable[[int, int, int, int], float], shape: Shape, layouts: Layouts) -> list[float]:
        pointers = [tuple(array.ctypes.data for array in one) for one in layouts]
        samples = []
        for i in range(shape.operations):
            sources, targets, sizes = pointers[i % len(pointers)]
            samples.append(run(targets, sources, sizes, shape.pieces))
        return samples

    def _ours(self, shape: Shape, layouts: Layouts) -> list[float]:
        samples = []
        if shape.pieces > 1:
            batch = self.engine.batch_transfer_sync_write
            for i in range(shape.operations):
                sources, targets, sizes = layouts[i % len(layouts)]
                start = time.perf_counter_ns()
                code = batch(self.session, sources, targets, sizes)
                samples.append((time.perf_counter_ns() - start) / 1e3)
                must(code)
            return samples
        write, session = self.engine.transfer_sync_write, self.session
        calls = [(int(s[0]), int(t[0]), int(n[0])) for s, t, n in layouts]
        repeat = 20 if shape.total_bytes < 1 << 20 else 1  # the clock itself costs 0.05 µs
        for i in range(shape.operations):
            source, target, size = calls[i % len(calls)]
            start = time.perf_counter_ns()
            for _ in range(repeat):
                code = write(session, source, target, size)
            samples.append((time.perf_counter_ns() - start) / 1e3 / repeat)
            must(code)
        return samples

    def _tell(self, shape: Shape, memory: str, medians: dict[str, float], verdict: str, row: dict[str, Any]) -> None:
        figures = "  ".join(f"{name} {us:.2f}" for name, us in medians.items())
        self.report.add(f"{shape.name:>10} {memory:>12}  µs: {figures}\n{'':>24} {verdict}", **row)

    def verify(self, shape: Shape) -> None:
        """The bytes of the last layout really are in the other process's memory, of every kind."""
        one = shape.layouts[(shape.operations - 1) % len(shape.layouts)]
        for base in self.places.values():
            for source, target, size in zip(one.sources, one.targets, one.sizes, strict=True):
                a, b, n = int(source), int(target), int(size)
                there = np.empty(n, np.uint8)
                must(self.engine.transfer_sync_read(self.session, int(there.ctypes.data), base + b, n))
                assert np.array_equal(self.source[a : a + n], there), f"{shape.name}: wrong bytes at {b}"


def must(code: int) -> None:
    assert code == 0, f"{code}: {mf.get_last_err_msg()}"


def mapping_of(place: int, session: str, engine: mf.TransferEngine) -> int:
    """The address in this process of memory of the target's: found by a mark that only that mapping shows."""
    mark = np.random.default_rng().integers(0, 256, 64, np.uint8)
    must(engine.transfer_sync_write(session, int(mark.ctypes.data), place, 64))
    with open("/proc/self/maps", encoding="utf-8") as maps:
        starts = [int(line.split("-")[0], 16) for line in maps if "memfd:memfabric" in line and " rw-s " in line]
    for start in starts:
        if ctypes.string_at(start, 64) == mark.tobytes():
            return start
    raise SystemExit("the target's memory is not mapped here")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", help="one shape")
    parser.add_argument("--peers", action="store_true", help="measure Mooncake beside us")
    parser.add_argument("--memory", help="one kind of memory")
    options = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", TARGET, str(REGION_BYTES), str(port)]
    with (
        mf.TransferEngine() as engine,
        Mooncake.started(options.peers) as mooncake,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as target,
    ):
        assert target.stdin is not None
        assert target.stdout is not None
        must(engine.initialize(None, "127.0.0.1:0", "Prefill", 0))
        session, *where = target.stdout.readline().split()
        places = {name: int(place) for name, place in zip(("private", *MAPPED), where, strict=True)}
        if options.memory is not None:
            places = {options.memory: places[options.memory]}
        bench = Bench(engine, target.pid, session, places, options.rounds)
        for shape in all_shapes():
            if options.only in (None, shape.name):
                bench.measure(shape, mooncake)
                bench.verify(shape)
        bench.report.save()
        target.stdin.close()


if __name__ == "__main__":
    main()
