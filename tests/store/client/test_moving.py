"""The store moves to another address: its clients follow, and nobody counts as gone on the way."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from memfabric_hybrid.errors import InvalidParam
from memfabric_hybrid.store import SessionEvent, SessionLost, SessionRestored, StoreServer, parse_url
from memfabric_hybrid.store.client.client import StoreClient
from store.worlds import PATIENCE_S, Seen, soon, wait_until
from support.pause_points import held
from support.ports import reserved_port


@pytest.fixture
def other() -> Iterator[StoreServer]:
    """A store at another address."""
    with reserved_port() as port:
        server = StoreServer(f"tcp://127.0.0.1:{port}")
        server.start()
        yield server
        server.stop()


def is_restored(events: list[SessionEvent]) -> bool:
    return any(isinstance(event, SessionRestored) for event in events)


def test_calls_under_way_follow(server: StoreServer, other: StoreServer) -> None:
    events: list[SessionEvent] = []
    with StoreClient(server.url, on_session=events.append) as client, ThreadPoolExecutor(1) as pool:
        client.claim_rank("g", 4, b"v", deadline=soon())
        waiting = pool.submit(client.wait, "k", deadline=soon())
        client.update_url(client.url)
        client.update_url(other.url)
        wait_until(lambda: is_restored(events))
        with StoreClient(other.url) as there, StoreClient(server.url) as here:
            assert there.get("g/0", deadline=soon()) == b"v"
            wait_until(lambda: here.get("g/0", deadline=soon()) is None)
            there.set("k", b"moved", deadline=soon())
        assert waiting.result(PATIENCE_S) == b"moved"
        with pytest.raises(InvalidParam):
            client.update_url(parse_url("etcd://127.0.0.1:1"))
        assert client.url == other.url


def test_those_who_have_not_heard_of_it_do_not_take_the_moved_for_gone(server: StoreServer, other: StoreServer) -> None:
    """The old store still runs: silence is given one heartbeat time-out there, as at the new place."""
    seen = Seen()
    with StoreClient(server.url, heartbeat_timeout_s=1.0) as client, StoreClient(server.url) as late:
        client.claim_rank("g", 4, b"v", deadline=soon())
        late.watch("g/", seen, deadline=soon())
        assert seen.next().entries == {"g/0": b"v"}
        client.update_url(other.url)
        with StoreClient(other.url) as there:
            wait_until(lambda: there.get("g/0", deadline=soon()) == b"v")
        assert late.get("g/0", deadline=soon()) == b"v"
        assert seen.empty
        seen.until(lambda view: not view)
        client.update_url(server.url)  # and back again
        seen.until(lambda view: view == {"g/0": b"v"})


def test_a_client_that_got_there_first_stays_there(server: StoreServer, other: StoreServer) -> None:
    """It looks for a lost store, finds the new place, and only then the call that told it of it goes on.

    Broken off, its session would end there, and all others would take it for gone until it is back.
    """
    events: list[SessionEvent] = []
    with StoreClient(server.url, on_session=events.append) as client, ThreadPoolExecutor(1) as pool:
        client.claim_rank("g", 4, b"v", deadline=soon())
        server.stop()
        wait_until(lambda: any(isinstance(event, SessionLost) for event in events))
        with held("store.update_url.pointed") as point:
            moving = pool.submit(client.update_url, other.url)
            point.wait_until_reached()
            wait_until(lambda: is_restored(events))
            assert client.get("g/0", deadline=soon()) == b"v"
            generation = client._channel.ready(soon())
        moving.result(PATIENCE_S)
        assert client.get("g/0", deadline=soon()) == b"v"
        assert client._channel.ready(soon()) == generation
        assert sum(isinstance(event, SessionLost) for event in events) == 1


def test_an_attempt_that_leads_to_the_old_place_does_not_count(server: StoreServer, other: StoreServer) -> None:
    """The old store still answers, and the connection there is made just when the client is told to go elsewhere."""
    with StoreClient(server.url) as client, StoreClient(other.url) as there:
        client.claim_rank("g", 4, b"v", deadline=soon())
        with held("store.hand_over.greeted") as point:
            client._channel.renew()
            point.wait_until_reached()
            client.update_url(other.url)
        wait_until(lambda: there.get("g/0", deadline=soon()) == b"v")
