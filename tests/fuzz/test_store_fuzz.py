"""Millions of frames, right and wrong, through decoder and state machine: nothing but a FrameError, nothing corrupt.

`MF_FUZZ_FRAMES` says how many; the seed is in the report's header.
"""

from __future__ import annotations

import os
import random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.frames import FrameError, FrameReader, frame
from memfabric_hybrid.store.limits import MAX_GREETING_FRAME_BYTES, MAX_REQUEST_FRAME_BYTES, MAX_REVISION, MAX_TIMEOUT_S
from memfabric_hybrid.store.state.effects import Close, Effect
from memfabric_hybrid.store.state.machine import StoreState
from memfabric_hybrid.store.state.placement import ALIGNMENT_BYTES, REGION_END, REGION_START
from store import invariants
from support import campaigns

FRAMES = 20_000
CONNECTIONS = 8
SESSIONS = [bytes([number]) * 16 for number in range(4)]
CHECK_EVERY = 100

INTEGERS = [-(1 << 63), -1, 0, 1, 2, 3, 1023, 1024, 1025, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
TIMES = [-1.0, 0.0, 0.05, 1.0, 60.0, MAX_TIMEOUT_S, MAX_TIMEOUT_S * 2, float("nan"), float("inf")]
KEYS = ["", "a", "a/0", "a/1", "b/0", "b/1", "b/2", "ü/0", "k" * 1024, "k" * 1025]
NAMES = ["a", "b", "ü", "", "n" * 1023]
PREFIXES = ["", "a", "a/", "b/", "k", "p" * 1025]
VALUES = [b"", b"0", b"-7", b"x", b"9" * 19, bytes(70_000)]
BASES = [0, REGION_START, REGION_START + 1, REGION_START + ALIGNMENT_BYTES, REGION_END - ALIGNMENT_BYTES, REGION_END]
SIZES = [-1, 0, 1, ALIGNMENT_BYTES, 5 * ALIGNMENT_BYTES, REGION_END - REGION_START, 1 << 62]


class Victim:
    """Connections over one state machine, each with a stream of its own; closed ones are replaced by new ones."""

    def __init__(self) -> None:
        self.state = StoreState("fuzz")
        self.now = 0.0
        self.streams: dict[int, FrameReader] = {}
        self._next = 1
        for _ in range(CONNECTIONS):
            self.connect()

    def connect(self) -> None:
        self.state.connected(self._next, self.now)
        self.streams[self._next] = FrameReader(MAX_GREETING_FRAME_BYTES)
        self._next += 1

    def receive(self, connection: int, data: bytes) -> None:
        """What the server does with bytes that come in."""
        try:
            for payload in self.streams[connection].feed(data):
                message = m.decode_request(payload)
                self._carry_out(self.state.message(connection, message, self.now))
                if connection not in self.streams:
                    return
                if self.state.knows(connection):
                    self.streams[connection].limit_bytes = MAX_REQUEST_FRAME_BYTES
        except FrameError as error:
            self._carry_out(self.state.expel(connection, str(error)))

    def vanish(self, connection: int) -> None:
        del self.streams[connection]
        self._carry_out(self.state.disconnected(connection))
        self.connect()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self._carry_out(self.state.tick(self.now))

    def push(self) -> None:
        self._carry_out(self.state.changes(self.now))

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Close):
                self.streams.pop(effect.connection, None)
            else:
                assert effect.connections
                m.framed(effect.message)
        while len(self.streams) < CONNECTIONS:
            self.connect()


def random_request(rng: random.Random) -> m.Request:
    key, name, value, number = rng.choice(KEYS), rng.choice(NAMES), rng.choice(VALUES), rng.choice(INTEGERS)
    prefix, time_s, flag, small = rng.choice(PREFIXES), rng.choice(TIMES), rng.random() < 0.5, rng.randrange(-1, 5)
    some = rng.choice([0, 1, 2, 3, number])
    makers = [
        lambda: m.Hello(rng.choice(SESSIONS), rng.choice([m.REQUESTS, m.REQUESTS, m.EVENTS]), 3.0),
        lambda: m.Hello(rng.choice([*SESSIONS, b"", b"short"]), some, time_s),
        lambda: m.Heartbeat(),
        lambda: m.Goodbye(),
        lambda: m.Set(key, value, flag),
        lambda: m.Get(key),
        lambda: m.Wait(key, time_s),
        lambda: m.Delete(key),
        lambda: m.Add(key, number),
        lambda: m.CompareAndSet(key, rng.choice([None, *VALUES]), value, flag),
        lambda: m.Append(key, value),
        lambda: m.ReadPrefix(prefix),
        lambda: m.StartWatch(some, prefix),
        lambda: m.EndWatch(some),
        lambda: m.ClaimRank(some, name, rng.choice([3, 3, 3, number]), value, rng.choice([None, small]), (small,)),
        lambda: m.ReleaseRank(name, small),
        lambda: m.HoldRange(name, rng.choice(SIZES)),
        lambda: m.ReleaseRange(name),
        lambda: m.Gather(some, name, some, small, rng.choice([1, 2, 3, number]), value, time_s),
        lambda: random_restore(rng),
    ]
    return rng.choice(makers)()


