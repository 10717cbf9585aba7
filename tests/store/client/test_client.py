"""The client's own promises: deadlines, first contact, hooks, moving, closing, forking."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from memfabric_hybrid._native import Heartbeat
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import InvalidParam, NotConnected, NotStarted, ResourceInUse, TimedOut
from memfabric_hybrid.store import StoreServer, parse_url
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.client.client import StoreClient
from memfabric_hybrid.store.client.dialer import LONGEST_PAUSE_S, pauses_s
from store.worlds import PATIENCE_S, soon, wait_until
from support import pause_points
from support.alarms import left_by_alarm
from support.ports import reserved_port


class SilentHeartbeat:
    """For members that must look dead although their connection is open."""

    def __init__(self, fd: int, payload: bytes, interval_ms: int) -> None:
        self.interval_ms = interval_ms

    def stop(self) -> None:
        pass


@pytest.mark.parametrize("url", ["etcd://127.0.0.1:1", "tcp://", "nonsense"])
def test_an_unusable_address_fails_at_once(url: str) -> None:
    with pytest.raises(InvalidParam, match="store URL"):
        StoreClient(url)
    with pytest.raises(InvalidParam, match="needs tcp://host:port"):
        StoreClient(parse_url("tcp://127.0.0.1", port_required=False))


@pytest.mark.parametrize("timeout_s", [0.0, 0.3])
def test_a_store_that_never_comes(store_url: str, timeout_s: float) -> None:
    started = time.monotonic()
    client = StoreClient(store_url)
    with pytest.raises(TimedOut) as failure:
        client.get("k", deadline=Deadline(timeout_s))
    sentence = str(failure.value)
    assert f"store {store_url} could not be reached within {timeout_s:g} s: tried " in sentence
    assert timeout_s == 0 or "refused" in sentence
    assert timeout_s <= time.monotonic() - started < timeout_s + 2
    client.close()


def test_a_name_that_does_not_resolve_is_in_the_sentence() -> None:
    with StoreClient("tcp://no-such-host.invalid:1") as client, pytest.raises(TimedOut, match="cannot be resolved"):
        client.get("k", deadline=Deadline(0.1))


def test_a_store_that_comes_late_is_found(store_url: str) -> None:
    with StoreClient(store_url) as client, ThreadPoolExecutor(2) as pool:
        asked = pool.submit(client.get, "k", deadline=soon())
        claimed = pool.submit(client.claim_rank, "g", 4, b"", deadline=soon())
        time.sleep(0.1)
        server = StoreServer(store_url)
        server.start()
        assert asked.result(PATIENCE_S) is None
        assert claimed.result(PATIENCE_S) == 0
        server.stop()


def test_pauses_grow_to_their_limit() -> None:
    pauses = pauses_s()
    first = [next(pauses) for _ in range(20)]
    assert first[:2] == [0.0, 0.02]
    assert first == sorted(first)
    assert first[-1] == LONGEST_PAUSE_S


def test_a_connection_to_itself_is_no_store() -> None:
    """Linux lets a socket that is bound to a port connect to that very port; retries on one machine can meet that."""
    with reserved_port() as port, StoreClient(f"tcp://127.0.0.1:{port}") as client, socket.socket() as dialing:
        dialing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        dialing.bind(("127.0.0.1", port))
        with pytest.raises(Exception, match="nobody listens there"):
            client._dialer._connect(dialing, ("127.0.0.1", port), time.monotonic() + 5)


def test_somebody_else_at_the_address_is_not_mistaken_for_a_store(store_url: str) -> None:
    url = parse_url(store_url)
    with socket.create_server((url.host, url.port)) as listener, StoreClient(store_url) as client:

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            listener.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ResourceInUse, match="is no store: it answered 'HTTP/"):
            client.get("k", deadline=Deadline(60))
        thread.join()


def test_somebody_else_where_the_store_was_is_waited_out(server: StoreServer, store_url: str) -> None:
    """Whoever has met a store there expects it back."""
    url = parse_url(store_url)
    with StoreClient(store_url) as client:
        client.set("k", b"v", deadline=Deadline(20))
        server.stop()
        with socket.create_server((url.host, url.port)) as listener:

            def answer() -> None:
                with contextlib.suppress(OSError):  # until it is shut down
                    while True:
                        peer, _ = listener.accept()
                        with peer:
                            peer.sendall(b"220 mail\r\n")

            thread = threading.Thread(target=answer)
            thread.start()
            with pytest.raises(TimedOut):
                client.get("k", deadline=Deadline(1))
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_the_hook_runs_before_reconnects_only(store_url: str) -> None:
    started: list[StoreServer] = []

    def start_a_store() -> None:
        if not started:
            server = StoreServer(store_url)
            server.start()
            started.append(server)

    with StoreClient(store_url, before_reconnect=start_a_store) as client:
        client.set("k", b"v", deadline=soon())  # the first attempt fails, the hook starts the store
        assert len(started) == 1
        started[0].stop()
        started.clear()
        client.set("k", b"v", deadline=soon())
        assert len(started) == 1
    started[0].stop()


def test_a_failing_hook_does_not_end_the_search(server: StoreServer, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("a mistake in a hook")

    with StoreClient(server.url, before_reconnect=fail) as client:
        client._dialer.lost()
        assert client.get("k", deadline=soon()) is None
    assert "a mistake in a hook" in caplog.text


def test_an_answer_that_is_read_after_the_session_has_ended_does_not_count(
    server: StoreServer, pool: ThreadPoolExecutor
) -> None:
    """A process that stood still finds its answer waiting, and what that gave it has gone to somebody else."""
    hearts: list[Heartbeat] = []

    def make(fd: int, payload: bytes, interval_ms: int) -> Heartbeat:
        hearts.append(Heartbeat(fd, payload, interval_ms))
        return hearts[-1]

    with (
        StoreClient(server.url) as other,
        StoreClient(server.url, heartbeat_timeout_s=1.0, heartbeat_factory=make) as client,
    ):
        client.set("mine", b"", ephemeral=True, deadline=soon())
        with pause_points.held("store.before_hand_over") as missing, pause_points.held("store.answered") as answered:
            asked = pool.submit(client.compare_and_set, "prize", None, b"mine", ephemeral=True, deadline=soon())
            answered.wait_until_reached()
            hearts[0].stop()
            missing.wait_until_reached()  # its event thread knows, and has not told anybody
            other.set("prize", b"theirs", deadline=soon())
            answered.release()
            with pytest.raises(NotConnected, match="may or may not have been carried out"):
                asked.result(PATIENCE_S)
        assert other.get("prize", deadline=soon()) == b"theirs"


def test_a_session_that_the_store_forgot_is_renewed(server: StoreServer) -> None:
    with StoreClient(server.url, heartbeat_timeout_s=0.3, heartbeat_factory=SilentHeartbeat) as client:
        client.claim_rank("g", 4, b"v", deadline=soon())
        watched: list[object] = []
        client.watch("g/", watched.append, deadline=soon())
        until = soon()
        while len(watched) <= 2:  # the session ends every 0.3 s, in the middle of whatever happens
            client.set("k", b"v", ephemeral=True, deadline=until)
            assert client.hold_range("r", 5, deadline=until)


def test_what_a_hand_over_may_have_missed_is_done_again(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session is renewed after the store has answered and before the client has noted what it owns now."""
    with StoreClient(server.url) as client:
        generation = client._channel.ready(soon())
        exchange = client._exchange

        def exchange_and_lose_the_session(
            request: m.Request, deadline: Deadline, incarnation: str | None, *, is_grant: bool
        ) -> m.ServerMessage:
            monkeypatch.setattr(client, "_exchange", exchange)
            reply = exchange(request, deadline, incarnation, is_grant=is_grant)
            client._channel.renew()
            assert client._channel.ready(deadline) == generation + 1
            assert client.get("k", deadline=soon()) is None
            return reply

        monkeypatch.setattr(client, "_exchange", exchange_and_lose_the_session)
        client.set("k", b"v", ephemeral=True, deadline=soon())
        assert client.get("k", deadline=soon()) == b"v"
        client._channel.renew()
        client._channel.ready(soon())
        assert client.get("k", deadline=soon()) == b"v"


