"""A rank of a symmetric heap, step by step: the target of `Cluster` in the tests of Share Memory.

Every function is one step; state is the process's own. A worker's rank is its index in the cluster.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from typing import Any

import memfabric_hybrid as mf
from memfabric_hybrid import _native, shm
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.shm.share_memory import ShareMemory
from support.pause_points import hold_at as hold_at
from support.pause_points import release_at as release_at
from support.pause_points import wait_until_held as wait_until_held
from support.threads import wait_until

MIB = 1 << 20

heaps: dict[int, shm.ShareMemory] = {}
exits: list[int] = []  # statuses that exit handlers were given
background: dict[str, Any] = {}  # what a thread started by `begin_thread` returned


def rank() -> int:
    return int(os.environ["MF_WORKER_INDEX"])


def enter(store_url: str, world_size: int, **settings: Any) -> tuple[int, str]:
    """`shm.initialize` with the given fields of ShmConfig: (code, last error)."""
    config = shm.ShmConfig()
    config.init_timeout = config.create_timeout = config.operation_timeout = 20
    for name, value in settings.items():
        setattr(config, name, value)
    code = shm.initialize(store_url, world_size, rank(), 0, config)
    return code, mf.get_and_clear_last_err_msg()


def create(rank_size: int, object_id: int = 0, size: int = 2 * MIB, op_type: int = 1) -> int:
    """`shm.create`; the address of the heap."""
    heaps[object_id] = shm.create(object_id, rank_size, rank(), size, op_type)
    return heaps[object_id].gva


def try_to_create(rank_size: int, object_id: int = 0, size: int = 2 * MIB) -> tuple[float, str]:
    """(when it returned, what RuntimeError said or "")."""
    try:
        create(rank_size, object_id, size)
    except RuntimeError as error:
        return time.monotonic(), str(error)
    return time.monotonic(), ""


def map_late(victim: int) -> None:
    """The next objects look for the victim's memory when it is gone."""
    original = ShareMemory._is_mapped

    def late(heap: ShareMemory, rank: int) -> bool:
        if rank == victim:
            wait_until(lambda: rank in heap._parts.pool.group.gone())
        return original(heap, rank)

    ShareMemory._is_mapped = late  # type: ignore[method-assign]  # this process is the test's own


def take_part(
    store_url: str, world_size: int, object_id: int = 0, size: int = 2 * MIB, op_type: int = 1, **settings: Any
) -> int:
    """Everything up to create; the address of the heap."""
    code, why = enter(store_url, world_size, **settings)
    assert code == 0, why
    return create(world_size, object_id, size, op_type)


def traffic() -> dict[str, int]:
    """How many bytes this process has moved, by route."""
    moved: dict[str, int] = {}
    for route, _, _, _, size in _native._traffic():
        moved[route] = moved.get(route, 0) + size
    return moved


def call(method: str, *args: Any, object_id: int = 0, **kwargs: Any) -> tuple[Any, str]:
    """Any method of the heap: (result, last error)."""
    mf.get_and_clear_last_err_msg()
    result = getattr(heaps[object_id], method)(*args, **kwargs)
    return result, mf.get_last_err_msg()


def give_up_after(operation_timeout_s: float, object_id: int = 0) -> None:
    """Later calls of the heap that ask the store wait that long for it."""
    heaps[object_id]._operation_timeout_s = operation_timeout_s


def get(name: str, object_id: int = 0) -> Any:
    return getattr(heaps[object_id], name)


def timed(method: str, *args: Any, object_id: int = 0, **kwargs: Any) -> tuple[float, Any, str]:
    """(when it returned, what it returned or the RuntimeError's text, last error)."""
    mf.get_and_clear_last_err_msg()
    try:
        result = getattr(heaps[object_id], method)(*args, **kwargs)
    except RuntimeError as error:
        result = str(error)
    return time.monotonic(), result, mf.get_last_err_msg()


def barriers(count: int, object_id: int = 0) -> list[int]:
    """The codes of that many barriers, those that are 0 left out."""
    return [code for code in (heaps[object_id].barrier() for _ in range(count)) if code]


def counted_rounds(rounds: int, object_id: int = 0) -> int:
    """Barriers between which every rank writes the round's number on every rank; how many were seen out of step."""
    heap = heaps[object_id]
    own, wrong = heap.local_rank, 0
    boards = [heap.array(peer, heap.rank_size, "u8") for peer in range(heap.rank_size)]
    for number in range(1, rounds + 1):
        for board in boards:
            board[own] = number
        assert heap.barrier() == 0, mf.get_last_err_msg()
        wrong += int((boards[own] != number).sum())
        assert heap.barrier() == 0, mf.get_last_err_msg()
    return wrong


def gathered_rounds(rounds: int, sizes: list[int], object_id: int = 0) -> int:
    """All-gathers of data that names rank and round; how many parts were wrong."""
    heap = heaps[object_id]
    wrong = 0
    for number in range(rounds):
        size = sizes[number % len(sizes)]
        parts = [_letter(peer, number, size) for peer in range(heap.rank_size)]
        wrong += heap.all_gather(parts[heap.local_rank]) != b"".join(parts)
    return wrong


