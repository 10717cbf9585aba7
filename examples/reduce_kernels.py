"""All-reduce over a symmetric heap as Numba kernels; `reduce_kernels.cpp` has the same ones in C++.

Each sums `count` float32 that every rank has at offset 0. `signals` is the offset of rank_size zeroed 64-bit words with
which the ranks tell each other how far they are.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from memfabric_hybrid import device

BLOCK = 8192  # floats that stay in a core's cache while they are summed


@njit(nogil=True, fastmath=True)
def all_reduce_one_shot(count: int, result: int) -> None:
    """Every rank reads everybody's floats and stores the sums at offset `result` of its own memory: for little data."""
    out = device.array(device.rank(), count, np.float32, result)
    out[:] = device.array(0, count, np.float32)
    for peer in range(1, device.rank_size()):
        theirs = device.array(peer, count, np.float32)
        for i in range(count):
            out[i] += theirs[i]


@njit(nogil=True, fastmath=True)
def all_reduce_in_place(count: int) -> bool:
    """Every rank sums its share of the floats and stores the sums on all ranks, where the floats were: for much data.
    Needs a barrier before and after. False if somebody's memory could not be reached."""
    rank, size = device.rank(), device.rank_size()
    begin, end = count * rank // size, count * (rank + 1) // size
    sums = np.empty(BLOCK, np.float32)
    for start in range(begin, end, BLOCK):
        length = min(BLOCK, end - start)
        part = sums[:length]
        if not device.get(part, 0, start * 4):
            return False
        for peer in range(1, size):
            theirs = device.array(peer, length, np.float32, start * 4)
            for i in range(length):
                part[i] += theirs[i]
        for peer in range(size):
            if not device.put(peer, start * 4, part):
                return False
    return True


@njit(nogil=True, fastmath=True)
def all_reduce_ring(count: int, signals: int) -> bool:
    """The classic: shares travel around the ring, first to be summed, then to be stored. Talks to neighbours only and
    needs no barrier: a rank tells the next one with a word when a step is done. False if a neighbour never came."""
    rank, size = device.rank(), device.rank_size()
    left, right = (rank - 1 + size) % size, (rank + 1) % size
    steps_of_left, steps_of_right = device.address(left, signals), device.address(right, signals)
    own_steps = device.address(rank, signals)
    for step in range(2 * (size - 1)):
        # Our left neighbour has done `step` steps: what we read now is there, and it does not read it from us any more.
        if not device.wait_until_i64(steps_of_left, device.GE, step, device.FOREVER):
            return False
        if not device.wait_until_i64(steps_of_right, device.GE, step, device.FOREVER):
            return False
        share = (rank - 1 - step + 2 * size) % size
        begin, end = count * share // size, count * (share + 1) // size
        mine = device.array(rank, end - begin, np.float32, begin * 4)
        theirs = device.array(left, end - begin, np.float32, begin * 4)
        if step < size - 1:
            for i in range(end - begin):
                mine[i] += theirs[i]
        else:
            mine[:] = theirs
        device.atomic_add_i64(own_steps, 1)
    return True
