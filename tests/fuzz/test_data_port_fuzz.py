"""Bytes that nobody should send to a data port: whatever arrives, only well-formed requests of those who know the
secret change memory, exactly as they say; everything else changes nothing, and healthy peers go on.

MF_DATA_FUZZ_SEED repeats the choices of a run; the report of a failure has it.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import socket
import time
from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest

from fuzz import data_members, data_streams, data_wire
from fuzz.data_members import PEER_IN_POOL, POOL_BYTES, ZONE
from fuzz.data_wire import Outcome, OutOfBounds, Region, Twin
from memfabric_hybrid.address_space.join_fact import JoinFact
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.store import connect
from support import campaigns
from support.workers import Cluster

TARGET, PEER = 0, 1
FRAMES = 20_000
ANSWER_S = 20.0  # for anything: a machine that does much else
LOOK_EVERY = 100  # connections
MOST_IDLE = 32  # connections that are left alone in the middle of a request
NO_SECRET = 0.15  # of the connections
MOST_GROWTH_MIB = 32.0


class Memory:
    """Memory of the target that one secret opens."""

    def __init__(self, port: int, target: bytes, secret: bytes, rng: random.Random, regions: list[Region]) -> None:
        self.port = port
        self.greeting = data_wire.frame(data_wire.CONNECT, target + secret)
        self.twin = Twin(regions)
        others = [region.start - 4096 for region in regions] + [region.start + 2 * ZONE for region in regions]
        self.streams = data_streams.Streams(rng, regions[:1], others)


class Fuzzer:
    """One connection at a time, so that the twin knows what memory holds."""

    def __init__(self, rng: random.Random, memories: list[Memory]) -> None:
        self.counts: Counter[str] = Counter()
        self.slowest_s = 0.0
        self._rng = rng
        self._memories = memories
        self._idle: list[socket.socket] = []

    @property
    def frames(self) -> int:
        return self.counts["requests"] + self.counts["greetings"]

    def connect(self) -> None:
        began = time.monotonic()
        self.counts["greetings"] += 1
        memory = self._rng.choice(self._memories)
        port = self._rng.choice(self._memories).port  # any port of the process leads to all of its memory
        if self._rng.random() < NO_SECRET:
            self._without_secret(memory, port)
        else:
            self._with_secret(memory, port)
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)

    def _without_secret(self, memory: Memory, port: int) -> None:
        """A greeting that is wrong, or a right one that does not wait for its answer; requests follow at once."""
        other = next(known.greeting for known in self._memories if known is not memory)
        early = self._rng.random() < 0.1
        self.counts["early"] += early
        greeting = memory.greeting if early else data_streams.bent_greeting(self._rng, memory.greeting, other)
        with self._dialled(port) as caller:
            send(caller, greeting + (memory.streams.next() or b"x"))
            end_sending(caller)
            answer = rest(caller)
        kind = data_wire.FRAME.unpack_from(answer)[2] if answer else 0
        assert kind in (0, data_wire.REFUSED), f"answered {answer!r} to a greeting that is not right"
        self.counts["refused" if kind else "hung up on"] += 1

    def _with_secret(self, memory: Memory, port: int) -> None:
        stream, outcome = self._harmless(memory)
        with contextlib.ExitStack() as stack:
            caller = stack.enter_context(self._dialled(port))
            send(caller, memory.greeting)
            assert len(payload(caller, data_wire.CONNECTED)) == 8  # the connection's number
            send(caller, stream)
            if self._rng.random() < 0.1 and not outcome.hung_up and not outcome.receives:
                answer = exactly(caller, len(outcome.answer))
                self._leave_idle(stack.pop_all().enter_context(caller))
            else:
                end_sending(caller)
                answer = rest(caller)
        # Hanging up on bytes that it has not read, it takes back answers that are still on their way.
        foreseen = outcome.answer[: len(answer)] if outcome.hung_up else outcome.answer
        assert answer == foreseen, unforeseen(answer, outcome, stream)
        self.counts["requests"] += outcome.requests
        self.counts["answered bytes"] += len(answer)
        self.counts["malformed"] += outcome.hung_up

    def _harmless(self, memory: Memory) -> tuple[bytes, Outcome]:
        """A stream that keeps out of the peer's zones."""
        while True:
            stream = memory.streams.next()
            with contextlib.suppress(OutOfBounds):
                return stream, memory.twin.serve(stream)

    def _dialled(self, port: int) -> socket.socket:
        address = f"127.0.{self._rng.randrange(8)}.{self._rng.randrange(1, 250)}"  # ports stay in use for a while
        return socket.create_connection(("127.0.0.1", port), ANSWER_S, (address, 0))

    def _leave_idle(self, caller: socket.socket) -> None:
        self._idle.append(caller)
        if len(self._idle) > MOST_IDLE:
            self._idle.pop(self._rng.randrange(MOST_IDLE)).close()

    def close(self) -> None:
        for caller in self._idle:
            caller.close()
        self._idle.clear()


