"""The server against clients that do not keep to the protocol, in real sockets: they are refused, it is unharmed."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Iterator

import pytest

from memfabric_hybrid.errors import InvalidParam, RepeatInvoke, ResourceInUse
from memfabric_hybrid.store import StoreServer, connect, parse_url
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.frames import VERSION, FrameReader, frame
from memfabric_hybrid.store.limits import MAX_GREETING_FRAME_BYTES, MAX_REQUEST_FRAME_BYTES, MIB
from store.worlds import PATIENCE_S, soon, wait_until
from support.ports import reserved_port

HELLO = m.framed(m.Hello(bytes(16), m.REQUESTS, 3.0))


@pytest.fixture
def server(store_url: str) -> Iterator[StoreServer]:
    server = StoreServer(store_url)
    server.start()
    yield server
    with connect(server.url) as client:  # whatever the test did: the next client is served
        client.set("after", b"all", deadline=soon())
        assert client.get("after", deadline=soon()) == b"all"
    server.stop()


class Raw:
    """A client that sends whatever it likes."""

    def __init__(self, server: StoreServer) -> None:
        self.socket = socket.create_connection((server.url.host, server.url.port), PATIENCE_S)
        self._reader = FrameReader(1 << 30)

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answers(self) -> list[m.ServerMessage]:
        """Everything until the server closes the connection."""
        payloads: list[bytes] = []
        while True:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                return [m.decode_server_message(payload) for payload in payloads]
            payloads += self._reader.feed(data)


GARBAGE = {
    "http": (b"GET / HTTP/1.1\r\nHost: store\r\n\r\n", "frame of version 47"),
    "wrong version": (struct.pack(">IB", 1, VERSION + 1) + b"x", f"frame of version {VERSION + 1}"),
    "too large for a stranger": (
        struct.pack(">IB", MAX_GREETING_FRAME_BYTES + 1, VERSION),
        f"frame of {MAX_GREETING_FRAME_BYTES + 1} bytes, allowed are {MAX_GREETING_FRAME_BYTES}",
    ),
    "4 GiB": (struct.pack(">IB", 0xFFFFFFFF, VERSION), "frame of 4294967295 bytes"),
    "no msgpack": (frame(b"\xc1\xc1\xc1"), "is not a request"),
    "empty": (frame(b""), "is not a request"),
    "unknown tag": (frame(b"\x91\x7f"), "is not a request"),
    "deep": (frame(b"\x91" * 60_000), "is not a request"),
    "request before hello": (m.framed(m.Get("k")), "Get before Hello"),
    "greeted, then too large": (
        HELLO + struct.pack(">IB", MAX_REQUEST_FRAME_BYTES + 1, VERSION),
        f"allowed are {MAX_GREETING_FRAME_BYTES}",  # both came at once, so the stranger's limit still holds
    ),
    "greeted, then garbage": (HELLO + frame(b"\xc1"), "is not a request"),
    "a pickle": (frame(b"\x80\x04\x95\x00"), "is not a request"),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_is_answered_with_the_reason_and_closed(server: StoreServer, kind: str) -> None:
    data, reason = GARBAGE[kind]
    with Raw(server) as client:
        client.send(data)
        last = client.answers()[-1]
    assert isinstance(last, m.Refused)
    assert reason in last.sentence


def test_the_limit_after_hello_is_that_of_values(server: StoreServer) -> None:
    with Raw(server) as client:
        client.send(HELLO)
        wait_until(lambda: any(peer.reader.limit_bytes == MAX_REQUEST_FRAME_BYTES for peer in server.peers.values()))
        client.send(struct.pack(">IB", MAX_REQUEST_FRAME_BYTES + 1, VERSION))
        last = client.answers()[-1]
    assert isinstance(last, m.Refused)
    assert f"allowed are {MAX_REQUEST_FRAME_BYTES}" in last.sentence


def test_a_frame_may_come_byte_by_byte(server: StoreServer) -> None:
    with Raw(server) as client:
        for byte in HELLO + m.framed(m.Set("k", b"v", False)) + m.framed(m.Goodbye()):
            client.send(bytes([byte]))
        client.socket.shutdown(socket.SHUT_WR)
        kinds = [type(answer) for answer in client.answers()]
    assert kinds == [m.Welcome, m.Done, m.Done]


def test_half_frames_and_vanished_clients_leave_nothing(server: StoreServer) -> None:
    whole = HELLO + m.framed(m.Wait("never", 3600.0))
    for cut in range(len(whole) + 1):
        with Raw(server) as client:
            client.send(whole[:cut])
            if cut % 2:  # reset instead of an orderly end
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: not server.peers)
    state = server.state
    assert not state._greeted
    assert not state._strangers
    assert not state.tables.waiters.waiting


def test_a_claimed_length_takes_no_memory(server: StoreServer) -> None:
    header = struct.pack(">IB", MAX_REQUEST_FRAME_BYTES, VERSION)
    clients = [Raw(server) for _ in range(50)]
    for client in clients:
        client.send(HELLO)
    wait_until(lambda: len(server.state._greeted) == 50)
    tracemalloc.start()
    try:
        for client in clients:
            client.send(header + bytes(100))
        wait_until(lambda: sum(peer.reader.pending_bytes for peer in server.peers.values()) == 50 * 105)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < MAX_REQUEST_FRAME_BYTES, "50 frames are claimed, not one of them was sent"
    for client in clients:
        client.socket.close()


def test_a_thousand_connections(server: StoreServer) -> None:
    clients = [Raw(server) for _ in range(1000)]
    try:
        for client in clients:
            client.send(HELLO + m.framed(m.Add("n", 1)))
        for client in clients:
            client.socket.shutdown(socket.SHUT_WR)
        totals = [client.answers()[-1] for client in clients]
    finally:
        for client in clients:
            client.socket.close()
    assert sorted(total.value for total in totals if isinstance(total, m.Number)) == list(range(1, 1001))
    wait_until(lambda: not server.peers)


def test_who_asks_on_without_reading_the_answers_is_closed(server: StoreServer) -> None:
    with connect(server.url) as writer:
        writer.set("k", bytes(8 * MIB), deadline=soon())
    with Raw(server) as client:
        client.send(HELLO + m.framed(m.Get("k")) * 5000)
        last = client.answers()[-1]
    assert isinstance(last, m.Refused)
    assert "of answers are unread" in last.sentence
    wait_until(lambda: not server.peers)


def test_a_watcher_that_does_not_read_is_dropped(server: StoreServer, caplog: pytest.LogCaptureFixture) -> None:
    session = os.urandom(16)
    with Raw(server) as events, Raw(server) as requests, connect(server.url) as writer:
        events.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        events.send(m.framed(m.Hello(session, m.EVENTS, 3600.0)))
        requests.send(m.framed(m.Hello(session, m.REQUESTS, 3600.0)) + m.framed(m.StartWatch(1, "")))
        wait_until(lambda: bool(server.state.tables.watches.of(session)))
        for number in range(12):
            writer.set("k", bytes([number]) * (16 * MIB), deadline=soon())
        wait_until(lambda: server.state.tables.sessions.get(session) is None)
    assert "of unread pushes" in caplog.text


def test_a_member_that_sends_slowly_is_alive(server: StoreServer) -> None:
    restore = m.framed(m.Restore(0, {"k": bytes(1000)}, (), (), {}))
    with Raw(server) as events:
        events.send(m.framed(m.Hello(bytes(16), m.EVENTS, 0.4)))
        for start in range(0, len(restore), 100):
            events.send(restore[start : start + 100])
            time.sleep(0.1)
        events.socket.shutdown(socket.SHUT_WR)
        kinds = [type(answer) for answer in events.answers()]
    assert kinds == [m.Welcome, m.Restored]


def test_a_failure_inside_ends_one_connection_only(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a mistake in the store")

    monkeypatch.setitem(server.state.tables.handlers, m.Add, fail)
    with Raw(server) as client:
        client.send(HELLO + m.framed(m.Add("n", 1)))
        last = client.answers()[-1]
    assert isinstance(last, m.Refused)
    assert "failed unexpectedly" in last.sentence
    assert "a mistake in the store" in caplog.text


# --- start and stop -------------------------------------------------------------------------------------------------


def test_a_taken_address_is_named(server: StoreServer) -> None:
    with pytest.raises(ResourceInUse, match=f"store address {server.url} is taken"):
        StoreServer(server.url).start()


def test_a_foreign_address_and_an_unknown_host_are_refused(store_url: str) -> None:
    port = parse_url(store_url).port
    with pytest.raises(InvalidParam, match=r"192\.0\.2\.1 is not an address of this machine"):
        StoreServer(f"tcp://192.0.2.1:{port}").start()
    with pytest.raises(InvalidParam, match=r"host 'no-such-host\.invalid' cannot be resolved"):
        StoreServer(f"tcp://no-such-host.invalid:{port}").start()
    with pytest.raises(InvalidParam, match="etcd is run by its own programs"):
        StoreServer(f"etcd://127.0.0.1:{port}").start()


def test_stop_is_idempotent_and_frees_the_address(store_url: str) -> None:
    for _ in range(3):
        server = StoreServer(store_url)
        server.start()
        with pytest.raises(RepeatInvoke):
            server.start()
        with connect(store_url) as client:
            client.set("k", b"", ephemeral=True, deadline=soon())
            server.stop()
            server.stop()


def test_ipv6() -> None:
    with reserved_port("::1") as port:
        for url in (f"tcp6://[::1]:{port}", f"tcp://[::1]:{port}"):
            server = StoreServer(url)
            server.start()
            with connect(url) as client:
                client.set("k", b"v", deadline=soon())
                assert client.peer_name(deadline=soon()) == f"[::1]:{port}"
            server.stop()


def test_the_wildcard_of_ipv6_serves_ipv4_too() -> None:
    with reserved_port("::") as port:
        server = StoreServer(f"tcp://[::]:{port}")
        server.start()
        for url in (f"tcp://127.0.0.1:{port}", f"tcp://[::1]:{port}", f"tcp://localhost:{port}"):
            with connect(url) as client:
                client.set("k", b"v", deadline=soon())
        server.stop()


def test_a_host_name_can_be_served() -> None:
    with reserved_port() as port:
        server = StoreServer(f"tcp://localhost:{port}")
        server.start()
        with connect(f"tcp://localhost:{port}") as client:
            client.set("k", b"v", deadline=soon())
        server.stop()


def test_start_works_inside_a_running_loop(store_url: str) -> None:
    import asyncio

    async def program() -> None:
        server = StoreServer(store_url)
        server.start()
        server.stop()

    asyncio.run(program())


def test_a_forked_child_does_not_keep_the_server_alive(store_url: str) -> None:
    server = StoreServer(store_url)
    server.start()
    with connect(store_url) as client:
        client.set("k", b"v", ephemeral=True, deadline=soon())
        abandoned, say_abandoned = os.pipe()
        child = os.fork()
        if child == 0:
            client.abandon_after_fork()
            server.abandon_after_fork()
            os.write(say_abandoned, b"x")
            signal.pause()
        try:
            os.read(abandoned, 1)
            server.stop()
            again = StoreServer(store_url)  # the child holds no listener
            again.start()
            assert client.wait("k", deadline=soon()) == b"v"  # nor a connection: the client saw the end and came back
            again.stop()
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(abandoned)
            os.close(say_abandoned)


def test_without_uvloop_plain_asyncio_serves(
    store_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("memfabric_hybrid.store.server.server._uvloop_error", ImportError("not installed"))
    server = StoreServer(store_url)
    server.start()
    assert "uvloop cannot be imported" in caplog.text
    with connect(store_url) as one, connect(store_url) as two:
        one.set("k", b"v", ephemeral=True, deadline=soon())
        second = threading.Thread(target=two.barrier, args=("g", 0, 1, 2), kwargs={"deadline": soon()})
        second.start()
        one.barrier("g", 0, 0, 2, deadline=soon())
        second.join()
        server.stop()
