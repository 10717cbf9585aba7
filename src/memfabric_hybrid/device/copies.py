"""Bytes between kernels and ranks: typed views of anybody's memory, block copies, put and get."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray

from memfabric_hybrid.device.compiled import compiled
from memfabric_hybrid.device.layouts import bytes_of, count_of, packed, packed_alike, require_block, unpack
from memfabric_hybrid.device.table import copy_between, gva, is_far, rank_size, symmetric_size
from memfabric_hybrid.device.words import pointer_to


@compiled
def _place(rank: int, offset: int, size_bytes: int, id: int) -> int:
    """Where so many bytes lie in the memory of that rank; 0 if they do not all lie in it."""
    owner, start, each = np.int64(rank), np.int64(offset), symmetric_size(id)
    if owner < 0 or owner >= rank_size(id) or start < 0 or size_bytes < 0 or size_bytes > each:
        return np.int64(0)
    return gva(id) + owner * each + start if start <= each - size_bytes else np.int64(0)


@compiled
def array(rank: int, shape: Any, dtype: Any, offset: int = 0, id: int = 0) -> np.ndarray[Any, Any]:
    """An array on the memory of that rank, from `offset` bytes on; no copy.

    Empty (`size` 0) if not all of it lies in that memory, or the rank is on another host. An empty array has no memory
    at all: whoever stores into it without having looked at its size crashes, and writes into nobody's memory.
    """
    nowhere = carray(pointer_to(np.uint64(0)), shape, dtype)
    count = count_of(shape, symmetric_size(id) // nowhere.itemsize)
    place = np.int64(0) if count < 0 else _place(rank, offset, count * nowhere.itemsize, id)
    if place == 0 or is_far(rank, id):
        return nowhere[:0]
    return carray(pointer_to(np.uint64(place)), shape, dtype)[:]


@compiled
def copy_ub2gm(target_address: int, source: Any, size_bytes: int) -> bool:
    """From an array of the kernel, which must be contiguous, to a global address.

    False if that is on another host that could not be reached.
    """
    require_block(source)
    return copy_between(target_address, source.ctypes.data, size_bytes)


@compiled
def copy_gm2ub(target: Any, source_address: int, size_bytes: int) -> bool:
    """From a global address to an array of the kernel, which must be contiguous.

    False if that is on another host that could not be reached.
    """
    require_block(target)
    return copy_between(target.ctypes.data, source_address, size_bytes)


@compiled
def put(rank: int, offset: int, source: Any, id: int = 0) -> bool:
    """The whole array, element by element in C order, to `offset` in the memory of that rank.

    The bytes are there when it returns True. False, and nothing is written, if it does not all lie in that memory; also
    if the rank is on another host that could not be reached. A strided array is packed first.
    """
    size_bytes = bytes_of(source)
    place = _place(rank, offset, size_bytes, id)
    if place == 0:
        return False
    block = packed(source)
    return copy_between(place, block.ctypes.data, size_bytes)


@compiled
def get(target: Any, rank: int, offset: int, id: int = 0) -> bool:
    """Fills the whole array, in C order, from `offset` in the memory of that rank.

    False, and the array is as it was, if that does not all lie in that memory; False, too, if the rank is on another
    host that could not be reached, and then a part of it may have come.

    A strided array gets it from a packed one.
    """
    size_bytes = bytes_of(target)
    place = _place(rank, offset, size_bytes, id)
    if place == 0:
        return False
    block = packed_alike(target)
    if not copy_between(block.ctypes.data, place, size_bytes):
        return False
    unpack(target, block)
    return True
