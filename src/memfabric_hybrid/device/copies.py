"""Bytes between kernels and ranks: typed views of anybody's memory, block copies, put and get."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit

from memfabric_hybrid.device.table import address, gva
from memfabric_hybrid.device.words import move_bytes, pointer_to


@njit
def array(rank: int, shape: Any, dtype: Any, offset: int = 0, id: int = 0) -> Any:
    """An array on the memory of that rank, from `offset` bytes on; no copy. Empty if the place does not exist."""
    place = address(rank, offset, id)
    if place == 0:
        return carray(pointer_to(np.uint64(gva(id))), shape, dtype)[:0]
    return carray(pointer_to(np.uint64(place)), shape, dtype)[:]


@njit
def copy_ub2gm(target_address: int, source: Any, size_bytes: int) -> None:
    """From an array of the kernel to a global address."""
    move_bytes(np.uint64(target_address), np.uint64(source.ctypes.data), np.uint64(size_bytes))


@njit
def copy_gm2ub(target: Any, source_address: int, size_bytes: int) -> None:
    """From a global address to an array of the kernel."""
    move_bytes(np.uint64(target.ctypes.data), np.uint64(source_address), np.uint64(size_bytes))


@njit
def put(rank: int, offset: int, source: Any, id: int = 0) -> None:
    """The whole (contiguous) array to `offset` in the memory of that rank; nothing if it does not lie inside."""
    size_bytes = source.size * source.itemsize
    target = address(rank, offset, id)
    if target != 0 and address(rank, offset + size_bytes - 1, id) != 0:
        copy_ub2gm(target, source, size_bytes)


@njit
def get(target: Any, rank: int, offset: int, id: int = 0) -> None:
    """Fills the (contiguous) array from `offset` in the memory of that rank; not if that does not lie inside."""
    size_bytes = target.size * target.itemsize
    source = address(rank, offset, id)
    if source != 0 and address(rank, offset + size_bytes - 1, id) != 0:
        copy_gm2ub(target, source, size_bytes)
