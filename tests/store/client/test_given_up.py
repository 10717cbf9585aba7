"""A call that is given up: what it asked for may be on its way for a while, and is not done behind what came later."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import TimedOut
from memfabric_hybrid.store import SessionEvent, SessionLost, SessionRestored, StoreServer
from memfabric_hybrid.store.client import dialer
from memfabric_hybrid.store.client.client import StoreClient
from store.relay import Relay, Way
from store.worlds import PATIENCE_S, soon, wait_until
from support import pause_points

SHORT_S = 0.5


@pytest.fixture
def relay(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    """Everything goes through it, also on this host."""
    monkeypatch.setattr(dialer, "connect_local", lambda *_, **__: None)
    with closing(Relay(server.url.port)) as relay:
        yield relay


@pytest.fixture
def events() -> queue.SimpleQueue[SessionEvent]:
    return queue.SimpleQueue()


@pytest.fixture
def client(relay: Relay, events: queue.SimpleQueue[SessionEvent]) -> Iterator[StoreClient]:
    with StoreClient(relay.url, on_session=events.put) as client:
        client.set("mine", b"", ephemeral=True, deadline=soon())
        events.get(timeout=PATIENCE_S)
        yield client


def way_of_requests(relay: Relay) -> Way:
    """The event channel came first."""
    _, way = relay.ways
    return way


def test_an_ephemeral_key_that_comes_late_is_nobodys(
    server: StoreServer, relay: Relay, client: StoreClient, events: queue.SimpleQueue[SessionEvent]
) -> None:
    way = way_of_requests(relay)
    way.hold()
    with pytest.raises(TimedOut, match="it may still be carried out"):
        client.set("late", b"v", ephemeral=True, deadline=Deadline(SHORT_S))
    assert b"late" in way.held
    assert isinstance(events.get(timeout=PATIENCE_S), SessionLost)
    assert events.get(timeout=PATIENCE_S) == SessionRestored(server.state.incarnation, ())
    way.release()
    assert client.get("late", deadline=soon()) is None
    assert client.get("mine", deadline=soon()) == b""


def test_a_value_that_comes_late_does_not_replace_a_newer_one(relay: Relay, client: StoreClient) -> None:
    way = way_of_requests(relay)
    way.hold()
    with pytest.raises(TimedOut, match="it may still be carried out"):
        client.set("k", b"older", deadline=Deadline(SHORT_S))
    client.set("k", b"newer", deadline=soon())
    way.release()
    assert client.get("k", deadline=soon()) == b"newer"


@pytest.mark.parametrize("ephemeral", [False, True])
def test_what_was_sent_twice_is_not_done_behind_what_came_later(
    relay: Relay, client: StoreClient, pool: ThreadPoolExecutor, ephemeral: bool
) -> None:
    way = way_of_requests(relay)
    way.hold()
    repeated = pool.submit(client.set, "k", b"v", ephemeral=ephemeral, deadline=soon())
    wait_until(lambda: b"v" in way.held)
    way.lose()
    repeated.result(PATIENCE_S)
    client.delete("k", deadline=soon())
    way.release()
    assert client.get("k", deadline=soon()) is None


def test_connections_from_before_are_not_used_again(
    server: StoreServer, relay: Relay, client: StoreClient, pool: ThreadPoolExecutor
) -> None:
    """The store hears what was given up in a greeting: who has greeted before cannot have said it."""
    way = way_of_requests(relay)
    way.hold()
    late = pool.submit(client.set, "k", b"older", deadline=Deadline(SHORT_S))
    wait_until(lambda: b"older" in way.held)
    earlier = pool.submit(client.wait, "go", deadline=soon())
    wait_until(lambda: len(relay.ways) == 3)
    with pytest.raises(TimedOut):
        late.result(PATIENCE_S)
    with StoreClient(server.url) as other:
        other.set("go", b"", deadline=soon())
    earlier.result(PATIENCE_S)
    client.set("k", b"newer", deadline=soon())
    assert len(relay.ways) == 4, "the third one is back, and is not used"
    way.release()
    assert client.get("k", deadline=soon()) == b"newer"


@pytest.mark.parametrize("point", ["store.hand_over.greeted", "store.hand_over.accepted"])
def test_a_hand_over_under_way_is_followed_by_another(
    relay: Relay, client: StoreClient, pool: ThreadPoolExecutor, events: queue.SimpleQueue[SessionEvent], point: str
) -> None:  # fmt: skip
    """A call waits for its answer while the event channel is lost and found again, and is given up before that ends."""
    way = way_of_requests(relay)
    way.hold()
    late = pool.submit(client.set, "late", b"v", ephemeral=True, deadline=Deadline(SHORT_S))
    wait_until(lambda: b"late" in way.held)
    with pause_points.held(point) as handing_over:
        client._channel.renew()
        handing_over.wait_until_reached()
        with pytest.raises(TimedOut):
            late.result(PATIENCE_S)
    seen = [events.get(timeout=PATIENCE_S) for _ in range(4)]
    assert [type(event) for event in seen] == [SessionLost, SessionRestored] * 2
    way.release()
    assert client.get("late", deadline=soon()) is None
    assert client.get("mine", deadline=soon()) == b""
