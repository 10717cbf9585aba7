"""All-reduce as C++ kernels, compiled against the header alone and called with ctypes, each compared with numpy."""

from __future__ import annotations

import sys
import time
from ctypes import c_uint64 as number

import numpy as np
from heap_ranks import compiled, run

import memfabric_hybrid as mf
from memfabric_hybrid import shm

RANKS, COUNT = 3, 1 << 20
RESULT, SIGNALS = 16 << 20, 32 << 20


def numbers(rank: int) -> np.ndarray:
    return np.random.default_rng(rank).random(COUNT, np.float32)


def reduce(heap: shm.ShareMemory) -> None:
    mine = heap.array(heap.local_rank, COUNT, np.float32)
    result = heap.array(heap.local_rank, COUNT, np.float32, RESULT)
    expected = sum(numbers(rank).astype(np.float64) for rank in range(RANKS))
    with compiled("reduce_kernels.cpp") as kernels:
        calls = {
            "one shot": (kernels.all_reduce_one_shot, (number(COUNT), number(RESULT)), result),
            "in place": (kernels.all_reduce_in_place, (number(COUNT),), mine),
            "ring": (kernels.all_reduce_ring, (number(COUNT), number(SIGNALS)), mine),
        }
        for name, (kernel, arguments, sums) in calls.items():
            mine[:] = numbers(heap.local_rank)
            heap.array(heap.local_rank, 1, np.int64, SIGNALS)[:] = 0
            mf.check(heap.barrier())
            began = time.perf_counter()
            kernel(*arguments)
            mf.check(heap.barrier())
            took = time.perf_counter() - began
            np.testing.assert_allclose(sums, expected, rtol=1e-5)
            if heap.local_rank == 0:
                print(f"{name}: {COUNT} floats of {RANKS} ranks in {took * 1e3:.1f} ms, as numpy says")
            mf.check(heap.barrier())


if __name__ == "__main__":
    sys.exit(run(reduce, RANKS))
