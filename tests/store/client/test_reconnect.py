"""The store dies and comes back, members stop and go on: real processes, SIGKILL and SIGSTOP."""

from __future__ import annotations

import contextlib
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import NotConnected, TimedOut
from memfabric_hybrid.store import (
    SessionConnected,
    SessionEvent,
    SessionLost,
    SessionRestored,
    StoreServer,
    WatchUpdate,
    parse_url,
)
from memfabric_hybrid.store.client import dialer, event_channel
from memfabric_hybrid.store.client.client import StoreClient
from memfabric_hybrid.store.client.connection import AnswerLate, Connection, ConnectionLost
from memfabric_hybrid.store.client.dialer import Dialer
from memfabric_hybrid.store.messages import EVENTS
from memfabric_hybrid.store.state.sessions import MAX_CHANNELS
from store.worlds import PATIENCE_S, soon, wait_until
from support import pause_points
from support.workers import Cluster

WHOLE_AGAIN_S = 2.0


@pytest.fixture
def cluster(store_url: str) -> Iterator[Cluster]:
    """Worker 0 runs the store."""
    with Cluster(1, target="store.server_worker") as cluster:
        cluster.call(0, "serve", store_url)
        yield cluster


def restart(cluster: Cluster, url: str) -> float:
    """SIGKILL, then the same address again; the moment from which it serves."""
    cluster.kill(0)
    cluster.start(0)
    cluster.call(0, "serve", url)
    return time.monotonic()


class Member:
    """A client that owns one of everything and keeps what it is told."""

    def __init__(self, url: str, number: int, before_reconnect: Callable[[], object] | None = None) -> None:
        self.events: queue.SimpleQueue[SessionEvent] = queue.SimpleQueue()
        self.updates: queue.SimpleQueue[WatchUpdate] = queue.SimpleQueue()
        self.client = StoreClient(url, on_session=self.events.put, before_reconnect=before_reconnect)
        self.key = f"key/{number}"
        self.client.set(self.key, b"e%d" % number, ephemeral=True, deadline=soon())
        self.rank = self.client.claim_rank("g", 8, b"r%d" % number, deadline=soon())
        self.base = self.client.hold_range("range", 1 << 40, deadline=soon())
        self.client.watch("", self.updates.put, deadline=soon())
        assert isinstance(self.event(), SessionConnected)

    def event(self) -> SessionEvent:
        return self.events.get(timeout=PATIENCE_S)

    def view_of_next_snapshot(self, incarnation: str) -> dict[str, bytes | None]:
        while True:
            update = self.updates.get(timeout=PATIENCE_S)
            if update.incarnation == incarnation:
                assert update.snapshot
                return dict(update.entries)


@pytest.mark.also_over_tls
def test_everything_is_whole_again_after_the_store_was_killed(cluster: Cluster, store_url: str) -> None:
    members = [Member(store_url, number) for number in range(4)]
    members[0].client.set("lasting", b"", deadline=soon())
    revision = members[0].client.prefix("", deadline=soon()).revision
    expected = {member.key: b"e%d" % number for number, member in enumerate(members)}
    expected |= {f"g/{member.rank}": b"r%d" % number for number, member in enumerate(members)}
    back_at = restart(cluster, store_url)
    for member in members:
        lost = member.event()
        assert isinstance(lost, SessionLost)
        assert lost.reason
        restored = member.event()
        assert isinstance(restored, SessionRestored)
        assert restored.refused == ()
        assert member.view_of_next_snapshot(restored.incarnation).keys() <= expected.keys()
    wait_until(lambda: members[0].client.prefix("", deadline=soon()).entries == expected)
    assert time.monotonic() - back_at < WHOLE_AGAIN_S
    assert members[0].client.prefix("", deadline=soon()).revision > revision
    with StoreClient(store_url) as newcomer:
        assert newcomer.hold_range("range", 1 << 40, deadline=soon()) == members[0].base
        assert newcomer.claim_rank("g", 8, b"", deadline=soon()) == 4
    for member in members:
        member.client.close()
    with StoreClient(store_url) as late:
        assert late.prefix("", deadline=soon()).entries == {}


def test_many_restarts(cluster: Cluster, store_url: str) -> None:
    member = Member(store_url, 0)
    for _ in range(3):
        restart(cluster, store_url)
        assert isinstance(member.event(), SessionLost)
        assert isinstance(member.event(), SessionRestored)
        assert member.client.get(member.key, deadline=soon()) == b"e0"
    member.client.close()


