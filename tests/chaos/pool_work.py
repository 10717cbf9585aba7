"""The Big Memory of a worker: its membership and pool, and threads that write patterns into everybody's memory.

`PoolHome` owns the pool. Each `PoolWork` has a lane of its own in every rank's memory: nobody else writes there.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import numpy as np

import memfabric_hybrid as mf
from chaos.call_checker import RAISED, CallChecker, CheckedCalls, Work
from chaos.patterns import Bytes, Pattern, difference
from chaos.plan import (
    BIG_BYTES,
    CREATE_TIMEOUT_S,
    INIT_TIMEOUT_S,
    LANE_BYTES,
    LANES,
    MEMORY_BYTES,
    MIXED_LANE,
    OPERATION_TIMEOUT_S,
    POOL,
    SLOTS,
    WORLD,
    lane_offset,
)
from chaos.shared_state import Field, SharedState
from chaos.sizes import some_size
from memfabric_hybrid import bm, errors

HOST = bm.BmMemType.HOST
H2G, G2H, G2G = bm.BmCopyType.H2G, bm.BmCopyType.G2H, bm.BmCopyType.G2G
ASYNCHRONOUS, ON_STREAM = 1, 4
ROWS = 16  # of rectangles


def pool_config() -> bm.BmConfig:
    """Of every member: the store is somebody else's, and nothing takes long."""
    config = bm.BmConfig()
    config.start_store = False
    config.init_timeout, config.create_timeout = INIT_TIMEOUT_S, CREATE_TIMEOUT_S
    config.operation_timeout = OPERATION_TIMEOUT_S
    return config


class PoolHome:
    """This process's membership and its pool; `ready` once it has joined for the first time."""

    def __init__(self, slot: int, store_url: str, state: SharedState) -> None:
        self.slot = slot
        self.state = state
        self.pool: bm.BigMemory
        self.rank = -1
        self.ready = threading.Event()
        self.away = False  # it has left of its own accord: copies say so
        self.departures = 0  # how often
        self.store_url = store_url

    def enter(self, calls: CheckedCalls, stopping: threading.Event) -> None:
        """Initialises, creates and joins, again and again while the store is away."""
        config = pool_config()
        steps: list[tuple[str, float, tuple[int, ...], Callable[[], int]]] = [
            ("bm.initialize", INIT_TIMEOUT_S, (-2004,), lambda: bm.initialize(self.store_url, WORLD, 0, config)),
            ("bm.create", CREATE_TIMEOUT_S, (RAISED,), self.create),
            ("join", OPERATION_TIMEOUT_S, (-2004,), lambda: self.pool.join()),
        ]
        for kind, limit_s, allowed, function in steps:
            while not stopping.is_set() and calls.make(kind, limit_s, allowed, function) != 0:
                stopping.wait(0.1)
        if not stopping.is_set():
            self.ready.set()

    def create(self) -> int:
        try:
            self.pool = bm.create2(0, MEMORY_BYTES, MEMORY_BYTES)
        except RuntimeError:
            return RAISED
        self.rank = bm.bm_rank_id()
        self.state.add(self.slot, Field.POOL_LIFE)
        self.state.set(self.slot, Field.POOL_RANK, self.rank + 1)
        return 0