def unforeseen(answer: bytes, outcome: Outcome, stream: bytes) -> str:
    expected = outcome.answer
    shorter = min(len(answer), len(expected))
    first = next((place for place in range(shorter) if answer[place] != expected[place]), shorter)
    return (
        f"{len(answer)} bytes came back, {len(expected)} should have; they differ from byte {first} on: "
        f"{answer[first : first + 48].hex(' ', 4)}, not {expected[first : first + 48].hex(' ', 4)}; "
        f"{outcome._replace(answer=b'...')}; sent: {stream.hex()}"
    )


def send(caller: socket.socket, data: bytes) -> None:
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):  # it hung up in the middle
        caller.sendall(data)


def end_sending(caller: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has hung up already
        caller.shutdown(socket.SHUT_WR)


def exactly(caller: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        part = caller.recv(size - len(found))
        assert part, f"it hung up after {bytes(found)!r}"
        found += part
    return bytes(found)


def rest(caller: socket.socket) -> bytes:
    """Until it hangs up; a time-out is a failure of the test."""
    found = bytearray()
    with contextlib.suppress(ConnectionResetError):  # it did not want to read all of it
        while part := caller.recv(1 << 16):
            found += part
    return bytes(found)


def attached(session: str) -> tuple[socket.socket, bytes, bytes]:
    """As an initiator of another host: the control link, the engine's instance, and the secret of its memory."""
    host, _, port = session.rpartition(":")
    link = socket.create_connection((host, int(port)), ANSWER_S)
    send(link, data_wire.frame(data_wire.HELLO))
    welcome = payload(link, data_wire.WELCOME)
    instance, secret = welcome[-32:-16], welcome[-16:]
    send(link, data_wire.frame(data_wire.ATTACH_REMOTE, secret + bytes(16) + b"\x06fuzzer"))
    accepted = payload(link, data_wire.ACCEPTED_REMOTE)
    secret_at = 1 + accepted[0] + 2  # behind the data port's host and number
    return link, instance, accepted[secret_at : secret_at + 16]


def payload(link: socket.socket, kind: int) -> bytes:
    _, _, found, size = data_wire.FRAME.unpack(exactly(link, data_wire.FRAME.size))
    assert found == kind
    return exactly(link, size)


def opened(cluster: Cluster, store_url: str, rng: random.Random, stack: contextlib.ExitStack) -> list[Memory]:
    """The target's memory, as those know it who have its secrets: registered memory, and a pool's."""
    session, private, pool = cluster.call(TARGET, "open_target", store_url)
    routes = cluster.call(PEER, "open_peer", store_url, session, private)
    assert routes == ["tcp", "tcp"]
    link, instance, secret = attached(session)
    stack.enter_context(link)
    with connect(store_url) as store:
        facts = store.prefix("bm/0/", deadline=Deadline(ANSWER_S)).entries
    value = next(fact for key, fact in facts.items() if key.endswith("/0"))
    place = msgspec.msgpack.Decoder(JoinFact).decode(value).data
    zone = data_members.stamp(5 * ZONE)[ZONE : 2 * ZONE]
    registered = [
        Region(private + ZONE, bytearray(zone)),
        Region(private + 3 * ZONE, bytearray(ZONE), kept_out=range(ZONE)),
    ]
    in_pool = Region(pool, bytearray(data_members.stamp(POOL_BYTES)), kept_out=PEER_IN_POOL)
    ports = [int(address.rpartition(":")[2]) for address in (session, place.address)]
    return [
        Memory(ports[0], instance, secret, rng, registered),
        Memory(ports[1], place.memory_id, place.secret, rng, [in_pool]),
    ]


def expect_as_foretold(cluster: Cluster, memories: list[Memory]) -> None:
    """The target's memory is the twins', and what nobody may touch is as it was."""
    private = bytearray(data_members.stamp(5 * ZONE))
    private[ZONE : 2 * ZONE] = memories[0].twin.regions[0].content
    private[3 * ZONE : 4 * ZONE] = bytes(ZONE)
    pool = bytearray(memories[1].twin.regions[0].content)
    pool[PEER_IN_POOL.start : PEER_IN_POOL.stop] = bytes(ZONE)
    if [hashlib.sha256(content).hexdigest() for content in (private, pool)] == cluster.call(TARGET, "digests"):
        return
    found = cluster.call(TARGET, "contents")
    for name, is_, expected in zip(("private memory", "pool"), found, (private, pool), strict=True):
        wrong = [offset for offset, (one, other) in enumerate(zip(is_, expected, strict=True)) if one != other]
        assert not wrong, f"{len(wrong)} bytes of the {name} are wrong, from offset {wrong[0]} to {wrong[-1]}"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(2, "fuzz.data_members") as made:
        yield made


@pytest.mark.soak
def test_only_requests_that_are_right_change_memory(cluster: Cluster, store_url: str) -> None:
    seed = campaigns.fresh_seed("MF_DATA_FUZZ_SEED")
    rng = random.Random(seed)
    frames = campaigns.length("MF_FUZZ_FRAMES", FRAMES)
    with contextlib.ExitStack() as stack:
        memories = opened(cluster, store_url, rng, stack)
        fuzzer = Fuzzer(rng, memories)
        stack.callback(fuzzer.close)
        before = after_warm_up = cluster.call(TARGET, "footprint")
        began = time.monotonic()
        connections = 0
        while fuzzer.frames < frames:
            fuzzer.connect()
            connections += 1
            if connections % LOOK_EVERY == 0:
                expect_as_foretold(cluster, memories)
            if connections == 10 * LOOK_EVERY:
                after_warm_up = cluster.call(TARGET, "footprint")
        expect_as_foretold(cluster, memories)
        took_s = time.monotonic() - began
        fuzzer.close()
        seen = cluster.call(PEER, "stop_moving")
        after = settled(cluster, before)
        print(f"{connections} connections in {took_s:.0f} s, slowest {fuzzer.slowest_s:.2f} s: {dict(fuzzer.counts)}")
        print(f"the healthy peer: {seen}\nthe target: {before} → {after_warm_up} → {after}")
        for rounds, _, complaints in seen:
            assert complaints == []
            assert rounds > connections // 1000, "the healthy peer had no turn"
        assert after["resident MiB"] < after_warm_up["resident MiB"] + MOST_GROWTH_MIB
    cluster.call_all("close", indices=(PEER, TARGET))


def settled(cluster: Cluster, before: dict[str, float]) -> dict[str, float]:
    """The target's footprint once it has seen that all initiators are gone; it has nothing more than before."""
    deadline = Deadline(ANSWER_S)
    while True:
        after: dict[str, float] = cluster.call(TARGET, "footprint")
        if after["descriptors"] <= before["descriptors"] and after["threads"] <= before["threads"]:
            return after
        assert not deadline.expired, f"before: {before}, after: {after}"
        time.sleep(0.05)
