"""A member of the campaign across hosts: pool, heap and engine in one process, and one thread per other rank that moves
stamped bytes there and back by all three, without a pause; the target of `Cluster`.
"""

from __future__ import annotations

import ctypes
import random
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import memfabric_hybrid as mf
from chaos.patterns import Bytes, Pattern, difference
from host_faults.plan import KINDS, LANE, MEMORY, OPERATION_TIMEOUT_S, RANKS, SIZES, Place, Places
from memfabric_hybrid import bm, shm

ENTER_S = 30
pool: bm.BigMemory
heap: shm.ShareMemory
engine = mf.TransferEngine()
memory = np.zeros(MEMORY, np.uint8)  # the engine's
own_rank = -1
seed = ""
places: dict[int, Place] = {}
works: dict[int, Work] = {}


def must(code: int) -> None:
    assert code == 0, f"{code}: {mf.get_and_clear_last_err_msg()}"


def code_of(call: Callable[[], object]) -> int:
    """0, or that of what a call raises."""
    try:
        call()
    except mf.errors.FabricError as failure:
        return int(failure.code)
    return 0


# ---- life -----------------------------------------------------------------------------------------------------------


def serve_store(store_url: str) -> None:
    must(mf.create_config_store(store_url))


def enter(rank: int, store_url: str, address: str, choices: str) -> Place:
    """Member of the pool, with an engine; the heap needs everybody, see `create_heap`."""
    global pool, own_rank, seed
    own_rank, seed = rank, choices
    config = bm.BmConfig()
    config.init_timeout = config.create_timeout = ENTER_S
    config.operation_timeout = OPERATION_TIMEOUT_S
    config.start_store = config.auto_ranking = False
    config.rank_id = rank
    must(bm.initialize(store_url, RANKS, 0, config))
    pool = bm.create2(0, MEMORY, max_dram_size=MEMORY)
    must(pool.join())
    heap_config = shm.ShmConfig()
    heap_config.init_timeout = heap_config.create_timeout = ENTER_S
    heap_config.operation_timeout = OPERATION_TIMEOUT_S
    heap_config.start_store = False
    must(shm.initialize(store_url, RANKS, rank, 0, heap_config))
    must(engine.initialize(None, f"{address}:0", "Decode", 0))
    must(engine.register_memory(memory.ctypes.data, MEMORY))
    return Place(engine.session_id, memory.ctypes.data)


def create_heap() -> None:
    global heap
    heap = shm.create(0, RANKS, own_rank, MEMORY)


def destroy_heap() -> None:
    must(heap.destroy())


def leave() -> None:
    engine.destroy()
    heap.destroy()
    shm.uninitialize()
    pool.destroy()
    bm.uninitialize()


# ---- work -----------------------------------------------------------------------------------------------------------


class Event(NamedTuple):
    """A call that failed, or that gave back other bytes than were written (code 1)."""

    ended_at: float
    target: int
    kind: str
    took_s: float
    code: int
    sentence: str


class Work(threading.Thread):
    """Moves bytes to one other rank and back."""

    def __init__(self, target: int) -> None:
        super().__init__(name=f"work towards rank {target}", daemon=True)  # a failed test must not hang
        self.target = target
        self.rounds = dict.fromkeys(KINDS, 0)  # that worked
        self.longest_s = dict.fromkeys(KINDS, 0.0)  # of those
        self.events: list[Event] = []
        self.stopping = threading.Event()
        self._choose = random.Random(f"{seed}:{own_rank}:{target}")
        self._sequence = 0

    def run(self) -> None:
        while not self.stopping.is_set():
            for kind in KINDS:
                self._round(kind)
            self.stopping.wait(0.005)

    def _round(self, kind: str) -> None:
        self._sequence += 1
        size = self._choose.choice(SIZES)
        offset = own_rank * LANE + self._choose.randrange(LANE - size + 1)
        written = Pattern(KINDS[kind], own_rank, 0, self.target).block(self._sequence, offset, size)
        back = np.zeros(size, np.uint8)
        began = time.monotonic()
        code = self._write(kind, offset, written) or self._read(kind, offset, back)
        took_s = time.monotonic() - began
        sentence = mf.get_and_clear_last_err_msg() if code else difference(written, back)
        if code == 0 and not sentence:
            self.rounds[kind] += 1
            self.longest_s[kind] = max(self.longest_s[kind], took_s)
        else:
            self.events.append(Event(time.monotonic(), self.target, kind, took_s, code or 1, sentence))
            self.stopping.wait(0.02)

    def _write(self, kind: str, offset: int, source: Bytes) -> int:
        if kind == "pool":
            return pool.copy_data(source.ctypes.data, self._in_pool(offset), source.size, bm.BmCopyType.H2G)
        if kind == "heap":
            return code_of(lambda: heap.put(source, self.target, offset))
        place = places[self.target]
        return engine.transfer_sync_write(place.session, source.ctypes.data, place.address + offset, source.size)

    def _read(self, kind: str, offset: int, back: Bytes) -> int:
        if kind == "pool":
            return pool.copy_data(self._in_pool(offset), back.ctypes.data, back.size, bm.BmCopyType.G2H)
        if kind == "heap":
            return code_of(lambda: heap.get(self.target, offset, out=back))
        place = places[self.target]
        return engine.transfer_sync_read(place.session, back.ctypes.data, place.address + offset, back.size)

    def _in_pool(self, offset: int) -> int:
        return pool.peer_rank_ptr(self.target, bm.BmMemType.HOST) + offset


def begin(everybody: Places) -> None:
    """Works towards all others from now on."""
    places.update(everybody)
    for target in range(RANKS):
        if target != own_rank:
            works[target] = Work(target)
            works[target].start()


def progress() -> dict[int, dict[str, int]]:
    """Rounds that have worked, by target and kind."""
    return {target: dict(work.rounds) for target, work in works.items()}


def rest() -> dict[int, tuple[dict[str, int], dict[str, float], list[Event]]]:
    """Ends the work: of each target the rounds that worked, the longest of them, and what did not work."""
    for work in works.values():
        work.stopping.set()
    for work in works.values():
        work.join()
    seen = {target: (work.rounds, work.longest_s, work.events) for target, work in works.items()}
    works.clear()
    return seen


# ---- checks ---------------------------------------------------------------------------------------------------------


def foreign_bytes() -> list[str]:
    """What is in this rank's memory that its writers have not written there."""
    found = []
    in_heap = ctypes.string_at(heap.gva + own_rank * heap.symmetric_size, MEMORY)
    in_pool = ctypes.string_at(pool.peer_rank_ptr(own_rank, bm.BmMemType.HOST), MEMORY)
    for kind, content in (("pool", in_pool), ("heap", in_heap), ("engine", memory.tobytes())):
        whole = np.frombuffer(content, np.uint8)
        for writer in range(RANKS):
            lane = whole[writer * LANE : (writer + 1) * LANE]
            complaint = Pattern(KINDS[kind], writer, 0, own_rank).foreign_bytes(lane)
            if complaint:
                found.append(f"{kind} of rank {own_rank}: {complaint}")
    return found


def barrier() -> tuple[int, str]:
    return heap.barrier(), mf.get_and_clear_last_err_msg()