class PoolWork(Work):
    """Random copies between plain memory and one lane. `asynchronous` ones belong to one thread: `wait` is shared."""

    limit_s = 0.0  # copies wait for nobody
    allowed = (-2014, -2012, -2003)

    def __init__(
        self, home: PoolHome, lane: int, checker: CallChecker, seed: str, *, asynchronous: bool = False
    ) -> None:
        super().__init__(f"pool lane {lane}", checker)
        self._home = home
        self._state = home.state
        self._lane = lane
        self._random = random.Random(seed)
        self._sequence = 0
        self.steps: list[Callable[[int, int, int], None]] = [
            self.write_and_read_back, self.read_somebody, self.batch, self.rectangle, self.mixed, self.array,
        ]  # fmt: skip
        if asynchronous:
            self._stream = mf.Stream()
            self.steps = [self.queued, self.streamed]
        elif lane == 0:
            self.steps += [self.big, self.look_at_own]

    def step(self) -> None:
        home = self._home
        if not home.ready.wait(0.1):
            return
        self.once()
        self.pause(self._random.expovariate(200))

    def once(self) -> None:
        """One operation towards somebody; also for the main thread, which has handlers that may raise."""
        slot = self._random.randrange(SLOTS)
        where = self._state.pool_home(slot)
        if where is not None:
            self.calls.towards = slot
            self._random.choice(self.steps)(slot, *where)

    def address(self, rank: int, writer: int, lane: int, offset: int = 0) -> int:
        return self._home.pool.peer_rank_ptr(rank, HOST) + lane_offset(writer, lane) + offset

    def stay(self) -> int | None:
        """Which of its stays in the pool this member is at; none while it is away."""
        departures = self._home.departures
        return None if self._home.away else departures

    def call(self, kind: str, function: Callable[[], int]) -> int:
        return self.call_in(self.stay(), kind, function)

    def call_in(self, stay: int | None, kind: str, function: Callable[[], int]) -> int:
        """What was asked for in a stay may say that the pool has not joined only if that stay has ended."""
        code = self.calls.make(kind, self.limit_s, self.allowed, function)
        if code == -2003 and stay is not None and stay == self._home.departures:
            self.calls.violation(f"{kind} returned -2003, but the pool has joined: {self.calls.sentence}")
        return code

    def copy(self, kind: str, rank: int, function: Callable[[], int]) -> bool:
        """Whether it worked; a copy to somebody who is long dead must not."""
        dead = self._state.all_long_dead_of_rank(rank)
        worked = self.call(kind, function) == 0
        if worked and dead is not None and self._state.all_long_dead_of_rank(rank) == dead:
            self.calls.violation(f"false success: {kind} with rank {rank}, which is long dead")
        return worked

    def read_into(self, found: Bytes, rank: int, place: int) -> bool:
        size = found.nbytes
        return self.copy("pool read", rank, lambda: self._home.pool.copy_data(place, found.ctypes.data, size, G2H))

    def compare(self, kind: str, slot: int, home: tuple[int, int], place: int, written: Bytes) -> None:
        """Reads back what was written; it is there unless the memory has become another's."""
        found = np.empty_like(written)
        if self.read_into(found, home[0], place) and self._state.still_pool_home(slot, home):
            wrong = difference(written, found)
            if wrong:
                self.calls.violation(f"{kind} to slot {slot} (rank {home[0]}) and read back: {wrong}")
            self.calls.reached["copy", slot] = time.monotonic()

    def patterned(self, rank: int, offset: int, size: int, lane: int | None = None) -> Bytes:
        self._sequence += 1
        chosen = self._lane if lane is None else lane
        return Pattern(POOL, self._home.slot, chosen, rank).block(self._sequence, offset, size)

    # ---- steps ------------------------------------------------------------------------------------------------------

    def write_and_read_back(self, slot: int, rank: int, life: int) -> None:
        size = some_size(self._random, LANE_BYTES)
        offset = self._random.randrange(LANE_BYTES - size + 1)
        self._write(slot, rank, life, self._lane, offset, size, "pool write")

    def big(self, slot: int, rank: int, life: int) -> None:
        if slot == (self._home.slot + 1) % SLOTS and self._random.random() < 0.3:
            size = self._random.randint(BIG_BYTES // 10, BIG_BYTES)
            self._write(slot, rank, life, LANES, BIG_BYTES - size, size, "pool write of many MiB")

    def _write(self, slot: int, rank: int, life: int, lane: int, offset: int, size: int, kind: str) -> None:
        data = self.patterned(rank, offset, size, lane)
        place = self.address(rank, self._home.slot, lane, offset)
        if self.copy(kind, rank, lambda: self._home.pool.copy_data(data.ctypes.data, place, size, H2G)):
            self.compare(kind, slot, (rank, life), place, data)

    def read_somebody(self, slot: int, rank: int, life: int) -> None:
        """Whoever's lane it is: nothing but its patterns and zeroes."""
        writer, lane = self._random.randrange(SLOTS), self._random.randrange(LANES)
        found = np.empty(some_size(self._random, LANE_BYTES // 8) * 8, np.uint8)
        if self.read_into(found, rank, self.address(rank, writer, lane)):
            self._check(found, Pattern(POOL, writer, lane, rank))

    def look_at_own(self, slot: int, rank: int, life: int) -> None:
        """Loads, without a call of the library."""
        writer, lane = self._random.randrange(SLOTS), self._random.randrange(LANES)
        if self._home.away:
            return
        own = self._home.rank
        try:
            found = self._home.pool.array(own, LANE_BYTES, np.uint8, lane_offset(writer, lane)).copy()
        except errors.NotConnected:
            return
        self._check(found, Pattern(POOL, writer, lane, own))
        self.calls.done["look at own memory"] += 1

    def _check(self, found: Bytes, pattern: Pattern) -> None:
        wrong = pattern.foreign_bytes(found, mixed=pattern.lane == MIXED_LANE)
        if wrong:
            self.calls.violation(wrong)

    def batch(self, slot: int, rank: int, life: int) -> None:
        count = self._random.randint(1, 64)
        piece = LANE_BYTES // count
        data = self.patterned(rank, 0, LANE_BYTES)
        place = self.address(rank, self._home.slot, self._lane)
        starts = np.arange(count, dtype=np.uint64) * piece
        sources, targets = starts + np.uint64(data.ctypes.data), starts + np.uint64(place)
        sizes = np.full(count, piece, np.uint64)
        if self.copy("pool batch", rank, lambda: self._home.pool.copy_data_batch(sources, targets, sizes, count, H2G)):
            self.compare("pool batch", slot, (rank, life), place, data[: piece * count])

    def rectangle(self, slot: int, rank: int, life: int) -> None:
        """A column of a matrix with rows of 4096 bytes."""
        pitch, width = 4096, self._random.randint(1, 4096)
        data = self.patterned(rank, 0, pitch * ROWS)
        place = self.address(rank, self._home.slot, self._lane)
        source = data.ctypes.data
        if self.copy(
            "pool rectangle",
            rank,
            lambda: self._home.pool.copy_data_2d(source, pitch, place, pitch, width, ROWS, H2G),
        ):
            last = (ROWS - 1) * pitch
            self.compare("pool rectangle", slot, (rank, life), place + last, data[last : last + width])

    def mixed(self, slot: int, rank: int, life: int) -> None:
        """From our lane there to our mixed lane at somebody else's."""
        other = self._state.pool_home(self._random.randrange(SLOTS))
        if other is None:
            return
        source = self.address(rank, self._home.slot, self._lane)
        place = self.address(other[0], self._home.slot, MIXED_LANE) + (self._lane % 4) * (LANE_BYTES // 4)
        size = 8 * self._random.randint(1, LANE_BYTES // 64)
        self.copy("pool copy between others", rank, lambda: self._home.pool.copy_data(source, place, size, G2G))

    def array(self, slot: int, rank: int, life: int) -> None:
        """Stores and loads; memory of the dead stays readable while the array lives."""
        size = some_size(self._random, 4096)
        data = self.patterned(rank, 0, size)
        try:
            place = self._home.pool.array(rank, size, np.uint8, lane_offset(self._home.slot, self._lane))
        except errors.NotConnected:
            return
        place[:] = data
        found = place.copy()
        if self._state.still_pool_home(slot, (rank, life)):
            wrong = difference(data, found)
            if wrong:
                self.calls.violation(f"array of slot {slot} (rank {rank}): {wrong}")
        self.calls.done["pool array"] += 1

    def queued(self, slot: int, rank: int, life: int) -> None:
        self._asynchronous("pool wait", slot, rank, life, ASYNCHRONOUS, lambda: self._home.pool.wait())

    def streamed(self, slot: int, rank: int, life: int) -> None:
        self._asynchronous("stream wait", slot, rank, life, ON_STREAM, lambda: self._stream.wait())

    def _asynchronous(self, kind: str, slot: int, rank: int, life: int, flags: int, wait: Callable[[], int]) -> None:
        pieces = self._random.randint(1, 4)
        piece = LANE_BYTES // pieces
        data = self.patterned(rank, 0, LANE_BYTES)
        place = self.address(rank, self._home.slot, self._lane)
        stream = int(self._stream) if flags == ON_STREAM else 0
        submitted = True
        stay = self.stay()  # a copy that ends with it says so when it is waited for, maybe in the next one
        for number in range(pieces):
            source, target = data.ctypes.data + number * piece, place + number * piece
            submitted &= self.copy(
                "pool submit",
                rank,
                lambda s=source, t=target: self._home.pool.copy_data(s, t, piece, H2G, flags, stream),  # type: ignore[misc]
            )
        worked = self.call_in(stay, kind, wait) == 0
        if flags == ON_STREAM:  # the object's wait tells of it as well
            self.call_in(stay, "pool wait", lambda: self._home.pool.wait())
        if submitted and worked:
            self.compare(kind, slot, (rank, life), place, data[: piece * pieces])