def test_watchers_see_what_happens_after_a_restart(cluster: Cluster, store_url: str) -> None:
    member = Member(store_url, 0)
    restart(cluster, store_url)
    member.event()
    restored = member.event()
    assert isinstance(restored, SessionRestored)
    assert member.view_of_next_snapshot(restored.incarnation) == {"key/0": b"e0", "g/0": b"r0"}
    with StoreClient(store_url) as other:
        other.set("new", b"1", deadline=soon())
        update = member.updates.get(timeout=PATIENCE_S)
        assert (update.snapshot, dict(update.entries)) == (False, {"new": b"1"})
    member.client.close()


def test_what_changed_hands_meanwhile_is_reported(cluster: Cluster, store_url: str) -> None:
    may_reconnect = threading.Event()
    member = Member(store_url, 0, before_reconnect=may_reconnect.wait)
    cluster.kill(0)
    assert isinstance(member.event(), SessionLost)
    cluster.start(0)
    cluster.call(0, "serve", store_url)
    with StoreClient(store_url) as other:
        assert other.claim_rank("g", 8, b"other", wanted=0, deadline=soon()) == 0
        may_reconnect.set()
        restored = member.event()
        assert isinstance(restored, SessionRestored)
        [refusal] = restored.refused
        assert (refusal.kind, refusal.name) == ("rank", "g/0")
        assert refusal.sentence == "rank 0 of 'g' is taken by another member"
        assert other.get("g/0", deadline=soon()) == b"other"
        assert member.client.claim_rank("g", 8, b"again", deadline=soon()) == 1
    member.client._channel.renew()
    assert isinstance(member.event(), SessionLost)
    assert member.event() == SessionRestored(restored.incarnation, ())
    assert member.client.prefix("g/", deadline=soon()).entries == {"g/1": b"again"}  # what was refused stays refused
    member.client.close()


@pytest.mark.also_over_tls
def test_what_was_given_back_in_vain_is_gone_when_the_store_answers_again(cluster: Cluster, store_url: str) -> None:
    member, observer = Member(store_url, 0), Member(store_url, 1)
    cluster.kill(0, signal.SIGSTOP)
    with pytest.raises(TimedOut):
        member.client.get("k", deadline=Deadline(0.1))  # its connection is of no use from now on
    with pytest.raises(TimedOut):
        member.client.delete(member.key, deadline=Deadline(0.1))  # never sent: nobody says Welcome
    assert isinstance(member.event(), SessionLost)
    cluster.kill(0, signal.SIGCONT)
    restored = member.event()
    assert isinstance(restored, SessionRestored)
    assert restored.refused == ()
    wait_until(lambda: observer.client.get(member.key, deadline=soon()) is None)
    observer.client.set("last", b"", deadline=soon())
    seen: dict[str, bytes | None] = {}
    gone: set[str] = set()
    while "last" not in seen:
        seen = dict(observer.updates.get(timeout=PATIENCE_S).entries)
        gone |= {key for key, value in seen.items() if value is None}
    assert gone == {member.key}, "and nobody took the member for dead"
    for one in (member, observer):
        one.client.close()


def test_calls_wait_for_a_store_that_comes_back(cluster: Cluster, store_url: str) -> None:
    with StoreClient(store_url) as client, ThreadPoolExecutor(4) as pool:
        client.set("k", b"v", ephemeral=True, deadline=soon())
        waiting = pool.submit(client.wait, "later", deadline=soon())
        halves = [pool.submit(client.gather, "g", 1, 0, 2, b"0", deadline=soon())]
        cluster.kill(0)
        asked = pool.submit(client.get, "k", deadline=soon())
        cluster.start(0)
        cluster.call(0, "serve", store_url)
        halves.append(pool.submit(client.gather, "g", 1, 1, 2, b"1", deadline=soon()))
        assert [half.result(PATIENCE_S) for half in halves] == [[b"0", b"1"]] * 2
        assert asked.result(PATIENCE_S) in (b"v", None)  # asked before or after the member had restored it
        client.set("later", b"now", deadline=soon())
        assert waiting.result(PATIENCE_S) == b"now"


