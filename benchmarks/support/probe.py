"""What one build of the package takes for a few operations: a program of its own, printing microseconds as JSON.

Run by benchmarks/compare.py with the interpreters of two environments in turn; uses public calls only.
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from shapes import REGION_BYTES, Shape, all_shapes

import memfabric_hybrid as mf
from memfabric_hybrid import bm, shm

SHAPES = ("4KiB", "kv122", "4096x4KiB")
BARRIERS = 20_000
PEER = """
import sys
import numpy as np
import memfabric_hybrid as mf
from memfabric_hybrid import bm, shm
url, size, barriers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
assert bm.initialize(url, 2, 0, bm.BmConfig()) == 0, mf.get_last_err_msg()
pool = bm.create(0, size)
assert pool.join() == 0, mf.get_last_err_msg()
pool.array(bm.bm_rank_id(), size, "u1")[:] = 2
engine = mf.TransferEngine()
assert engine.initialize(None, "127.0.0.1:0", "Decode", 0) == 0, mf.get_last_err_msg()
private = np.full(size, 2, np.uint8)
assert engine.register(private) == 0, mf.get_last_err_msg()
print(engine.session_id, private.ctypes.data, flush=True)
sys.stdin.readline()
heap_url = sys.stdin.readline().strip()
assert shm.initialize(heap_url, 2, 1, 0, shm.ShmConfig()) == 0, mf.get_last_err_msg()
heap = shm.create(0, 2, 1, 1 << 21, shm.ShmDataOpType.MTE, 0)
for _ in range(barriers + 1):
    heap.barrier()
sys.stdin.read()
"""


def must(code: int) -> None:
    assert code == 0, mf.get_last_err_msg()


def median_us(shape: Shape, layouts: list[Any], one: Callable[..., int], batch: Callable[..., int]) -> float:
    repeat = 20 if shape.pieces == 1 and shape.total_bytes < 1 << 20 else 1  # the clock itself costs 0.05 µs
    samples = []
    for i in range(2 * shape.operations):
        sources, targets, sizes = layouts[i % len(layouts)]
        call = batch if shape.pieces > 1 else one
        arguments = (sources, targets, sizes) if shape.pieces > 1 else (int(sources[0]), int(targets[0]), int(sizes[0]))
        start = time.perf_counter_ns()
        for _ in range(repeat):
            code = call(*arguments)
        samples.append((time.perf_counter_ns() - start) / 1e3 / repeat)
        must(code)
    return statistics.median(samples)


def free_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


def main() -> None:
    url, figures = free_url(), {}
    command = [sys.executable, "-c", PEER, url, str(REGION_BYTES), str(BARRIERS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdin is not None
        assert peer.stdout is not None
        must(bm.initialize(url, 2, 0, bm.BmConfig()))
        pool = bm.create(0, REGION_BYTES)
        must(pool.join())
        session, place = peer.stdout.readline().split()
        with mf.TransferEngine() as engine:
            must(engine.initialize(None, "127.0.0.1:0", "Prefill", 0))
            source = np.random.default_rng(7).integers(0, 256, REGION_BYTES, dtype=np.uint8)
            slot = pool.peer_rank_ptr(1 - bm.bm_rank_id(), bm.BmMemType.HOST)
            for shape in (one for one in all_shapes() if one.name in SHAPES):
                ways: dict[str, tuple[int, Callable[..., int], Callable[..., int]]] = {
                    "copy": (
                        slot,
                        lambda s, t, n: pool.copy_data(s, t, n, bm.BmCopyType.H2G),
                        lambda s, t, n: pool.copy_data_batch(s, t, n, len(n), bm.BmCopyType.H2G),
                    ),
                    "transfer to private memory": (
                        int(place),
                        lambda s, t, n: engine.transfer_sync_write(session, s, t, n),
                        lambda s, t, n: engine.batch_transfer_sync_write(session, s, t, n),
                    ),
                }
                for name, (target, one, batch) in ways.items():
                    layouts = [
                        (o.sources + np.uint64(source.ctypes.data), o.targets + np.uint64(target), o.sizes)
                        for o in shape.layouts
                    ]
                    median_us(shape, layouts, one, batch)  # warm
                    figures[f"{name} {shape.name}"] = median_us(shape, layouts, one, batch)
        heap_url = free_url()
        peer.stdin.write(f"\n{heap_url}\n")
        peer.stdin.flush()
        config = shm.ShmConfig()
        must(shm.initialize(heap_url, 2, 0, 0, config))
        heap = shm.create(0, 2, 0, 1 << 21, shm.ShmDataOpType.MTE, 0)
        heap.barrier()
        blocks = []
        for _ in range(20):
            start = time.perf_counter_ns()
            for _ in range(BARRIERS // 20):
                heap.barrier()
            blocks.append((time.perf_counter_ns() - start) / 1e3 / (BARRIERS // 20))
        figures["shm barrier"] = statistics.median(blocks)
        peer.stdin.close()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