def random_restore(rng: random.Random) -> m.Restore:
    return m.Restore(
        rng.choice([0, 0, 5, MAX_REVISION, *INTEGERS]),
        {rng.choice(KEYS): rng.choice(VALUES) for _ in range(rng.randrange(3))},
        tuple(
            m.RestoredClaim(rng.choice(NAMES), rng.randrange(-1, 5), rng.choice([3, 3, 0]), b"", rng.choice(INTEGERS))
            for _ in range(rng.randrange(3))
        ),
        tuple(
            m.RestoredRange(rng.choice(NAMES), rng.choice(BASES), rng.choice(SIZES)) for _ in range(rng.randrange(3))
        ),
        {rng.choice(INTEGERS): rng.choice(PREFIXES) for _ in range(rng.randrange(3))},
    )


def mutated(rng: random.Random, data: bytes) -> bytes:
    """One to three small wounds: flipped bits, bytes put in, taken out, repeated, cut off, another length."""
    wounded = bytearray(data[:2000])
    for _ in range(rng.choice([1, 1, 2, 3])):
        at = rng.randrange(len(wounded) + 1)
        kind = rng.randrange(6)
        if kind == 0 and wounded:
            wounded[at % len(wounded)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            wounded[at:at] = rng.randbytes(rng.randrange(1, 9))
        elif kind == 2:
            del wounded[at : at + rng.randrange(1, 9)]
        elif kind == 3:
            wounded[at:at] = wounded[at : at + rng.randrange(1, 40)]
        elif kind == 4:
            del wounded[at:]
        else:
            wounded[:4] = rng.randrange(1 << rng.randrange(1, 32)).to_bytes(4, "big")
    return bytes(wounded)


def random_bytes(rng: random.Random) -> bytes:
    """What one frame of a hostile client may be."""
    whole = m.framed(random_request(rng))
    choice = rng.random()
    if choice < 0.6:
        return whole
    if choice < 0.75:
        return frame(mutated(rng, whole[5:]))  # a proper frame around a wounded message
    if choice < 0.95:
        return mutated(rng, whole)
    return rng.randbytes(rng.randrange(64))


@pytest.mark.soak
def test_random_and_mutated_frames(rng: random.Random) -> None:
    victim = Victim()
    for number in range(campaigns.length("MF_FUZZ_FRAMES", FRAMES)):
        connection = rng.choice(list(victim.streams))
        if not victim.state.knows(connection) and rng.random() < 0.7:
            hello = m.Hello(rng.choice(SESSIONS), rng.choice([m.REQUESTS, m.REQUESTS, m.EVENTS]), 3.0)
            victim.receive(connection, m.framed(hello))
        else:
            victim.receive(connection, random_bytes(rng))
        event = rng.random()
        if event < 0.02:
            victim.vanish(rng.choice(list(victim.streams)))
        elif event < 0.05:
            victim.pass_time(rng.choice([0.05, 0.1, 0.5, 0.9, 20.0]))
        elif event < 0.15:
            victim.push()
        if number % CHECK_EVERY == 0:
            invariants.check(victim.state, set(victim.streams))
    invariants.check(victim.state, set(victim.streams))
    for connection in list(victim.streams):
        victim.vanish(connection)
    check_nothing_is_left(victim.state)


def check_nothing_is_left(state: StoreState) -> None:
    """Nobody is connected: only keys that belong to nobody remain."""
    tables = state.tables
    assert not tables.sessions._sessions
    assert not tables.ranks._groups
    assert not tables.ranges._ranges
    assert not tables.watches._watchers
    assert not tables.rendezvous._open
    assert not tables.waiters.waiting
    assert all(entry.owner is None for entry in tables.keyspace._entries.values())
    invariants.check(state)


@given(st.lists(st.tuples(st.integers(0, CONNECTIONS - 1), st.binary(max_size=64)), max_size=30))
def test_arbitrary_bytes(chunks: list[tuple[int, bytes]]) -> None:
    victim = Victim()
    for index, chunk in chunks:
        victim.receive(list(victim.streams)[index], chunk)
        invariants.check(victim.state, set(victim.streams))


@given(st.lists(st.tuples(st.integers(0, CONNECTIONS - 1), st.randoms(use_true_random=False)), max_size=60))
def test_arbitrary_requests(steps: list[tuple[int, random.Random]]) -> None:
    """As the campaign, but hypothesis chooses, and shrinks what it finds."""
    victim = Victim()
    for index, connection in enumerate(list(victim.streams)):
        role = m.EVENTS if index % 2 else m.REQUESTS
        victim.receive(connection, m.framed(m.Hello(SESSIONS[index // 2], role, 3.0)))
    for index, rng in steps:
        victim.receive(list(victim.streams)[index], m.framed(random_request(rng)))
        invariants.check(victim.state, set(victim.streams))


def test_the_mutator_reaches_both_outcomes() -> None:
    """Otherwise the campaign would test the decoder's refusals only, or nothing wrong at all."""
    rng = random.Random(os.path.basename(__file__))
    accepted = refused = 0
    for _ in range(500):
        try:
            m.decode_request(mutated(rng, m.framed(random_request(rng))[5:]))
        except FrameError:
            refused += 1
        else:
            accepted += 1
    assert accepted > 20
    assert refused > 100
