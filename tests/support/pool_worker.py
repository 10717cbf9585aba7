"""A member of a cluster, step by step: the target of `Cluster` in the tests of Big Memory, and used by them directly.

Every function is one step; state is the process's own. Steps that must work raise with the last error when they do not.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from typing import Any

import numpy as np

import memfabric_hybrid as mf
from memfabric_hybrid import _native, bm
from memfabric_hybrid.transports import ucx_library
from support import copy_field
from support.held_gil import hold_gil as hold_gil
from support.pause_points import hold_at as hold_at
from support.pause_points import let_pass_at as let_pass_at
from support.pause_points import release_at as release_at
from support.pause_points import wait_until_held as wait_until_held
from support.threads import Beside

MIB = 1 << 20
HOST, DEVICE = bm.BmMemType.HOST, bm.BmMemType.DEVICE

pools: dict[int, bm.BigMemory] = {}
events: list[tuple[float, int, str]] = []  # what group-event handlers were told: (when, rank, name of the event)
copiers: list[Copier] = []
joining: dict[int, Beside[int]] = {}


def enter(store_url: str, world_size: int = 4, **settings: Any) -> tuple[int, str]:
    """`bm.initialize` with the given fields of BmConfig: (code, last error)."""
    config = bm.BmConfig()
    config.init_timeout = config.create_timeout = config.operation_timeout = 20
    for name, value in settings.items():
        setattr(config, name, value)
    mf.get_and_clear_last_err_msg()
    code = bm.initialize(store_url, world_size, 0, config)
    return code, mf.get_and_clear_last_err_msg()


def create(object_id: int = 0, dram: int = 2 * MIB, hbm: int = 0, **options: Any) -> None:
    """`bm.create2`; the maxima are the local sizes unless given."""
    options = {"max_dram_size": dram, "max_hbm_size": hbm, **options}
    pools[object_id] = bm.create2(object_id, dram, local_hbm_size=hbm, **options)


def join(object_id: int = 0) -> None:
    must(pools[object_id].join())


def begin_join(object_id: int = 0) -> None:
    """On a thread of its own; `end_join` waits for it."""
    joining[object_id] = Beside(pools[object_id].join)


def end_join(object_id: int = 0) -> None:
    must(joining.pop(object_id).result())


def take_part(
    store_url: str, world_size: int = 4, object_id: int = 0, settings: dict[str, Any] | None = None, **options: Any
) -> int:
    """Everything up to join, with fields of BmConfig and options of `create`; the rank."""
    code, why = enter(store_url, world_size, **(settings or {}))
    assert code == 0, why
    create(object_id, **options)
    join(object_id)
    return rank()


def must(code: int) -> None:
    assert code == 0, f"{code}: {mf.get_and_clear_last_err_msg()}"


def update_store_url(store_url: str) -> int:
    return bm.update_store_url(store_url)


def rank() -> int:
    return bm.bm_rank_id()


def call(method: str, *args: Any, object_id: int = 0, **kwargs: Any) -> tuple[Any, str]:
    """Any method of the pool: (result, last error)."""
    mf.get_and_clear_last_err_msg()
    result = getattr(pools[object_id], method)(*args, **kwargs)
    return result, mf.get_last_err_msg()


def destroy(object_id: int = 0) -> None:
    pools.pop(object_id).destroy()


def uninitialize() -> None:
    """Everything off, as the library does it; what tests hold is dropped."""
    pools.clear()
    events.clear()
    bm.uninitialize()
    mf.uninitialize()


# ---- memory ---------------------------------------------------------------------------------------------------------


def address(owner: int, offset: int = 0, mem_type: int = HOST, object_id: int = 0) -> int:
    start = pools[object_id].peer_rank_ptr(owner, mem_type)
    assert start, mf.get_last_err_msg()
    return start + offset


def load(owner: int, offset: int, size: int, mem_type: int = HOST, object_id: int = 0) -> bytes:
    """Plain loads at the global address, without a call of the library."""
    return ctypes.string_at(address(owner, offset, mem_type, object_id), size)


def store(owner: int, offset: int, data: bytes, mem_type: int = HOST, object_id: int = 0) -> None:
    """Plain stores at the global address, without a call of the library."""
    ctypes.memmove(address(owner, offset, mem_type, object_id), data, len(data))


def write(owner: int, offset: int, data: bytes, object_id: int = 0) -> tuple[int, str]:
    """`copy_data` from plain memory: (code, last error)."""
    source = ctypes.create_string_buffer(data, len(data))
    target = address(owner, offset, HOST, object_id)
    mf.get_and_clear_last_err_msg()
    code = pools[object_id].copy_data(ctypes.addressof(source), target, len(data), bm.BmCopyType.H2G)
    return code, mf.get_last_err_msg()


def read(owner: int, offset: int, size: int, object_id: int = 0) -> tuple[int, bytes]:
    """`copy_data` into plain memory: (code, bytes)."""
    target = ctypes.create_string_buffer(size)
    source = address(owner, offset, HOST, object_id)
    code = pools[object_id].copy_data(source, ctypes.addressof(target), size, bm.BmCopyType.G2H)
    return code, target.raw


def put_and_get(rank: int, object_id: int = 0) -> None:
    """As programs write it that like exceptions."""
    pool = pools[object_id]
    pool.wait_for([rank])
    assert rank in pool.ranks
    rows = np.arange(12.0).reshape(3, 4)
    pool.put(rows, rank, 4096)
    np.testing.assert_array_equal(pool.get(rank, 4096, out=np.empty_like(rows)), rows)
    pool.put(b"words", rank)
    assert pool.get(rank, out=bytearray(5)) == b"words"
    assert bytes(pool.array(rank, 5, "u1")) == b"words"


def view(object_id: int = 0) -> list[int]:
    """The ranks that can be reached now."""
    reached = [owner for owner in range(pools[object_id].capacity) if read(owner, 0, 1, object_id)[0] == 0]
    mf.get_and_clear_last_err_msg()  # of those that were not
    return reached


def known(object_id: int = 0) -> list[int]:
    """The ranks that this process knows of; nobody is asked."""
    return pools[object_id]._pool.group.view()[1]


def ranks(object_id: int = 0) -> list[int]:
    """As the program asks."""
    return pools[object_id].ranks


def wait_for(expected: list[int], timeout_s: float, object_id: int = 0) -> None:
    """As the program does."""
    pools[object_id].wait_for(expected, timeout_s)


def wait_for_view(expected: list[int], timeout_s: float = 10.0, object_id: int = 0) -> float:
    """Seconds until exactly the expected ranks can be reached."""
    began = time.monotonic()
    while (seen := view(object_id)) != expected:
        assert time.monotonic() - began < timeout_s, f"after {timeout_s:g} s: {seen}, expected {expected}"
        time.sleep(0.002)
    return time.monotonic() - began


def exercise(ranks: list[int], seed: int = 2, object_id: int = 0) -> dict[str, str]:
    """Every kind of copy between these ranks, checked as it goes; what each place must hold then (`Field.digests`)."""
    field = copy_field.Field(pools[object_id], ranks)
    field.exercise(seed)
    return field.digests()


def digest(owner: int, mem_type: int = HOST, object_id: int = 0) -> str:
    """Of the rank's memory, by plain loads."""
    return copy_field.digest(load(owner, 0, copy_field.SIZE, mem_type, object_id))


