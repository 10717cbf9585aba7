"""The transfer engine of a worker, and threads that write patterns into the memory of everybody's engine.

`EngineHome` owns the engine at the slot's session and three memories: one of `trans_malloc`, a private one, and a loose
one that is registered and unregistered all the time.
"""

from __future__ import annotations

import itertools
import mmap
import random
import threading
import time
from collections.abc import Callable

import numpy as np

import memfabric_hybrid as mf
from chaos.call_checker import CallChecker, CheckedCalls, Work
from chaos.patterns import Bytes, Pattern, difference
from chaos.plan import (
    ARENA,
    BIG_BYTES,
    LANE_BYTES,
    LANES,
    LOOSE,
    LOOSE_BYTES,
    MEMORY_BYTES,
    PRIVATE,
    SLOTS,
    TRANSFER_TIMEOUT_S,
    lane_offset,
)
from chaos.shared_state import Field, SharedState
from chaos.sizes import some_size
from memfabric_hybrid import _native, errors
from memfabric_hybrid.transfer import Ticket

LIFE_SPAN_BYTES = 4 << 30  # more than a process maps besides
GONE = (-2004, -2012, -2014)  # what a peer that is dead, stopped or restarting may cause


def private_memory(size: int) -> Bytes:
    """Zeroed, of this process alone."""
    return np.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)


def distant_addresses(life: int) -> mmap.mmap | None:
    """While it is held this process maps memory elsewhere than all earlier lives of its slot, at once: they all have
    been forked by the same server. Who was stopped between looking for an address and writing there must not hit
    another place in the next life's memory.
    """
    return mmap.mmap(-1, life * LIFE_SPAN_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 0) if life else None


class EngineHome:
    """The engine; `ready` once it has been initialised and has its memory."""

    def __init__(self, slot: int, ports: list[int], state: SharedState) -> None:
        self.slot = slot
        self.state = state
        self._distance = distant_addresses(state.get(slot, Field.LIFE))
        self.engine = mf.TransferEngine()
        self.ready = threading.Event()
        self.sessions = [f"127.0.0.1:{port}" for port in ports]
        self.private = private_memory(MEMORY_BYTES)
        self.arena = 0
        self.downs = 0

    def enter(self, calls: CheckedCalls, stopping: threading.Event) -> None:
        self.engine.set_peer_down_callback(self._on_down)
        while not stopping.is_set() and self.initialize(calls):
            stopping.wait(0.1)
        while not stopping.is_set() and calls.make("trans_malloc", 0.0, (), self._allocate):
            stopping.wait(0.1)
        calls.make("register", 0.0, (), lambda: self.engine.register(self.private))
        self.state.add(self.slot, Field.ENGINE_LIFE)
        self.state.set(self.slot, Field.ARENA, self.arena)
        self.state.set(self.slot, Field.PRIVATE, self.private.ctypes.data)
        self.ready.set()

    def initialize(self, calls: CheckedCalls) -> int:
        session = self.sessions[self.slot]
        return calls.make("engine initialize", 0.0, (), lambda: self.engine.initialize(None, session, "Decode", 0))

    def _allocate(self) -> int:
        self.arena = self.engine.trans_malloc(MEMORY_BYTES)
        return 0 if self.arena else -2001

    def _on_down(self, session: str) -> None:
        self.downs += 1
        if self.downs % 7 == 0:
            self.engine.send_probe(session)  # a callback may call anything
        time.sleep(self.downs % 3 / 1000)  # and take its time


