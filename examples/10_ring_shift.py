"""Put and get from a kernel: every rank hands its numbers to its right neighbour and fetches those of its left one."""

from __future__ import annotations

import sys

import numpy as np
from heap_ranks import run
from numba import njit

import memfabric_hybrid as mf
from memfabric_hybrid import device, shm

RANKS, COUNT = 3, 1000
PUT_HERE, GET_HERE, SIGNAL = 1 << 20, 2 << 20, 3 << 20  # offsets in everybody's memory


@njit(nogil=True)
def shift(count: int) -> bool:
    """No Python inside: addresses, copies and the signal are plain loads and stores."""
    rank, size = device.rank(), device.rank_size()
    left, right = (rank - 1 + size) % size, (rank + 1) % size
    if not device.put(right, PUT_HERE, device.array(rank, count, np.float64)):
        return False
    device.quiet()
    device.atomic_add_i64(device.address(right, SIGNAL), 1)
    fetched = device.get(device.array(rank, count, np.float64, GET_HERE), left, 0)
    return fetched and device.wait_until_i64(device.address(rank, SIGNAL), device.EQ, 1, device.FOREVER)


def ring(heap: shm.ShareMemory) -> None:
    rank, left = heap.local_rank, (heap.local_rank - 1) % RANKS
    heap.array(rank, COUNT, np.float64)[:] = np.arange(COUNT) + 1000 * rank
    mf.check(heap.barrier())
    if not shift(COUNT):
        raise RuntimeError("a rank is gone, or its memory is too small")
    expected = np.arange(COUNT) + 1000.0 * left
    np.testing.assert_array_equal(heap.array(rank, COUNT, np.float64, PUT_HERE), expected)
    np.testing.assert_array_equal(heap.array(rank, COUNT, np.float64, GET_HERE), expected)
    print(f"rank {rank}: {COUNT} numbers from rank {left}, put and fetched")


if __name__ == "__main__":
    sys.exit(run(ring, RANKS))
