"""etcd nodes are killed, stopped, restarted, with and without their data: members keep what is theirs."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import NotConnected, TimedOut
from memfabric_hybrid.store import (
    SessionConnected,
    SessionEvent,
    SessionLost,
    SessionRestored,
    WatchUpdate,
    parse_url,
)
from memfabric_hybrid.store.etcd.lease import revoke
from memfabric_hybrid.store.etcd.store import EtcdStore
from store.worlds import PATIENCE_S, Seen, soon, wait_until
from support import etcd, pause_points
from support.etcd import EtcdCluster, EtcdNode
from support.workers import Cluster


@pytest.fixture
def cluster() -> Iterator[EtcdCluster]:
    with etcd.running() as cluster:
        yield cluster


@pytest.fixture
def cluster3() -> Iterator[EtcdCluster]:
    with etcd.running(3) as cluster:
        yield cluster


class Member:
    """A participant that owns one of everything and keeps what it is told."""

    def __init__(self, url: str, number: int, heartbeat_timeout_s: float = 3.0) -> None:
        self.events: queue.SimpleQueue[SessionEvent] = queue.SimpleQueue()
        self.updates: queue.SimpleQueue[WatchUpdate] = queue.SimpleQueue()
        self.seen = Seen()
        self.number = number
        self.store = EtcdStore(url, on_session=self.events.put, heartbeat_timeout_s=heartbeat_timeout_s)
        self.key = f"key/{number}"
        self.store.set(self.key, b"e%d" % number, ephemeral=True, deadline=soon())
        self.rank = self.store.claim_rank("g", 8, b"r%d" % number, deadline=soon())
        self.base = self.store.hold_range("range", 1 << 40, deadline=soon())
        self.store.watch("", self._keep, deadline=soon())
        assert isinstance(self.event(), SessionConnected)

    def _keep(self, update: WatchUpdate) -> None:
        self.updates.put(update)
        self.seen(update)

    def event(self) -> SessionEvent:
        return self.events.get(timeout=PATIENCE_S)

    def check_restored(self) -> SessionRestored:
        assert isinstance(self.event(), SessionLost)
        restored = self.event()
        assert isinstance(restored, SessionRestored)
        assert restored.refused == ()
        return restored


@pytest.fixture
def members(cluster: EtcdCluster) -> Iterator[list[Member]]:
    url = cluster.url()
    members = [Member(url, number) for number in range(3)]
    yield members
    for member in members:
        member.store.close()


def owned(members: list[Member]) -> dict[str, bytes]:
    keys = {member.key: b"e%d" % member.number for member in members}
    return keys | {f"g/{member.rank}": b"r%d" % member.number for member in members}


def test_an_answer_that_is_read_after_the_lease_has_ended_does_not_count(
    cluster: EtcdCluster, pool: ThreadPoolExecutor
) -> None:
    """A process that stood still finds its answer waiting, and what that gave it has gone to somebody else."""
    url = cluster.url()
    with EtcdStore(url) as other, EtcdStore(url) as store:
        store.set("mine", b"", ephemeral=True, deadline=soon())
        store._doubted_after_s = 0.0  # any pause is one
        with pause_points.held("store.before_hand_over") as missing, pause_points.held("store.answered") as answered:
            asked = pool.submit(store.compare_and_set, "prize", None, b"mine", ephemeral=True, deadline=soon())
            answered.wait_until_reached()
            revoke(store._scope, soon().at)
            other.set("prize", b"theirs", deadline=soon())
            answered.release()
            missing.wait_until_reached()  # nothing counts until all that is ours is there again
            missing.release()
            assert asked.result(PATIENCE_S) == (False, b"theirs")


@pytest.mark.parametrize("lose_data", [False, True], ids=["data kept", "data lost"])
def test_everything_is_whole_again_after_etcd_was_killed(
    cluster: EtcdCluster, members: list[Member], lose_data: bool
) -> None:
    expected = owned(members)
    name = members[0].store.peer_name(deadline=soon())
    for _ in range(2):
        cluster.nodes[0].kill(lose_data=lose_data)
        for member in members:
            assert isinstance(member.event(), SessionLost)
        cluster.start()
        incarnations = set()
        for member in members:
            restored = member.event()
            assert isinstance(restored, SessionRestored)
            assert restored.refused == ()
            incarnations.add(restored.incarnation)
        assert len(incarnations) == 1
        wait_until(lambda: members[0].store.prefix("", deadline=soon()).entries == expected)
        for member in members:
            member.seen.until(lambda view: view == expected)
    assert members[0].store.peer_name(deadline=soon()) == name
    with EtcdStore(members[0].store.url) as newcomer:
        assert newcomer.hold_range("range", 1 << 40, deadline=soon()) == members[0].base
        assert newcomer.claim_rank("g", 8, b"", deadline=soon()) == 3


def test_what_others_took_meanwhile_is_refused(cluster: EtcdCluster) -> None:
    """A member whose heartbeats stop loses its lease; when it comes back, others have what it had."""
    url = cluster.url()
    late = Member(url, 0, heartbeat_timeout_s=1.0)
    channel = late.store._session._channel
    assert channel is not None
    heartbeat = channel._heartbeat
    assert heartbeat is not None
    with EtcdStore(url, heartbeat_timeout_s=1.0) as other:
        gone = Seen()
        other.watch("key/0", gone, deadline=soon())
        with _stopped_thread(late.store):
            heartbeat.stop()
            gone.next()
            gone.until(lambda view: not view)
            other.set("key/0", b"taken", deadline=soon())
            assert other.claim_rank("g", 8, b"", deadline=soon()) == 0
        assert isinstance(late.event(), SessionLost)
        restored = late.event()
        assert isinstance(restored, SessionRestored)
        assert [(refusal.kind, refusal.name) for refusal in restored.refused] == [("rank", "g/0"), ("key", "key/0")]
        assert other.get("key/0", deadline=soon()) == b"taken"
    late.store.close()


class _stopped_thread:
    """The event thread of a participant hangs in a callback."""

    def __init__(self, store: EtcdStore) -> None:
        self._store = store
        self._inside, self._release = threading.Event(), threading.Event()

    def __enter__(self) -> None:
        def hang(update: WatchUpdate) -> None:
            if not update.snapshot:
                self._inside.set()
                self._release.wait(PATIENCE_S)

        watch = self._store.watch("hang", hang, deadline=soon())
        self._store.set("hang", b"", deadline=soon())
        assert self._inside.wait(PATIENCE_S)
        watch.close()

    def __exit__(self, *_: object) -> None:
        self._release.set()


def test_calls_wait_for_etcd_up_to_their_deadline(
    cluster: EtcdCluster, members: list[Member], pool: ThreadPoolExecutor
) -> None:
    store = members[0].store
    cluster.nodes[0].kill()
    with pytest.raises(TimedOut, match=f"store {store.url} could not be reached within 0.3 s: tried"):
        store.get("k", deadline=Deadline(0.3))
    calls: list[Callable[[], object]] = [
        lambda: store.set("k", b"v", deadline=soon()),
        lambda: store.set("ephemeral", b"v", ephemeral=True, deadline=soon()),
        lambda: store.claim_rank("h", 8, b"", deadline=soon()),
        lambda: store.gather("other", 0, 0, 1, b"part", deadline=soon()),
    ]
    waiting = [pool.submit(call) for call in calls]
    cluster.start()
    for each in waiting:
        each.result(PATIENCE_S)
    assert store.get("k", deadline=soon()) == b"v"


def test_a_wait_goes_on_after_etcd_was_restarted(
    cluster: EtcdCluster, members: list[Member], pool: ThreadPoolExecutor
) -> None:
    gathering = pool.submit(members[0].store.gather, "x", 0, 0, 2, b"a", deadline=soon())
    waiting = pool.submit(members[0].store.wait, "awaited", deadline=soon())
    wait_until(lambda: bool(members[0].store._gathering._under_way))
    cluster.nodes[0].kill(lose_data=True)
    cluster.start()
    members[1].store.set("awaited", b"v", deadline=soon())
    assert waiting.result(PATIENCE_S) == b"v"
    assert members[1].store.gather("x", 0, 1, 2, b"b", deadline=soon()) == [b"a", b"b"]
    assert gathering.result(PATIENCE_S) == [b"a", b"b"]


def test_gathers_go_on_when_leases_are_lost(cluster: EtcdCluster, pool: ThreadPoolExecutor) -> None:
    """With their leases the arrivals go; whoever waits arrives again, and no round fails or mixes parts."""
    url = cluster.url()
    members, over = [Member(url, number) for number in range(3)], threading.Event()
    rounds = [pool.submit(_gather_until, member, over) for member in members]
    for member in members * 3:
        revoke(member.store._scope, soon().at)
        assert member.check_restored()
    over.set()
    assert len({each.result(PATIENCE_S) for each in rounds}) == 1
    for member in members:
        member.store.close()


# --- a cluster of three nodes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_one_node_of_three_is_lost_under_load(
    cluster3: EtcdCluster, pool: ThreadPoolExecutor, how: signal.Signals
) -> None:
    """Nobody's rank changes, control calls go on, and the program hears nothing of it."""
    url = cluster3.url()
    members = [Member(url, number) for number in range(3)]
    expected, over = owned(members), threading.Event()
    rounds = [pool.submit(_gather_until, member, over) for member in members]
    for node in cluster3.nodes if how == signal.SIGKILL else cluster3.nodes[:1]:
        _lose(node, how)
        before = _number(members[0].store)
        for _ in range(3):
            for member in members:
                _add(member.store, "progress")
        assert _number(members[0].store) > before
        if how == signal.SIGSTOP:
            node.signal(signal.SIGCONT)
        else:
            cluster3.start()
        node.wait_until_it_serves()
    over.set()
    assert len({each.result(PATIENCE_S) for each in rounds}) == 1
    entries = members[0].store.prefix("", deadline=soon()).entries
    assert {key: value for key, value in entries.items() if key in expected} == expected
    for member in members:
        assert member.events.empty(), member.events.get()
        member.store.close()


