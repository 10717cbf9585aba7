"""What kernels know about the objects of their process, read from the native table at its fixed address.

The layout is that of `native/collectives/device_table.h`.
"""

from __future__ import annotations

import numpy as np

from memfabric_hybrid import _native
from memfabric_hybrid.device.compiled import compiled, inlined
from memfabric_hybrid.device.words import call_copy, loader, move_bytes

NO_RANK = 0xFFFFFFFF  # what `rank()` is without such an object
_TABLE = _native.DEVICE_TABLE_ADDRESS
_ENTRY_BYTES = 64
_OBJECTS = _native.DEVICE_OBJECTS
_RANK, _RANK_SIZE, _CONTEXT_SIZE, _GVA, _SYMMETRIC_SIZE, _CONTEXT = 4, 8, 12, 16, 24, 32
_DEPARTURES, _DECLARED = 40, 48

_ROUTES = _native.DEVICE_ROUTES_ADDRESS
_COPY, _IS_FAR = 8, 16
_MAX_RANKS = _native.MAX_RANKS

_load_i8 = loader(8)
_load_i32 = loader(32)
_load_i64 = loader(64)


@inlined
def _entry(id: int) -> int:
    """The address of the object's entry; 0 if this process has no such object."""
    number = np.uint64(id)
    if number >= np.uint64(_OBJECTS):
        return np.uint64(0)
    entry = np.uint64(_TABLE) + number * np.uint64(_ENTRY_BYTES)
    return entry if _load_i32(entry) != 0 else np.uint64(0)


@inlined
def _number(id: int, field: int) -> int:
    entry = _entry(id)
    return np.int64(0) if entry == 0 else _load_i64(entry + np.uint64(field))


@compiled
def rank(id: int = 0) -> int:
    """This process's rank in the object; NO_RANK without such an object."""
    entry = _entry(id)
    return np.int64(NO_RANK) if entry == 0 else np.int64(np.uint32(_load_i32(entry + np.uint64(_RANK))))


@compiled
def rank_size(id: int = 0) -> int:
    """How many ranks the object has; 0 without such an object."""
    entry = _entry(id)
    return np.int64(0) if entry == 0 else np.int64(np.uint32(_load_i32(entry + np.uint64(_RANK_SIZE))))


@compiled
def symmetric_size(id: int = 0) -> int:
    """Bytes of each rank's memory; 0 without such an object."""
    return _number(id, _SYMMETRIC_SIZE)


@compiled
def gva(id: int = 0) -> int:
    """Where the memory of rank 0 begins; 0 without such an object."""
    return _number(id, _GVA)


@compiled
def context_size(id: int = 0) -> int:
    """Bytes of what `ShareMemory.set_context` was given on this rank; 0 before that."""
    entry = _entry(id)
    return np.int64(0) if entry == 0 else np.int64(np.uint32(_load_i32(entry + np.uint64(_CONTEXT_SIZE))))


@compiled
def context_address(id: int = 0) -> int:
    """Where the context is; 0 if there is none."""
    return np.int64(0) if context_size(id) == 0 else _number(id, _CONTEXT)


@compiled
def object_at(address: int) -> int:
    """The id of the object in which the address lies; -1 if it is none's."""
    place = np.int64(address)
    for id in range(_OBJECTS):
        begin = gva(id)
        if begin != 0 and begin <= place < begin + symmetric_size(id) * rank_size(id):
            return id
    return -1


@compiled
def rank_is_gone(word: int) -> bool:
    """Whether the address lies in an object that has lost a rank: what one waits for there may never come."""
    id = object_at(word)
    if id < 0:
        return False
    departures, declared = np.uint64(_number(id, _DEPARTURES)), np.uint64(_number(id, _DECLARED))
    return departures != 0 and (_load_i32(departures) != 0 or _load_i32(declared) != 0)


@compiled
def is_far(rank: int, id: int = 0) -> bool:
    """Whether that rank is on another host: its memory can be copied (`put`, `get`), not addressed."""
    owner = np.int64(rank)
    if _load_i32(np.uint64(_ROUTES)) == 0 or owner < 0 or owner >= rank_size(id):
        return False
    return _load_i8(np.uint64(_ROUTES) + np.uint64(_IS_FAR + np.int64(id) * _MAX_RANKS + owner)) != 0


@compiled
def is_far_address(place: int) -> bool:
    """Whether the address lies in the memory of such a rank."""
    if _load_i32(np.uint64(_ROUTES)) == 0:
        return False
    id = object_at(place)
    return id >= 0 and is_far(int((np.int64(place) - gva(id)) // symmetric_size(id)), id)


@compiled
def copy_between(target: int, source: int, size_bytes: int) -> bool:
    """Any two addresses, of whichever host. False, with a line in the log, if another host could not be reached."""
    if is_far_address(target) or is_far_address(source):
        function = np.uint64(_load_i64(np.uint64(_ROUTES + _COPY)))
        return call_copy(function, np.uint64(target), np.uint64(source), np.uint64(size_bytes)) == 0
    move_bytes(np.uint64(target), np.uint64(source), np.uint64(size_bytes))
    return True


@compiled
def address(rank: int, offset: int = 0, id: int = 0) -> int:
    """The global address of `offset` in the memory of that rank; 0 if the object or the place does not exist.

    Of a rank on another host (`is_far`) it may be copied from and to, and nothing else.
    """
    size = symmetric_size(id)
    if rank < 0 or rank >= rank_size(id) or offset < 0 or offset >= size:
        return np.int64(0)
    return gva(id) + np.int64(rank) * size + np.int64(offset)