def route(owner: int, object_id: int = 0) -> tuple[str, str]:
    return tuple(pools[object_id].route(owner))


def set_environment(name: str, value: str) -> None:
    os.environ[name] = value


def ucx_version() -> str:
    """Of the UCX that this process has."""
    return ucx_library.status().version


def traffic(route: str) -> int:
    """How many bytes of payload this process has moved that way."""
    return sum(size for way, _, _, _, size in _native._traffic() if way == route)


def fill_own(byte: int) -> None:
    """Our DRAM, by plain stores; also while we do not take part."""
    pool = pools[0]
    ctypes.memset(pool._slot_address(pool.local_rank, 0), byte, pool._allocated(pool.local_rank, 0))


def own_bytes() -> set[int]:
    """Which ones there are in our DRAM; also while we do not take part."""
    pool = pools[0]
    return set(ctypes.string_at(pool._slot_address(pool.local_rank, 0), pool._allocated(pool.local_rank, 0)))


# ---- watching -------------------------------------------------------------------------------------------------------


def record_events(object_id: int = 0) -> None:
    pools[object_id].set_group_event_handler(lambda rank, event: events.append((time.monotonic(), rank, event.name)))


def wait_for_events(count: int, timeout_s: float = 10.0) -> list[tuple[int, str]]:
    """What the handlers were told so far, once it is at least `count` things."""
    deadline = time.monotonic() + timeout_s
    while len(events) < count and time.monotonic() < deadline:
        time.sleep(0.002)
    return [(rank, name) for _, rank, name in events]


