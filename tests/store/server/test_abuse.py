"""Clients that mean harm, over real sockets: each loses its own connection, and members do not notice.

Who waits for a server that drops somebody polls for it; nothing here measures time.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from memfabric_hybrid.errors import NoResources
from memfabric_hybrid.store import StoreServer
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.client.client import StoreClient
from memfabric_hybrid.store.frames import VERSION, FrameReader
from memfabric_hybrid.store.limits import MAX_GATHER_BYTES, MIB
from memfabric_hybrid.store.state import keyspace
from memfabric_hybrid.store.state.placement import REGION_END, REGION_START
from store.bench import session_id
from store.worlds import PATIENCE_S, soon, wait_until
from support import campaigns
from support.workers import Cluster

CLIENT_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(64)  # as far as anybody gets who only pretends


@contextlib.contextmanager
def connected(server: StoreServer, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        address = (server.url.host, server.url.port)
        yield [stack.enter_context(socket.create_connection(address, PATIENCE_S)) for _ in range(count)]


def is_closed(connection: socket.socket) -> bool:
    """By the server; what it said before is read and let go."""
    connection.setblocking(False)
    try:
        while connection.recv(65536):
            pass
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        connection.settimeout(PATIENCE_S)


@pytest.fixture
def member(server: StoreServer) -> Iterator[StoreClient]:
    """Holds a rank, and has lost neither rank nor session when the test is over."""
    with StoreClient(server.url) as client:
        assert client.claim_rank("bm/ranks", 4, b"me", deadline=soon()) == 0
        generation = client._channel.state.generation
        yield client
        assert client.get("bm/ranks/0", deadline=soon()) == b"me"
        assert client._channel.state.generation == generation, "it was never lost"


# --- before the greeting --------------------------------------------------------------------------------------------


def test_who_greets_slowly_has_a_time_limit(
    server: StoreServer, member: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte now and then is no greeting (slow loris), and neither is silence (half-open)."""
    monkeypatch.setattr("memfabric_hybrid.store.state.machine.HELLO_TIMEOUT_S", 0.3)
    hello = m.framed(m.Hello(bytes(16), m.REQUESTS, 3.0))
    with connected(server, 20) as (silent, *slow):
        waiting = set(slow)
        position = 0
        while waiting or not is_closed(silent):
            for connection in list(waiting):
                if is_closed(connection):
                    waiting.discard(connection)
                elif position < len(hello) - 1:
                    with contextlib.suppress(OSError):
                        connection.send(hello[position : position + 1])
            position += 1
            threading.Event().wait(0.02)
    wait_until(lambda: not server.state._strangers)


