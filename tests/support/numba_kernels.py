"""Kernels for the conformance tests as Numba functions; `kernels.cpp` has the same ones in C++."""

from __future__ import annotations

import numpy as np
from numba import njit

from memfabric_hybrid import device


@njit(nogil=True, cache=True)
def kernel_identity(id, result):
    result[0] = device.rank(id)
    result[1] = device.rank_size(id)
    result[2] = device.symmetric_size(id)
    result[3] = device.gva(id)
    result[4] = device.context_address(id)
    result[5] = device.context_size(id)
    return device.address(0, 0, id)


@njit(nogil=True, cache=True)
def kernel_sum_context(id):
    content = np.zeros(device.context_size(id), np.uint8)
    device.copy_gm2ub(content, device.context_address(id), content.size)
    return content.sum()


@njit(nogil=True, cache=True)
def kernel_shift_doubled(id, count, to):
    rank = device.rank(id)
    right = (rank + 1) % device.rank_size(id)
    buffer = np.empty(count, np.float32)
    device.copy_gm2ub(buffer, device.address(rank, 0, id), count * 4)
    buffer *= np.float32(2)
    device.copy_ub2gm(device.address(right, to, id), buffer, count * 4)
    device.fence()


@njit(nogil=True, cache=True)
def kernel_get_and_put(id, size, to, to2):
    rank, ranks = device.rank(id), device.rank_size(id)
    left, right = (rank + ranks - 1) % ranks, (rank + 1) % ranks
    mine = device.array(rank, size, np.uint8, to, id)
    device.get(mine, left, 0, id)
    device.quiet()
    device.put(right, to2, mine, id)
    device.quiet()


@njit(nogil=True, cache=True)
def kernel_count(id, times):
    for _ in range(times):
        device.atomic_add_i32(device.address(0, 0, id), 1)
        device.atomic_add_i64(device.address(0, 64, id), 1)


@njit(nogil=True, cache=True)
def kernel_count_locked(id, times):
    lock = device.address(0, 0, id)
    plain = device.array(0, 1, np.int64, 64, id)
    for _ in range(times):
        while device.atomic_compare_swap_i32(lock, 0, 1) != 0:
            device.wait_until_i32(lock, device.EQ, 0, 1000)
        plain[0] += 1
        device.atomic_store_i32(lock, 0)


@njit(nogil=True, cache=True)
def kernel_pass_token(id, rounds, most):
    rank, ranks = device.rank(id), device.rank_size(id)
    own, following = device.address(rank, 0, id), device.address((rank + 1) % ranks, 0, id)
    seen = 0
    for number in range(rounds):
        token = number * ranks + rank
        if token != 0 and not device.wait_until_i64(own, device.GE, token, most):
            return -1
        seen = token
        device.atomic_store_i64(following, token + 1)
    return seen


@njit(nogil=True, cache=True)
def kernel_compare(id, value):
    wide, narrow = device.address(device.rank(id), 0, id), device.address(device.rank(id), 64, id)
    device.atomic_store_i64(wide, 5)
    device.atomic_store_i32(narrow, 5)
    bits = 0
    for compare in range(6):
        if device.wait_until_i64(wide, compare, value, 3):
            bits |= 1 << compare
        if device.wait_until_i32(narrow, compare, value, 3):
            bits |= 1 << (compare + 16)
    return bits


@njit(nogil=True, cache=True)
def kernel_nowhere(id):
    found = 0
    for place in (
        device.address(device.rank_size(id), 0, id),
        device.address(0, device.symmetric_size(id), id),
        device.address(0, 0, 63),
        device.address(0, 0, 64),
    ):
        if place != 0:
            found += 1
    return found + (1 if device.rank(63) != device.NO_RANK else 0)


@njit(nogil=True, cache=True)
def kernel_is_far(id, rank):
    return device.is_far(rank, id)


@njit(nogil=True, cache=True)
def kernel_put(id, rank, size):
    return device.put(rank, 0, device.array(device.rank(id), size, np.uint8, 0, id), id)
