"""Every call of a symmetric heap, made by all ranks together: the target of the tests that count ranks.

Each function is a part of the tour; it returns what was not as documented, so nothing on success.
"""

from __future__ import annotations

import ctypes
import struct

import numpy as np

import memfabric_hybrid as mf
from memfabric_hybrid import _native, bm, shm
from support.heap_worker import *  # noqa: F403  (the steps of a worker are the same)
from support.heap_worker import heaps, rank, wait_for_exits

MIB = 1 << 20
LARGEST = 65536
ENTRY = struct.Struct("<IIIIQQQ24x")  # of the kernels' table: present, rank, rank size, context size, gva, …


def _expect(complaints: list[str], what: str, got: object, wanted: object) -> None:
    if got != wanted:
        complaints.append(
            f"{what}: {str(got)[:200]} instead of {str(wanted)[:200]}; last error: {mf.get_last_err_msg()}"
        )


def tour_of_properties(object_id: int = 0) -> list[str]:
    heap, found = heaps[object_id], list[str]()
    _expect(found, "local_rank", heap.local_rank, rank())
    _expect(found, "rank_size", heap.rank_size, len({*heap.all_gather(rank().to_bytes(2, "little"))[::2]}))
    _expect(found, "symmetric_size", heap.symmetric_size, 2 * MIB)
    _expect(found, "gva", len({*np.frombuffer(heap.all_gather(heap.gva.to_bytes(8, "little")), np.uint64)}), 1)
    mapped = int(shm.ShmDataOpType.MTE | shm.ShmDataOpType.SDMA)
    _expect(found, "query_support_data_operation", heap.query_support_data_operation(), 1)
    for peer in range(heap.rank_size):
        _expect(found, f"reach({peer})", heap.reach(peer), mapped)
        _expect(found, f"topology_can_reach({peer})", heap.topology_can_reach(peer, 0), 0)
    return found


def tour_of_memory(object_id: int = 0) -> list[str]:
    """Everybody writes into everybody's memory, by address and as an array, and reads what the others wrote."""
    heap, found = heaps[object_id], list[str]()
    own, size = heap.local_rank, heap.rank_size
    for peer in range(size):
        heap.array(peer, size, np.uint32)[own] = 1000 * peer + own
        word = ctypes.c_uint32(7000 * peer + own)
        ctypes.memmove(heap.gva + peer * heap.symmetric_size + 8192 + 4 * own, ctypes.byref(word), 4)
    _expect(found, "barrier", heap.barrier(), 0)
    _expect(found, "array", list(heap.array(own, size, np.uint32)), [1000 * own + peer for peer in range(size)])
    there = heap.array(own, size, np.uint32, offset=8192)
    _expect(found, "gva", list(there), [7000 * own + peer for peer in range(size)])
    _expect(found, "barrier", heap.barrier(), 0)
    return found


def tour_of_collectives(object_id: int = 0) -> list[str]:
    heap, found = heaps[object_id], list[str]()
    own, size = heap.local_rank, heap.rank_size
    for length in (1, 8, 4097, LARGEST):
        letters = [bytes([(peer * 7 + length) % 251]) * length for peer in range(size)]
        _expect(found, f"all_gather of {length}", heap.all_gather(letters[own]) == b"".join(letters), True)
        _expect(found, "barrier", heap.barrier(), 0)
    pair = [peer for peer in (own - own % 2, own - own % 2 + 1) if peer < size]
    backwards = list(reversed(range(size)))  # a subgroup may count its members in another order
    for key, members in ((f"pair {own // 2}", pair), ("everybody", backwards), (f"alone {own}", [own])):
        place = members.index(own)
        said = [f"{peer} in {key}".encode().ljust(24) for peer in members]
        for _ in range(3):
            _expect(found, f"subgroup_barrier {key}", heap.subgroup_barrier(key, len(members), place), 0)
            got = heap.subgroup_all_gather(key, len(members), place, said[place])
            _expect(found, f"subgroup_all_gather {key}", got, b"".join(said))
    return found