class TransferWork(Work):
    """Random transfers between plain memory and one lane of everybody's memories."""

    def __init__(self, home: EngineHome, lane: int, checker: CallChecker, seed: str) -> None:
        super().__init__(f"transfer lane {lane}", checker)
        self._home = home
        self._engine = home.engine
        self._lane = lane
        self._random = random.Random(seed)
        self._sequence = 0
        self._stream = mf.Stream()
        self._held: list[tuple[Bytes, Callable[[], bool]]] = []  # what is read by transfers, until they are over
        self._writes: dict[str, Callable[[str, Bytes, int], int]] = {
            "transfer write": self._single,
            "transfer batch": self._batch,
            "transfer on a stream": self._streamed,
            "transfer with a ticket": self._ticket,
        }

    def step(self) -> None:
        if not self._home.ready.wait(0.1):
            return
        self.once()
        self.pause(self._random.expovariate(200))

    def once(self) -> None:
        self.calls.towards = slot = self._random.randrange(SLOTS)
        if self._random.random() < 0.1:
            self._call("probe", slot, (), lambda: self._engine.send_probe(self._home.sessions[slot]))
        elif self._random.random() < 0.15:
            self._write_loose(slot)
        elif self._random.random() < 0.25:
            self._read_somebody(slot)
        else:
            self._write(slot)

    def _call(self, kind: str, slot: int, more: tuple[int, ...], function: Callable[[], int]) -> int:
        """A transfer to somebody who is long dead must not work."""
        state = self._home.state
        dead = state.long_dead(slot)
        allowed = (*GONE, *more)
        code = self.calls.make(kind, TRANSFER_TIMEOUT_S, allowed, function)
        if code == 0 and dead and state.long_dead(slot) == dead:
            self.calls.violation(f"false success: {kind} with slot {slot}, which is long dead")
        return code

    def _memory(self, slot: int) -> tuple[int, Field, tuple[int, int]] | None:
        """(kind, field of the shared state, (address, life)) of one of the two large memories."""
        kind, field = self._random.choice([(ARENA, Field.ARENA), (PRIVATE, Field.PRIVATE)])
        home = self._home.state.engine_home(slot, field)
        return (kind, field, home) if home else None

    def _write(self, slot: int) -> None:
        memory = self._memory(slot)
        if memory is None:
            return
        kind, field, home = memory
        lane, offset, size = self._lane, 0, some_size(self._random, LANE_BYTES)
        if self._lane == 0 and slot == (self._home.slot + 1) % SLOTS and self._random.random() < 0.05:
            lane, size = LANES, self._random.randint(BIG_BYTES // 10, BIG_BYTES)
        else:
            offset = self._random.randrange(LANE_BYTES - size + 1)
        self._sequence += 1
        data = Pattern(kind, self._home.slot, lane, slot).block(self._sequence, offset, size)
        place = home[0] + lane_offset(self._home.slot, lane) + offset
        session = self._home.sessions[slot]
        name, write = self._random.choice(list(self._writes.items()))
        code = self._call(name, slot, (-2000, -2003), lambda: write(session, data, place))
        still = self._home.state.still_engine_home(slot, field, home)
        if code == -2000 and still:
            self.calls.violation(f"{name} to slot {slot}, whose memory is registered: {self.calls.sentence}")
        if code == 0 and still:
            self._compare(name, slot, field, home, place, data)

    def _compare(self, name: str, slot: int, field: Field, home: tuple[int, int], place: int, data: Bytes) -> None:
        found = np.empty_like(data)
        read = self._random.choice([self._read_single, self._read_batch])
        code = self._call("transfer read", slot, (-2000,), lambda: read(self._home.sessions[slot], found, place))
        if code == 0 and self._home.state.still_engine_home(slot, field, home):
            wrong = difference(data, found)
            if wrong:
                self.calls.violation(f"{name} to {field.name} of slot {slot} and read back: {wrong}")
            self.calls.reached["transfer", slot] = time.monotonic()

    def _read_somebody(self, slot: int) -> None:
        """Whoever's lane it is: nothing but its patterns and zeroes."""
        memory = self._memory(slot)
        if memory is None:
            return
        kind, field, home = memory
        writer, lane = self._random.randrange(SLOTS), self._random.randrange(LANES)
        found = np.empty(some_size(self._random, LANE_BYTES // 8) * 8, np.uint8)
        place = home[0] + lane_offset(writer, lane)
        code = self._call(
            "transfer read", slot, (-2000,), lambda: self._read_single(self._home.sessions[slot], found, place)
        )
        if code == 0 and self._home.state.still_engine_home(slot, field, home):
            wrong = Pattern(kind, writer, lane, slot).foreign_bytes(found)
            if wrong:
                self.calls.violation(wrong)

    def _write_loose(self, slot: int) -> None:
        """Memory that comes and goes: refused while it is not registered."""
        home = self._home.state.engine_home(slot, Field.LOOSE)
        if home is None:
            return
        size = LOOSE_BYTES // SLOTS // 8 * 8
        self._sequence += 1
        data = Pattern(LOOSE, self._home.slot, self._lane, slot).block(self._sequence, 0, size)
        place = home[0] + self._home.slot * size
        self._call(
            "transfer to loose memory", slot, (-2000,), lambda: self._single(self._home.sessions[slot], data, place)
        )

    # ---- ways to transfer -------------------------------------------------------------------------------------------

    def _single(self, session: str, data: Bytes, place: int) -> int:
        return self._engine.transfer_sync_write(session, data.ctypes.data, place, data.nbytes)

    def _read_single(self, session: str, found: Bytes, place: int) -> int:
        return self._engine.transfer_sync_read(session, found.ctypes.data, place, found.nbytes)

    def _pieces(self, data: Bytes, place: int) -> tuple[list[int], list[int], list[int]]:
        inner = {self._random.randrange(data.nbytes) for _ in range(self._random.randrange(9))}
        cuts = sorted({0, data.nbytes, *inner})
        starts, sizes = cuts[:-1], [end - start for start, end in itertools.pairwise(cuts)]
        return [data.ctypes.data + start for start in starts], [place + start for start in starts], sizes

    def _batch(self, session: str, data: Bytes, place: int) -> int:
        return self._engine.batch_transfer_sync_write(session, *self._pieces(data, place))

    def _read_batch(self, session: str, found: Bytes, place: int) -> int:
        return self._engine.batch_transfer_sync_read(session, *self._pieces(found, place))

    def _hold(self, data: Bytes, is_over: Callable[[], bool]) -> None:
        """Before the transfer begins: a wait for it may be interrupted, or give up, while it goes on."""
        self._held = [(held, over) for held, over in self._held if not over()]
        self._held.append((data, is_over))

    def _streamed(self, session: str, data: Bytes, place: int) -> int:
        number = self._stream.submitted + 1
        self._hold(data, lambda: self._stream.completed >= number)
        code = self._engine.transfer_async_write_submit(session, data.ctypes.data, place, data.nbytes, self._stream)
        return code or self._stream.wait()

    def _ticket(self, session: str, data: Bytes, place: int) -> int:
        tickets: list[Ticket] = []
        self._hold(data, lambda: any(ticket.done for ticket in tickets))
        try:
            ticket = self._engine.submit_write(session, *self._pieces(data, place))
            tickets.append(ticket)
        except errors.FabricError as refusal:
            self._held.pop()
            _native.set_last_error(str(refusal))  # where calls that return codes leave their sentence
            return int(refusal.code)
        if self._random.random() < 0.1 and ticket.cancel():
            return ticket.wait(0.0)
        return ticket.wait(TRANSFER_TIMEOUT_S + 5)