def test_what_must_not_happen_twice_is_not_repeated(cluster: Cluster, store_url: str) -> None:
    with StoreClient(store_url) as client, ThreadPoolExecutor(1) as pool:
        client.add("n", 1, deadline=soon())
        cluster.kill(0, signal.SIGSTOP)
        uncertain = pool.submit(client.add, "n", 1, deadline=soon())
        wait_until(lambda: not client._pool.idle)
        time.sleep(0.1)  # the request is on its way; nothing that we could see tells when it has left
        cluster.kill(0)
        with pytest.raises(NotConnected, match="after Add of 'n' was sent: it may or may not have been carried out"):
            uncertain.result(PATIENCE_S)


def test_a_stale_connection_does_not_make_an_add_uncertain(cluster: Cluster, store_url: str) -> None:
    with StoreClient(store_url) as client:
        client.add("n", 1, deadline=soon())
        restart(cluster, store_url)
        assert client.add("n", 1, deadline=soon()) == 1


def test_a_store_that_stays_away_is_named(cluster: Cluster, store_url: str) -> None:
    with StoreClient(store_url) as client:
        client.set("k", b"", ephemeral=True, deadline=soon())
        cluster.kill(0)
        for ephemeral in (False, True):
            with pytest.raises(
                TimedOut, match=f"store {store_url} .* within 0.3 s: tried .* times, last error: .*refused"
            ):
                client.set("k", b"", ephemeral=ephemeral, deadline=Deadline(0.3))


def test_the_attempt_under_way_is_told_and_those_before_the_last_success_are_not(
    cluster: Cluster, store_url: str
) -> None:
    with StoreClient(store_url) as client:
        client.set("k", b"", ephemeral=True, deadline=soon())
        for _ in range(2):
            with pause_points.held("store.before_hand_over") as before_hand_over:
                restart(cluster, store_url)
                before_hand_over.wait_until_reached()
                with pytest.raises(TimedOut, match=r"within 0\.1 s: tried 1 times, last error: no answer"):
                    client.set("k", b"", ephemeral=True, deadline=Deadline(0.1))
            client.set("k", b"", ephemeral=True, deadline=soon())