def tour_of_contexts(object_id: int = 0) -> list[str]:
    """Each rank has a context of its own where its kernels look for it: in the table of the process."""
    heap, found = heaps[object_id], list[str]()
    for length in (LARGEST, 1 + heap.local_rank):
        context = bytes([heap.local_rank]) * length
        _expect(found, "set_context", heap.set_context(context), 0)
        entry = ctypes.string_at(_native.DEVICE_TABLE_ADDRESS + ENTRY.size * object_id, ENTRY.size)
        *identity, address = ENTRY.unpack(entry)
        wanted = [1, heap.local_rank, heap.rank_size, length, heap.gva, heap.symmetric_size]
        _expect(found, "table of kernels", identity, wanted)
        _expect(found, "context", ctypes.string_at(address, length) == context, True)
    return found


def tour_of_values(object_id: int = 0) -> list[str]:
    heap, found = heaps[object_id], list[str]()
    size = heap.rank_size
    value = heap.atomic_alloc_value(size)
    everybodys = np.frombuffer(heap.all_gather(value.to_bytes(4, "little", signed=True)), np.int32)
    _expect(found, "values", sorted(map(int, everybodys)), list(range(size)))
    _expect(found, "one value too many", heap.atomic_alloc_value(size), -2002)
    _expect(found, "barrier", heap.barrier(), 0)
    _expect(found, "atomic_release_value", heap.atomic_release_value(value), 0)
    _expect(found, "released twice", heap.atomic_release_value(value), -2007)
    _expect(found, "barrier", heap.barrier(), 0)
    return found


def tour_of_exits(object_id: int = 0) -> list[str]:
    """The last rank makes everybody's handler run."""
    heap, found = heaps[object_id], list[str]()
    statuses: list[int] = []
    _expect(found, "register_exit", heap.register_exit(statuses.append), 0)
    _expect(found, "barrier", heap.barrier(), 0)
    if heap.local_rank == heap.rank_size - 1:
        _expect(found, "global_exit", heap.global_exit(42), 0)
    _expect(found, "exits", wait_for_exits(1, seen=statuses), [42])
    _expect(found, "barrier", heap.barrier(), 0)
    return found


pools: list[bm.BigMemory] = []


def pool_beside(store_url: str, world_size: int) -> str:
    """A pool of Big Memory in this process, whose id is the heap's too."""
    config = bm.BmConfig()
    config.auto_ranking, config.rank_id, config.start_store = False, rank(), False
    if bm.initialize(store_url, world_size, 0, config) != 0:
        return mf.get_last_err_msg()
    pool = bm.create(0, 2 * MIB)
    if pool.join() != 0:
        return mf.get_last_err_msg()
    pools.append(pool)
    return "" if heaps[0].barrier() == 0 else mf.get_last_err_msg()


def pool_still_works() -> str:
    pool, letter = pools[-1], np.full(100, rank(), np.uint8)
    peer = pool.peer_rank_ptr(1 - rank(), bm.BmMemType.HOST)
    code = pool.copy_data(letter.ctypes.data, peer, 100, bm.BmCopyType.H2G)
    return "" if code == 0 else mf.get_last_err_msg()


def end_pool() -> None:
    """After everybody's copies: whoever destroys it first is gone for the others."""
    pools.pop().destroy()
    bm.uninitialize()


def tour(object_id: int = 0) -> list[str]:
    """Everything, then nothing: the object is destroyed."""
    mf.get_and_clear_last_err_msg()
    found = [
        complaint
        for part in (
            tour_of_properties, tour_of_memory, tour_of_collectives, tour_of_contexts, tour_of_values, tour_of_exits,
        )
        for complaint in part(object_id)
    ]  # fmt: skip
    heap = heaps.pop(object_id)
    _expect(found, "barrier", heap.barrier(), 0)
    _expect(found, "destroy", heap.destroy(), 0)
    _expect(found, "destroy again", heap.destroy(), -2000)
    return found
