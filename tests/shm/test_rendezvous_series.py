"""Members that meet in the store stay in step, though the store is lost between its answers, or stands still."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import NotConnected, TimedOut
from memfabric_hybrid.shm.rendezvous_series import RendezvousSeries
from memfabric_hybrid.shm.store_subgroups import StoreSubgroups
from memfabric_hybrid.store import Store, StoreServer
from memfabric_hybrid.store.client.client import StoreClient
from support.workers import Cluster

PATIENCE_S = 20.0


def nobody_failed(members: frozenset[int] | None = None) -> None:
    """Everybody lives."""


class Disturbed:
    """A store of which something befalls one gather: what `befalls` does after it, before it is done again."""

    def __init__(self, store: Store, number: int, befalls: Callable[[], None]) -> None:
        self._store = store
        self._gathers = itertools.count(1)
        self._number = number
        self._befalls = befalls

    def gather(self, *args: Any, **kwargs: Any) -> list[bytes]:
        result = self._store.gather(*args, **kwargs)
        if next(self._gathers) == self._number:
            self._befalls()
            return self._store.gather(*args, **kwargs)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.fixture
def servers(store_url: str) -> Iterator[list[StoreServer]]:
    """The last one runs."""
    made = [StoreServer(store_url)]
    made[0].start()
    yield made
    made[-1].stop()


def restart(servers: list[StoreServer]) -> None:
    servers[-1].stop()
    servers.append(StoreServer(servers[0].url))
    servers[-1].start()


@pytest.mark.parametrize("number", [1, 2])
def test_who_has_missed_the_answer_catches_up(servers: list[StoreServer], number: int) -> None:
    """The store dies when one has its answer and the other has not: the first is at the next step already."""
    url = servers[0].url
    with StoreClient(url) as ahead, StoreClient(url) as behind, ThreadPoolExecutor(2) as pool:
        for rank, store in enumerate((ahead, behind)):
            assert store.claim_rank("shm/ranks", 2, b"", wanted=rank, deadline=Deadline(PATIENCE_S)) == rank
        disturbed: Any = Disturbed(behind, number, lambda: restart(servers))
        both = [RendezvousSeries(store, "shm-0-hosts/x", place, 2) for place, store in enumerate((ahead, disturbed))]
        met = [pool.submit(_meet_often, series, place, 4) for place, series in enumerate(both)]
        expected = [[b"%d of 0" % step, b"%d of 1" % step] for step in range(4)]
        assert [each.result(PATIENCE_S) for each in met] == [expected, expected]
        assert ahead.prefix("shm-0-hosts/x/met/", deadline=Deadline(PATIENCE_S)).entries == {}, "nothing is left"


def _meet_often(series: RendezvousSeries, place: int, count: int) -> list[list[bytes]]:
    return [series.next(b"%d of %d" % (step, place), Deadline(PATIENCE_S), nobody_failed) for step in range(count)]


def test_other_data_than_what_was_counted_is_no_success(servers: list[StoreServer]) -> None:
    """A call timed out and has happened after all; the next one brings something else."""
    url = servers[0].url
    with StoreClient(url) as ahead, StoreClient(url) as behind, ThreadPoolExecutor(1) as pool:
        for rank, store in enumerate((ahead, behind)):
            assert store.claim_rank("shm/ranks", 2, b"", wanted=rank, deadline=Deadline(PATIENCE_S)) == rank
        first, second = RendezvousSeries(ahead, "shm-0-hosts/x", 0, 2), RendezvousSeries(behind, "shm-0-hosts/x", 1, 2)
        pending = pool.submit(first.next, b"a", Deadline(PATIENCE_S), nobody_failed)
        behind.gather("shm-0-hosts/x", 0, 1, 2, b"counted", deadline=Deadline(PATIENCE_S))  # and its answer is lost
        assert pending.result(PATIENCE_S) == [b"a", b"counted"]
        ended = threading.Event()
        pending = pool.submit(first.next, b"b", Deadline(PATIENCE_S), lambda: _raise_if(ended))
        with pytest.raises(NotConnected, match="this call brings something else; create the object again"):
            second.next(b"another", Deadline(PATIENCE_S), nobody_failed)
        assert second.next(b"counted", Deadline(PATIENCE_S), nobody_failed) == [b"a", b"counted"]
        ended.set()
        with pytest.raises(NotConnected, match="ended"):
            pending.result(PATIENCE_S)


def _raise_if(ended: threading.Event) -> None:
    if ended.is_set():
        raise NotConnected("ended")


@pytest.mark.parametrize("number", range(1, 5))  # who is ahead shows the last step when it waits at the next
def test_a_subgroup_whose_member_gives_up_does_not_mix_its_steps(servers: list[StoreServer], number: int) -> None:
    """Its call timed out when others had gone on, and is made anew."""

    def give_up() -> None:
        raise TimedOut("forced")

    url = servers[0].url
    with StoreClient(url) as one, StoreClient(url) as other, ThreadPoolExecutor(2) as pool:
        for rank, store in enumerate((one, other)):
            assert store.claim_rank("shm/ranks", 2, b"", wanted=rank, deadline=Deadline(PATIENCE_S)) == rank
        disturbed: Any = Disturbed(other, number, give_up)
        subgroups = [
            StoreSubgroups(store, "shm-0-hosts/x-subgroup", rank, nobody_failed)
            for rank, store in enumerate((one, disturbed))
        ]
        gathered = [pool.submit(_gather_often, each, rank, 5) for rank, each in enumerate(subgroups)]
        expected = [b"step %d of 0step %d of 1" % (step, step) for step in range(5)]
        assert [each.result(PATIENCE_S) for each in gathered] == [expected, expected]


def _gather_often(subgroups: StoreSubgroups, rank: int, count: int) -> list[bytes]:
    gathered = []
    while len(gathered) < count:
        try:
            gathered.append(subgroups.gather("key", 2, rank, b"step %d of %d" % (len(gathered), rank), PATIENCE_S))
        except TimedOut:
            continue
    return gathered


def test_a_store_that_stands_still_counts_nobody_twice(store_url: str) -> None:
    """Whoever looks around meanwhile asks again, and both requests reach the store when it goes on."""
    with Cluster(1, "store.server_worker") as store, ThreadPoolExecutor(2) as pool:
        store.call(0, "serve", store_url)
        with StoreClient(store_url) as one, StoreClient(store_url) as other:
            over = threading.Event()
            clients = [RendezvousSeries(client, "free", place, 2) for place, client in enumerate((one, other))]
            rounds = [pool.submit(_meet_until, series, over) for series in clients]
            for _ in range(3):
                store.kill(0, signal.SIGSTOP)
                time.sleep(1.0)  # longer than a look and its answer
                store.kill(0, signal.SIGCONT)
                time.sleep(0.1)  # some rounds
            over.set()
            counts = [each.result(PATIENCE_S) for each in rounds]
            assert counts[0] == counts[1] > 3


def _meet_until(series: RendezvousSeries, over: threading.Event) -> int:
    """Rounds until one of them says that it is the last."""
    for number in itertools.count():
        said = b"last" if over.is_set() else b"%d" % number
        parts = series.next(said, Deadline(PATIENCE_S), nobody_failed)
        if b"last" in parts:
            return number
        assert parts == [said] * 2
    raise AssertionError("unreachable")