def test_who_returns_does_not_wait_for_the_kernel_to_call_again(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody answers its calls: the network is cut, and may be whole again at any moment."""
    monkeypatch.setattr(dialer, "CONNECT_TIMEOUT_S", 3600.0)
    monkeypatch.setattr(dialer, "RETURN_TIMEOUT_S", 0.05)
    url = parse_url(store_url)
    with socket.create_server((url.host, url.port), backlog=0) as deaf, contextlib.ExitStack() as crowd:
        full = False
        while not full:
            caller = crowd.enter_context(socket.socket())
            caller.settimeout(0.1)
            try:
                caller.connect(deaf.getsockname())
            except TimeoutError:
                full = True
        returning = Dialer(url, bytes(16), 3.0, None)
        returning.returning = True
        with pytest.raises(ConnectionLost, match="timed out"):
            returning.attempt(EVENTS, time.monotonic() + 3600)


def test_a_stopped_store_costs_no_more_than_the_deadline(cluster: Cluster, store_url: str) -> None:
    with StoreClient(store_url) as client:
        client.get("k", deadline=soon())
        cluster.kill(0, signal.SIGSTOP)
        started = time.monotonic()
        with pytest.raises(TimedOut, match=r"did not answer Gather of 'g' within 0\.2 s"):
            client.barrier("g", 0, 0, 2, deadline=Deadline(0.2))
        with pytest.raises(TimedOut, match=r"could not be reached within 0\.2 s: tried 1 times, last error: no answer"):
            client.get("k", deadline=Deadline(0.2))
        assert time.monotonic() - started < 5
        cluster.kill(0, signal.SIGCONT)
        assert client.get("k", deadline=soon()) is None


def test_a_stopped_store_accuses_nobody_when_it_goes_on(cluster: Cluster, store_url: str) -> None:
    lost: list[SessionEvent] = []
    client = StoreClient(store_url, heartbeat_timeout_s=1.5, on_session=lost.append)
    client.set("k", b"v", ephemeral=True, deadline=soon())
    lost.clear()
    cluster.kill(0, signal.SIGSTOP)
    time.sleep(2.5)  # longer than the heartbeat timeout
    cluster.kill(0, signal.SIGCONT)
    assert client.get("k", deadline=soon()) == b"v"
    time.sleep(0.5)  # several ticks of the store
    assert client.get("k", deadline=soon()) == b"v"
    assert lost == []
    client.close()


def test_a_stopped_store_accuses_nobody_who_has_tried_to_reach_it_meanwhile(
    cluster: Cluster, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it goes on, it reads the greetings and ends of many attempts before the one that counts."""
    member, observer = Member(store_url, 0), Member(store_url, 1)
    state = member.client._channel.state
    with monkeypatch.context() as patch:
        patch.setattr(event_channel, "HANDOVER_TIMEOUT_S", 0.02)
        cluster.kill(0, signal.SIGSTOP)
        with pytest.raises(TimedOut):
            member.client.set(member.key, b"again", ephemeral=True, deadline=Deadline(0.1))
        assert isinstance(member.event(), SessionLost)
        wait_until(lambda: state._attempts > 2 * MAX_CHANNELS)
        with pause_points.held("store.before_hand_over") as before_the_last:
            before_the_last.wait_until_reached()
            cluster.kill(0, signal.SIGCONT)
            for _ in range(3):  # who comes later is served later: by then it has read what was there
                with StoreClient(store_url) as newcomer:
                    assert newcomer.get(member.key, deadline=soon()) is not None
    assert isinstance(member.event(), SessionRestored)
    observer.client.set("last", b"", deadline=soon())
    seen: dict[str, bytes | None] = {}
    while "last" not in seen:
        seen = dict(observer.updates.get(timeout=PATIENCE_S).entries)
        assert None not in seen.values(), "nobody has died"
    for one in (member, observer):
        one.client.close()


# --- members --------------------------------------------------------------------------------------------------------


@pytest.mark.also_over_tls
def test_a_killed_member_is_noticed_at_once(server: StoreServer, store_url: str) -> None:
    gone: queue.SimpleQueue[float] = queue.SimpleQueue()

    def note(update: WatchUpdate) -> None:
        if update.entries.get("g/0", b"") is None:
            gone.put(time.monotonic())

    with Cluster(1, target="store.server_worker") as cluster, StoreClient(store_url) as watcher:
        assert cluster.call(0, "join", store_url, 3600.0) == 0
        watcher.watch("", note, deadline=soon())
        started = time.monotonic()
        cluster.kill(0)
        assert gone.get(timeout=PATIENCE_S) - started < 1
        assert watcher.prefix("", deadline=soon()).entries == {}


@pytest.mark.also_over_tls
def test_a_stopped_member_is_noticed_by_its_silence_and_may_come_back(server: StoreServer, store_url: str) -> None:
    with Cluster(1, target="store.server_worker") as cluster, StoreClient(store_url) as watcher:
        assert cluster.call(0, "join", store_url, 0.6) == 0
        time.sleep(1.0)  # longer than its timeout: the heartbeats keep it alive
        assert watcher.get("ephemeral", deadline=soon()) == b"here"
        cluster.kill(0, signal.SIGSTOP)
        started = time.monotonic()
        wait_until(lambda: watcher.prefix("", deadline=soon()).entries == {})
        assert 0.3 < time.monotonic() - started < 5
        cluster.kill(0, signal.SIGCONT)
        assert watcher.wait("ephemeral", deadline=soon()) == b"here"
        assert cluster.call(0, "rank_value", 0) == b"member"


@pytest.mark.also_over_tls
def test_a_member_that_holds_the_gil_is_alive(server: StoreServer, store_url: str) -> None:
    with Cluster(1, target="store.server_worker") as cluster, StoreClient(store_url) as watcher:
        cluster.call(0, "join", store_url, 0.6)
        updates: list[WatchUpdate] = []
        watcher.watch("", updates.append, deadline=soon())
        cluster.call(0, "hold_the_gil", 1.5)
        assert len(updates) == 1
        assert watcher.get("ephemeral", deadline=soon()) == b"here"


def test_an_attempt_that_is_cut_short_hides_nothing() -> None:
    """What the last one but one heard is more than that the last one had no time."""

    class Refused(Dialer):
        attempts = 0

        def attempt(self, *args: Any, **kwargs: Any) -> Connection:
            self.attempts += 1
            if self.attempts < 3:
                raise ConnectionLost("Connection refused")
            time.sleep(0.2)  # until the deadline, as a machine that is busy does
            raise AnswerLate

    refused = Refused(parse_url("tcp://127.0.0.1:1"), bytes(16), 3.0, None)
    with pytest.raises(TimedOut, match="tried 3 times, last error: Connection refused"):
        refused.dial(EVENTS, Deadline(0.2))
