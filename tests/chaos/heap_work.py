"""The Share Memory of a worker: a heap over all slots, made anew whenever it is broken, and what happens in it.

All ranks make the same calls in the same order: the first all-gather of a heap makes a number that nobody chose, and
that number decides what follows.
"""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections.abc import Callable

import numpy as np

from chaos.call_checker import RAISED, CallChecker, Work
from chaos.heap_companions import SubgroupWork, ValueWork, gather_code
from chaos.patterns import Pattern, difference
from chaos.plan import (
    CREATE_TIMEOUT_S,
    FAREWELL_S,
    HEAP,
    HEAP_BYTES,
    HEAP_ZONE_BYTES,
    INIT_TIMEOUT_S,
    OPERATION_TIMEOUT_S,
    SLOTS,
)
from chaos.shared_state import SharedState
from chaos.sizes import some_size
from memfabric_hybrid import errors, shm

TICKET_BYTES = 16


class HeapWork(Work):
    """One rank of the heap, on one thread; its companions live as long as the heap does."""

    def __init__(self, slot: int, store_url: str, state: SharedState, checker: CallChecker, seed: str) -> None:
        super().__init__("heap", checker)
        self.heap: shm.ShareMemory | None = None
        self._slot = slot
        self.store_url = store_url
        self._state = state
        self._seed = seed
        self._random = random.Random(seed)
        self._entered = False
        self._sequence = 0

    def step(self) -> None:
        if not self._entered:
            self._enter()
        elif self._create():
            broken = threading.Event()
            companions = [
                kind(self._heap, self._slot, self._state, self._checker, f"{self._seed}:{kind.__name__}", broken)
                for kind in (SubgroupWork, ValueWork)
            ]
            for companion in companions:
                companion.start()
            self._live()
            broken.set()
            for companion in companions:
                companion.stopping.set()
                companion.join()
            if not self.stopping.is_set():
                self._destroy()
        else:
            self.pause(self._random.uniform(0, 0.2))

    @property
    def _heap(self) -> shm.ShareMemory:
        assert self.heap is not None
        return self.heap

    def _enter(self) -> None:
        config = shm.ShmConfig()
        config.start_store = False
        config.init_timeout, config.create_timeout = INIT_TIMEOUT_S, CREATE_TIMEOUT_S
        config.operation_timeout = OPERATION_TIMEOUT_S
        # -2006: the one who had the rank before us is still known.
        code = self.calls.make(
            "shm.initialize",
            INIT_TIMEOUT_S,
            (-2004, -2006),
            lambda: shm.initialize(self.store_url, SLOTS, self._slot, 0, config),
        )
        self._entered = code == 0
        if not self._entered:
            self.pause(0.2)

    def _create(self) -> bool:
        def create() -> int:
            try:
                self.heap = shm.create(0, SLOTS, self._slot, HEAP_BYTES)
            except RuntimeError:
                return RAISED
            return 0

        created = self.calls.make("shm.create", CREATE_TIMEOUT_S, (RAISED,), create) == 0
        if not created:
            self.calls.note(f"no heap: {self.calls.sentence}")
        return created

    def _destroy(self) -> None:
        heap, self.heap = self._heap, None
        self._state.drop_values(self._slot)
        self.calls.make("heap destroy", FAREWELL_S, (), lambda: heap.destroy())

    def _live(self) -> None:
        """Rounds until one fails for good."""
        own = self._random.randbytes(TICKET_BYTES)
        gathered = self._gather(own, "heap all_gather")
        if gathered is None:
            self.calls.note("heap broken before its first round")
            return
        name = hashlib.sha256(gathered).hexdigest()[:12]
        together = random.Random(name)
        rounds = 0
        while not self.stopping.is_set():
            if together.random() < 0.5:
                worked = self._barrier()
            else:
                worked = self._gather_round(rounds, together.randint(16, 4000))
            if not worked:
                break
            rounds += 1
            self._store_and_load()
            if all(self._heap.reach(rank) for rank in range(SLOTS)):
                self.calls.reached["heap", self._slot] = time.monotonic()
        # The driver compares these: a round succeeds for all who live or for none.
        self.calls.note(f"HEAP {name} ended after {rounds} rounds{' by order' if self.stopping.is_set() else ''}")

    def _patiently(self, kind: str, function: Callable[[], int]) -> bool:
        """A time-out means that the call has not happened: the same round again. Everything else ends the heap."""
        while True:
            code = self.calls.make(kind, OPERATION_TIMEOUT_S, (-2004, -2014), function)
            if code != -2004:
                return code == 0
            if self.stopping.is_set():
                return False

    def _barrier(self) -> bool:
        return self._patiently("heap barrier", lambda: self._heap.barrier())

    def _gather(self, data: bytes, kind: str) -> bytes | None:
        result: list[bytes] = []

        def gather() -> int:
            try:
                result.append(self._heap.all_gather(data))
            except RuntimeError as failure:
                return gather_code(failure)
            return 0

        return result[0] if self._patiently(kind, gather) else None

    def _gather_round(self, number: int, size: int) -> bool:
        def part(rank: int) -> bytes:
            return (f"{rank} {number} ".encode() * size)[:size]

        gathered = self._gather(part(self._slot), "heap all_gather")
        if gathered is not None and gathered != b"".join(map(part, range(SLOTS))):
            self.calls.violation(f"all_gather of round {number}, {size} bytes each, gave wrong bytes")
        return gathered is not None

    def _store_and_load(self) -> None:
        """Our zone at somebody's, and anybody's zone at ours; memory of the dead stays valid while the array lives."""
        rank = self._random.randrange(SLOTS)
        size = some_size(self._random, HEAP_ZONE_BYTES)
        self._sequence += 1
        data = Pattern(HEAP, self._slot, 0, rank).block(self._sequence, 0, size)
        writer = self._random.randrange(SLOTS)
        try:
            there = self._heap.array(rank, size, np.uint8, self._slot * HEAP_ZONE_BYTES)
            here = self._heap.array(self._slot, size, np.uint8, writer * HEAP_ZONE_BYTES)
        except errors.NotConnected:
            return
        there[:] = data
        wrong = difference(data, there.copy())
        if wrong:
            self.calls.violation(f"array of the heap at rank {rank}: {wrong}")
        foreign = Pattern(HEAP, writer, 0, self._slot).foreign_bytes(here.copy())
        if foreign:
            self.calls.violation(foreign)
        self.calls.done["heap array"] += 1