def test_heartbeats_come_five_times_per_timeout(server: StoreServer) -> None:
    made: list[SilentHeartbeat] = []

    def make(fd: int, payload: bytes, interval_ms: int) -> SilentHeartbeat:
        made.append(SilentHeartbeat(fd, payload, interval_ms))
        return made[-1]

    with StoreClient(server.url, heartbeat_timeout_s=2.0, heartbeat_factory=make) as client:
        assert client.get("k", deadline=soon()) is None
        assert made == []  # nothing belongs to the session yet: no channel, no thread
        client.set("k", b"", ephemeral=True, deadline=soon())
    assert [heartbeat.interval_ms for heartbeat in made] == [400]


def test_a_heartbeat_that_cannot_start_is_named(server: StoreServer, caplog: pytest.LogCaptureFixture) -> None:
    def fail(fd: int, payload: bytes, interval_ms: int) -> SilentHeartbeat:
        raise RuntimeError("no threads left")

    with StoreClient(server.url, heartbeat_factory=fail) as client, pytest.raises(TimedOut, match="no threads left"):
        client.set("k", b"", ephemeral=True, deadline=Deadline(0.2))


def test_many_threads_share_a_client(server: StoreServer) -> None:
    with StoreClient(server.url) as client, ThreadPoolExecutor(32) as pool:
        gathered = [
            pool.submit(client.gather, f"g{number % 4}", 0, number // 4, 8, b"%d" % number, deadline=soon())
            for number in range(32)
        ]
        for number, call in enumerate(gathered):
            assert call.result(PATIENCE_S) == [b"%d" % (rank * 4 + number % 4) for rank in range(8)]
        assert len(client._pool.idle) <= 8
        wait_until(lambda: len(server.peers) <= 8)


def test_an_interrupted_call_does_not_confuse_the_next(server: StoreServer) -> None:
    """The answer to the interrupted call must not be taken for the answer to the next one."""

    class Interrupted(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    with StoreClient(server.url) as client:
        client.set("k", b"v", deadline=soon())
        with left_by_alarm(Interrupted, interrupt):
            client.wait("later", deadline=soon())
        client.set("later", b"x", deadline=soon())
        assert client.get("k", deadline=soon()) == b"v"


def test_close_without_a_store_is_quick(store_url: str) -> None:
    server = StoreServer(store_url)
    server.start()
    client = StoreClient(store_url)
    client.set("k", b"", ephemeral=True, deadline=soon())
    server.stop()
    started = time.monotonic()
    client.close()
    assert time.monotonic() - started < 3


def test_close_inside_a_callback(server: StoreServer) -> None:
    closed = threading.Event()
    client = StoreClient(server.url)

    def close(update: object) -> None:
        client.close()
        closed.set()

    client.watch("k", close, deadline=soon())
    assert closed.wait(PATIENCE_S)
    with pytest.raises(NotStarted):
        client.get("k", deadline=soon())


def test_a_forked_child_leaves_the_parents_sockets_alone(server: StoreServer) -> None:
    client = StoreClient(server.url)
    client.set("k", b"v", ephemeral=True, deadline=soon())
    child = os.fork()
    if child == 0:
        status = 1
        try:
            client.abandon_after_fork()
            client.close()
            try:
                client.get("k", deadline=Deadline(1))
            except NotStarted:
                with StoreClient(server.url) as own:
                    status = 0 if own.get("k", deadline=soon()) == b"v" else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client.get("k", deadline=soon()) == b"v"
    client.close()


def test_a_childs_copies_do_not_keep_a_dead_parent_alive(server: StoreServer) -> None:
    """The child has abandoned the client, so the store sees the end of the parent although the child lives on."""
    ready, child_pid = os.pipe(), os.pipe()
    parent = os.fork()
    if parent == 0:
        client = StoreClient(server.url, heartbeat_timeout_s=3600.0)
        client.set("k", b"v", ephemeral=True, deadline=soon())
        child = os.fork()
        if child == 0:
            client.abandon_after_fork()
            os.write(ready[1], b"x")
            signal.pause()
        os.write(child_pid[1], child.to_bytes(8, "big"))
        signal.pause()
    child = int.from_bytes(os.read(child_pid[0], 8), "big")
    os.read(ready[0], 1)
    try:
        with StoreClient(server.url) as observer:
            assert observer.get("k", deadline=soon()) == b"v"
            os.kill(parent, signal.SIGKILL)
            os.waitpid(parent, 0)
            wait_until(lambda: observer.get("k", deadline=soon()) is None)
    finally:
        os.kill(child, signal.SIGKILL)
        for fd in (*ready, *child_pid):
            os.close(fd)