def _letter(sender: int, number: int, size: int) -> bytes:
    return (f"{sender}:{number};".encode() * (size // 3 + 1))[:size]


def mixed_rounds(rounds: int, object_id: int = 0) -> int:
    """Barriers, all-gathers and subgroup calls in turn; how many results were wrong."""
    heap = heaps[object_id]
    own, wrong = heap.local_rank, 0
    half = [peer for peer in range(heap.rank_size) if peer % 2 == own % 2]
    for number in range(rounds):
        assert heap.barrier() == 0, mf.get_last_err_msg()
        mine = f"{own:4}{number:8}".encode()
        everybody = heap.all_gather(mine)
        wrong += everybody != b"".join(f"{peer:4}{number:8}".encode() for peer in range(heap.rank_size))
        key = f"half {own % 2}"
        assert heap.subgroup_barrier(key, len(half), half.index(own)) == 0, mf.get_last_err_msg()
        ours = heap.subgroup_all_gather(key, len(half), half.index(own), mine)
        wrong += ours != b"".join(f"{peer:4}{number:8}".encode() for peer in half)
    return wrong


def store_bytes(owner: int, offset: int, data: bytes, object_id: int = 0) -> None:
    """Plain stores at the global address, without a call of the library."""
    heap = heaps[object_id]
    ctypes.memmove(heap.gva + owner * heap.symmetric_size + offset, data, len(data))


def load_bytes(owner: int, offset: int, size: int, object_id: int = 0) -> bytes:
    heap = heaps[object_id]
    return ctypes.string_at(heap.gva + owner * heap.symmetric_size + offset, size)


def fetch(owner: int, offset: int, size: int, object_id: int = 0) -> bytes:
    """By `get`, from whichever host."""
    return bytes(heaps[object_id].get(owner, offset, out=bytearray(size)))


def record_exits(object_id: int = 0) -> int:
    return heaps[object_id].register_exit(exits.append)


def fail_at_exit(object_id: int = 0) -> int:
    def fail(status: int) -> None:
        exits.append(status)
        raise ValueError("this handler fails")

    return heaps[object_id].register_exit(fail)


def wait_for_exits(count: int, timeout_s: float = 10.0, seen: list[int] = exits) -> list[int]:
    deadline = time.monotonic() + timeout_s
    while len(seen) < count and time.monotonic() < deadline:
        time.sleep(0.002)
    return list(seen)


def begin_thread(name: str, method: str, *args: Any, object_id: int = 0) -> None:
    """Calls a method of the heap on a thread of its own; `end_thread` has its result."""

    def run() -> None:
        background[name] = timed(method, *args, object_id=object_id)

    background[name] = threading.Thread(target=run)
    background[name].start()
    background[f"{name} thread"] = background[name]


def end_thread(name: str, timeout_s: float = 20.0) -> Any:
    background[f"{name} thread"].join(timeout_s)
    return background[name]


def destroy(object_id: int = 0) -> int:
    return heaps.pop(object_id).destroy()


def uninitialize() -> None:
    """Everything off, as the library does it; what tests hold is dropped."""
    heaps.clear()
    exits.clear()
    background.clear()
    shm.uninitialize()
    mf.uninitialize()


def serve_store(store_url: str) -> None:
    """Runs the store, and is no rank."""
    assert mf.create_config_store(store_url) == 0, mf.get_last_err_msg()


def own_key(key: str, object_id: int = 0) -> None:
    """As this rank's, for as long as it lives."""
    heaps[object_id]._values._store.set(key, b"another rank's", deadline=Deadline(20), ephemeral=True)


def declare_gone_soon(rank: int, object_id: int = 0) -> None:
    """Another thread will say that the rank is gone, as the store's thread would."""
    threading.Timer(0.2, lambda: heaps[object_id]._declare_gone(rank, "the store says so")).start()


def release_soon(point: str) -> None:
    """Another thread will let those go on that wait there, while this one makes the next call."""
    threading.Timer(0.3, _native._release_at, [point]).start()


# ---- kernels --------------------------------------------------------------------------------------------------------


def run_kernel(library: str, name: str, *arguments: int) -> int | None:
    """A kernel of `kernels.cpp` (compiled as `library`) or, for library "numba", of `numba_kernels`."""
    if library == "numba":
        from support import numba_kernels

        result = getattr(numba_kernels, name)(*arguments)
        return None if result is None else int(result)
    function = getattr(ctypes.CDLL(library), name)
    function.argtypes = [ctypes.c_uint32, *[ctypes.c_int64] * (len(arguments) - 1)]
    function.restype = ctypes.c_int64
    return int(function(*arguments))


def kernel_identity(library: str, object_id: int = 0) -> list[int]:
    """What a kernel knows: rank, rank size, symmetric size, gva, context address and size, address of rank 0."""
    import numpy as np

    result = np.zeros(6, np.uint64)
    if library == "numba":
        from support import numba_kernels

        first = numba_kernels.kernel_identity(object_id, result)
    else:
        function = ctypes.CDLL(library).kernel_identity
        function.argtypes, function.restype = [ctypes.c_uint32, ctypes.c_void_p], ctypes.c_uint64
        first = function(object_id, result.ctypes.data)
    return [*map(int, result), int(first)]


def count_as_host(name: str) -> None:
    """From now on this process counts as being on that host."""
    os.environ["MF_HOST_IDENTITY"] = name