def company() -> list[int]:
    """The others as the handlers were told: who joined and has not left since."""
    last = {rank: name for _, rank, name in list(events)}
    return sorted(rank for rank, name in last.items() if name == "JOIN_EVENT")


def wait_for_company(expected: list[int], timeout_s: float = 20.0) -> float:
    """Seconds until exactly the expected others are there."""
    began = time.monotonic()
    while (seen := company()) != expected:
        assert time.monotonic() - began < timeout_s, f"after {timeout_s:g} s: {seen}, expected {expected}"
        time.sleep(0.002)
    return time.monotonic() - began


def footprint() -> dict[str, Any]:
    """What this process holds: descriptors, mapped memory files, threads (by name, or "native")."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        mapped = sum("/memfd:" in line for line in maps)
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "memory files": mapped,
        "threads": sorted(names.get(int(task), "native") for task in os.listdir("/proc/self/task")),
    }


# ---- copying all the time -------------------------------------------------------------------------------------------


class Copier(threading.Thread):
    """Writes to and reads back from other ranks without a pause, in a lane of their memory that is its own."""

    SIZE = 16 * 1024

    def __init__(self, pool: bm.BigMemory, lane: int, targets: list[int]) -> None:
        super().__init__(name=f"copier {lane}", daemon=True)  # a failed test must not hang
        self.changes: dict[int, list[tuple[float, int]]] = {target: [] for target in targets}  # when, new code
        self.rounds = dict.fromkeys(targets, 0)
        self.longest_gap_s = 0.0
        self.wrong: list[str] = []
        self._pool = pool
        self._lane = lane
        self._stopping = threading.Event()

    def run(self) -> None:
        source, back = ctypes.create_string_buffer(self.SIZE), ctypes.create_string_buffer(self.SIZE)
        number = 0
        last_end = time.monotonic()
        while not self._stopping.is_set():
            for target in self.rounds:
                number += 1
                ctypes.memset(source, number % 255 + 1, self.SIZE)
                place = self._pool.peer_rank_ptr(target, HOST) + self._lane * self.SIZE
                code = self._pool.copy_data(ctypes.addressof(source), place, self.SIZE, bm.BmCopyType.H2G)
                if code == 0:
                    code = self._pool.copy_data(place, ctypes.addressof(back), self.SIZE, bm.BmCopyType.G2H)
                    if code == 0 and source.raw != back.raw:
                        self.wrong.append(f"round {number}: rank {target} gave back other bytes than it was given")
                now = time.monotonic()
                self.longest_gap_s = max(self.longest_gap_s, now - last_end)
                last_end = now
                self.rounds[target] += code == 0
                if not self.changes[target] or self.changes[target][-1][1] != code:
                    self.changes[target].append((now, code))

    def stop(self) -> None:
        self._stopping.set()
        self.join()


def start_copying(targets: list[int], lane: int, object_id: int = 0) -> None:
    copiers.append(Copier(pools[object_id], lane, targets))
    copiers[-1].start()


def copied() -> list[dict[str, Any]]:
    """What the copiers have seen so far, while they go on."""
    return [
        {
            "changes": {target: list(changes) for target, changes in copier.changes.items()},
            "rounds": dict(copier.rounds),
            "longest_gap_s": copier.longest_gap_s,
            "wrong": list(copier.wrong),
        }
        for copier in copiers
    ]


def wait_for_rounds(target: int, count: int, timeout_s: float = 30.0) -> None:
    """So many more rounds to that rank have worked, and the last one did."""
    copier = next(one for one in copiers if target in one.rounds)
    wanted, deadline = copier.rounds[target] + count, time.monotonic() + timeout_s
    while copier.rounds[target] < wanted or copier.changes[target][-1][1] != 0:
        assert time.monotonic() < deadline, f"{copier.rounds[target]} rounds, {copier.changes[target][-3:]}"
        time.sleep(0.002)


def wait_for_code(target: int, codes: list[int], timeout_s: float = 30.0) -> None:
    """Copies to that rank end with one of these."""
    copier = next(one for one in copiers if target in one.rounds)
    deadline = time.monotonic() + timeout_s
    while not copier.changes[target] or copier.changes[target][-1][1] not in codes:
        assert time.monotonic() < deadline, f"{copier.changes[target][-3:]}"
        time.sleep(0.002)


def stop_copying() -> list[dict[str, Any]]:
    for copier in copiers:
        copier.stop()
    seen = copied()
    copiers.clear()
    return seen