def _lose(node: EtcdNode, how: signal.Signals) -> None:
    if how == signal.SIGKILL:
        node.kill()
    else:
        node.signal(how)


def _number(store: EtcdStore) -> int:
    return int(store.get("progress", deadline=soon()) or 0)


def _add(store: EtcdStore, key: str) -> None:
    """As a program has to do it: an outcome can be unknown when a node is lost."""
    with suppress(NotConnected):
        store.add(key, 1, deadline=soon())


def _gather_until(member: Member, over: threading.Event) -> int:
    """Rounds until one of them says that it is the last."""
    for number in range(1_000_000):
        said = b"last" if over.is_set() else b"%d" % number
        parts = member.store.gather("load", number, member.rank, 3, said, deadline=soon())
        if b"last" in parts:
            return number
        assert parts == [b"%d" % number] * 3
    raise AssertionError("it never ends")


def test_the_list_may_begin_with_one_that_is_not_there(cluster: EtcdCluster) -> None:
    good = cluster.nodes[0].address
    with EtcdStore(f"etcd://127.0.0.1:1,{good}#a") as store:
        assert store.set("k", b"v", ephemeral=True, deadline=soon()) > 0
        store.update_url(parse_url(f"etcd://{good}#b"))
        wait_until(lambda: store.get("k", deadline=soon()) == b"v")