def test_strangers_that_are_too_many_go_and_members_still_come_in(
    server: StoreServer, member: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memfabric_hybrid.store.server.server.STRANGERS_ALLOWED", 8)
    server._most = 40
    with connected(server, 60) as flood:
        wait_until(lambda: sum(is_closed(one) for one in flood) >= 50)
        assert len(server.state._strangers) <= 10
        with StoreClient(server.url) as newcomer:
            assert newcomer.claim_rank("bm/ranks", 4, b"new", deadline=soon()) == 1


def test_descriptors_are_kept_for_members(server: StoreServer, member: StoreClient) -> None:
    """Strangers that greet politely, with and without a session, take every place there is, and lose it to a member."""
    server._most = 24
    with connected(server, 30) as crowd:
        for number, connection in enumerate(crowd):
            role = m.EVENTS if number % 2 else m.REQUESTS
            with contextlib.suppress(OSError):  # dropped already
                connection.sendall(m.framed(m.Hello(session_id(1000 + number), role, 3600.0)))
        wait_until(lambda: len(server.peers) <= 24)
        members = [StoreClient(server.url) for _ in range(3)]
        try:
            for rank, client in enumerate(members, 1):
                assert client.claim_rank("bm/ranks", 4, b"new", deadline=soon()) == rank
            for client in (member, *members):
                assert client.get("bm/ranks/3", deadline=soon()) == b"new"
        finally:
            for client in members:
                client.close()


def test_a_session_has_so_many_connections(
    server: StoreServer, member: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memfabric_hybrid.store.state.machine.MAX_SESSION_CONNECTIONS", 10)
    hello = m.framed(m.Hello(session_id(7), m.REQUESTS, 3.0))
    with connected(server, 12) as crowd:
        for connection in crowd:
            connection.sendall(hello)
        answers = [m.decode_server_message(FrameReader(1 << 20).feed(one.recv(65536))[0]) for one in crowd]
        refused = [answer for answer in answers if isinstance(answer, m.Refused)]
        assert len(refused) == 2
        assert "this session has 10 connections" in refused[0].sentence
    wait_until(lambda: session_id(7) not in server.state._connections)


def test_a_port_scan(server: StoreServer, member: StoreClient) -> None:
    """Connections that end at once, in the middle of a header, or with a reset."""
    for cut in range(40):
        with connected(server, 1) as (connection,):
            connection.sendall(CLIENT_HELLO[: cut % 12])
            if cut % 3 == 0:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: not server.state._strangers)


# --- memory ---------------------------------------------------------------------------------------------------------


def greeted(connection: socket.socket, session: int) -> socket.socket:
    connection.sendall(m.framed(m.Hello(session_id(session), m.REQUESTS, 3.0)))
    connection.recv(65536)
    return connection


def test_frames_that_never_end_hold_so_much_memory(
    server: StoreServer, member: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memfabric_hybrid.store.server.incomplete.MAX_OTHERS_BYTES", 2 * MIB)
    half = struct.pack(">IB", 60 * MIB, VERSION) + bytes(MIB)
    with connected(server, 8) as crowd:
        for number, connection in enumerate(crowd):
            greeted(connection, 100 + number)
            with contextlib.suppress(OSError):  # dropped in the middle
                connection.sendall(half)
        wait_until(lambda: sum(is_closed(one) for one in crowd) >= 6)
        assert server._incomplete.held_bytes <= 2 * MIB
        member.set("large", bytes(8 * MIB), deadline=soon())  # members may have more than the others left
    wait_until(lambda: server._incomplete.held_bytes == 0)


def test_who_lets_the_largest_frame_lie_pays_and_not_who_sends_next(
    server: StoreServer, member: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger parks just under the limit; an honest process that is no member then sends in two parts."""
    monkeypatch.setattr("memfabric_hybrid.store.server.incomplete.MAX_OTHERS_BYTES", 2 * MIB)
    with connected(server, 2) as (parked, honest):
        greeted(parked, 100).sendall(struct.pack(">IB", 60 * MIB, VERSION) + bytes(2 * MIB - 1000))
        wait_until(lambda: server._incomplete.held_bytes > MIB)
        request = m.framed(m.Set("k", bytes(5000), False))
        greeted(honest, 101).sendall(request[:4000])
        wait_until(lambda: is_closed(parked))
        honest.sendall(request[4000:])
        assert isinstance(m.decode_server_message(FrameReader(MIB).feed(honest.recv(65536))[0]), m.Done)


def test_a_frame_of_a_stranger_has_a_time_limit(
    server: StoreServer, member: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memfabric_hybrid.store.server.incomplete.FRAME_TIMEOUT_S", 0.3)
    with connected(server, 1) as (parked,):
        greeted(parked, 100).sendall(struct.pack(">IB", MIB, VERSION) + b"x")
        wait_until(lambda: is_closed(parked))
    assert server._incomplete.held_bytes == 0


def test_answers_that_nobody_reads_hold_so_much_memory(
    server: StoreServer, member: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memfabric_hybrid.store.server.server.MAX_UNREAD_BYTES", 24 * MIB)
    member.set("large", bytes(20 * MIB), deadline=soon())
    with connected(server, 6) as crowd:
        for number, connection in enumerate(crowd):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(m.framed(m.Hello(session_id(100 + number), m.REQUESTS, 3.0)))
            connection.recv(65536)
            connection.sendall(m.framed(m.Get("large")))
        wait_until(lambda: len(server.peers) <= 4)  # the member's two, and at most two of these
        assert len(member.get("large", deadline=soon()) or b"") == 20 * MIB


def test_large_answer_to_many_is_held_once(
    server: StoreServer, member: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gather of 1024 ranks with 4 KiB each is 4 MiB, and for a moment 4 GiB that readers have not read."""
    monkeypatch.setattr("memfabric_hybrid.store.server.server.MAX_UNREAD_BYTES", 8 * MIB)
    size, part = 64, bytes(MAX_GATHER_BYTES)
    with connected(server, size) as crowd:
        for rank, connection in enumerate(crowd):
            connection.sendall(m.framed(m.Hello(session_id(100 + rank), m.REQUESTS, 3.0)))
            connection.recv(65536)
            connection.sendall(m.framed(m.Gather(1, "g", 0, rank, size, part, PATIENCE_S)))
        whole_bytes = len(m.framed(m.Gathered([part] * size)))
        for connection in crowd:
            with connection.makefile("rb") as answer:
                assert len(answer.read(whole_bytes)) == whole_bytes


def test_keys_of_all_sessions_together_have_a_limit(
    server: StoreServer, member: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger with a new session for every few megabytes once filled the store with a gigabyte."""
    for kind in ("plain", "ephemeral", "members'"):
        monkeypatch.setitem(keyspace.LIMITS, kind, 4 * MIB)
    value = bytes(MIB)
    with contextlib.ExitStack() as stack:
        for ephemeral in (False, True):
            for number in range(3):
                stranger = stack.enter_context(StoreClient(server.url))
                stranger.set(f"{ephemeral}/{number}", value, ephemeral=ephemeral, deadline=soon())
            with pytest.raises(NoResources, match=r"keys of this store would hold 41\d{5} bytes, allowed"):
                stranger.set(f"{ephemeral}/more", value, ephemeral=ephemeral, deadline=soon())
            stranger.set(f"{ephemeral}/0" if not ephemeral else "True/2", value, ephemeral=ephemeral, deadline=soon())
        member.set("bm/0/h/0", bytes(3 * MIB), ephemeral=True, deadline=soon())  # what is a member's has room left
        member.set("bm/0/h/0", bytes(3 * MIB), ephemeral=True, deadline=soon())
    with StoreClient(server.url) as stranger:  # whoever was there is gone, and so is what it had
        stranger.set("True/more", value, ephemeral=True, deadline=soon())
        for number in range(3):
            stranger.delete(f"False/{number}", deadline=soon())
        stranger.set("False/more", value, deadline=soon())
    assert server.state.tables.keyspace.bytes_of["plain"] < 2 * MIB


# --- ranks and addresses --------------------------------------------------------------------------------------------


def test_ranks_that_strangers_have_claimed_keep_nobody_out(
    server: StoreServer, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has named another world size, others take every rank; real members come in all the same, and stay."""
    monkeypatch.setattr("memfabric_hybrid.store.state.ranks.SETTLE_S", 0.5)
    monkeypatch.setattr("memfabric_hybrid.store.state.tables.SETTLE_S", 0.5)
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(StoreClient(server.url)) for _ in range(3)]
        for rank, stranger in enumerate(strangers):
            assert stranger.claim_rank("bm/ranks", 3, b"", deadline=soon()) == rank
        stranger.hold_range("all addresses", REGION_END - REGION_START, deadline=soon())
        threading.Event().wait(0.6)  # what they have to come in
        cluster = stack.enter_context(Cluster(2, "support.pool_worker", environment={}))
        for rank in range(2):
            assert cluster.call(rank, "take_part", store_url, 2) == rank
        assert cluster.call_all("rank") == [0, 1]
        with pytest.raises(NoResources):
            strangers[0].claim_rank("bm/ranks", 2, b"", deadline=soon())


# --- a fabric beside it ---------------------------------------------------------------------------------------------


class Attack:
    """Everything at once, from threads of this process, until it is closed."""

    def __init__(self, address: tuple[str, int], rng: random.Random) -> None:
        self._address = address
        self._over = threading.Event()
        self.attempts = 0
        kinds = [self._flood, self._loris, self._lengths, self._garbage, self._pretend]
        self._threads = [threading.Thread(target=self._run, args=(kind, random.Random(rng.random()))) for kind in kinds]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, kind: Callable[[random.Random, contextlib.ExitStack], None], rng: random.Random) -> None:
        while not self._over.is_set():
            with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
                kind(rng, stack)
            self.attempts += 1

    def _connect(self, stack: contextlib.ExitStack) -> socket.socket:
        return stack.enter_context(socket.create_connection(self._address, PATIENCE_S))

    def _flood(self, rng: random.Random, stack: contextlib.ExitStack) -> None:
        for _ in range(200):
            self._connect(stack)

    def _loris(self, rng: random.Random, stack: contextlib.ExitStack) -> None:
        crowd = [self._connect(stack) for _ in range(20)]
        for byte in m.framed(m.Hello(rng.randbytes(16), m.REQUESTS, 3.0))[:10]:
            for connection in crowd:
                connection.send(bytes([byte]))
            self._over.wait(0.01)

    def _lengths(self, rng: random.Random, stack: contextlib.ExitStack) -> None:
        self._connect(stack).sendall(struct.pack(">IB", 2 << 30, VERSION) + bytes(65536))

    def _garbage(self, rng: random.Random, stack: contextlib.ExitStack) -> None:
        self._connect(stack).sendall(rng.randbytes(rng.randrange(1, 4096)))

    def _pretend(self, rng: random.Random, stack: contextlib.ExitStack) -> None:
        self._connect(stack).sendall(CLIENT_HELLO + rng.randbytes(rng.randrange(300)))


@pytest.mark.soak
@pytest.mark.also_over_tls
def test_a_fabric_beside_an_attack_sees_no_death(store_url: str, rng: random.Random) -> None:
    """Members with short heartbeats copy all the time; the store is in one of them."""
    environment = {"MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S": "1.5"}
    host, _, port = store_url.removeprefix("tcp://").rpartition(":")
    with Cluster(3, "support.pool_worker", environment=environment) as cluster:
        for index in range(3):
            assert cluster.call(index, "take_part", store_url, 4) == index
            cluster.call(index, "record_events")
        cluster.call(1, "start_copying", [0, 2], 0)
        attack = Attack((host, int(port)), rng)
        try:
            for _ in range(campaigns.length("MF_ATTACK_ROUNDS", 3)):
                cluster.call(1, "wait_for_rounds", 0, 50)
                threading.Event().wait(1.0)  # of attack: longer than a heartbeat's turn
        finally:
            attack.close()
        assert attack.attempts > 20
        results: list[dict[str, Any]] = cluster.call(1, "stop_copying")
        assert [result["wrong"] for result in results] == [[]]
        for index in range(3):
            assert cluster.call(index, "view") == [0, 1, 2]
            assert [event for event in cluster.call(index, "wait_for_events", 0) if event[1] == "LEAVE_EVENT"] == []
        assert cluster.call_all("rank") == [0, 1, 2]