# --- the process itself ---------------------------------------------------------------------------------------------


def test_a_member_that_holds_the_gil_stays_alive(cluster: EtcdCluster) -> None:
    url = cluster.url()
    with Cluster(1, target="store.server_worker") as workers, EtcdStore(url) as store:
        assert workers.call(0, "join_etcd", url, 1.0) == 0
        seen = Seen()
        store.watch("ephemeral", seen, deadline=soon())
        workers.call(0, "hold_the_gil", 2.5)
        assert store.get("ephemeral", deadline=soon()) == b"here"
        assert seen.next().snapshot
        assert seen.empty, "it was never gone"
        workers.kill(0)
        seen.until(lambda view: not view)


def test_a_stopped_member_comes_back(cluster: EtcdCluster) -> None:
    url = cluster.url()
    with Cluster(1, target="store.server_worker") as workers, EtcdStore(url) as store:
        assert workers.call(0, "join_etcd", url, 1.0) == 0
        seen = Seen()
        store.watch("", seen, deadline=soon())
        seen.until(lambda view: set(view) == {"ephemeral", "g/0"})
        workers.kill(0, signal.SIGSTOP)
        seen.until(lambda view: not view)
        workers.kill(0, signal.SIGCONT)
        seen.until(lambda view: view == {"ephemeral": b"here", "g/0": b"member"})
