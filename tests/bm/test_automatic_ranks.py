"""Automatic ranks of processes that start together: the one that starts the store is rank 0, as programs expect."""

from __future__ import annotations

from typing import Any

import pytest

from memfabric_hybrid import bm
from memfabric_hybrid.store.server import hosting
from support import pool_worker
from support.pause_points import held
from support.threads import Beside, wait_until

STARTS = 32
CONNECTING = "member.enter.connecting"  # the store listens, the process that runs it has no rank yet


def held_hellos() -> int:
    """How many connections to the store of this process have said Hello and got no answer."""
    return sum(len(server.state.held_hellos) for server in hosting._servers.values())


@pytest.mark.own_store
def test_who_starts_the_store_is_rank_0(store_url: str, workers: Any) -> None:
    """All others come while it stands between listening and claiming its rank."""
    with workers(3) as cluster:
        for start in range(STARTS):
            with held(CONNECTING) as point:
                starting = Beside(lambda: pool_worker.enter(store_url, 4))
                point.wait_until_reached()
                others = [cluster.begin(index, "enter", store_url, 4) for index in range(3)]
                wait_until(lambda: held_hellos() >= 3 or all(other.ready() for other in others))  # noqa: B023
            assert starting.result() == (0, "")
            assert [other.result() for other in others] == [(0, "")] * 3
            assert pool_worker.rank() == 0, f"at start {start}"
            assert sorted(cluster.call_all("rank")) == [1, 2, 3]
            cluster.call_all("uninitialize")
            pool_worker.uninitialize()


@pytest.mark.own_store
def test_starting_the_store_and_failing_leaves_the_others_a_store(store_url: str, workers: Any) -> None:
    """Those whose Hellos are held find that the store is gone, and one of them starts another."""
    with workers(2) as cluster, held(CONNECTING) as point:
        starting = Beside(lambda: pool_worker.enter(store_url, 4))
        point.wait_until_reached()
        others = [cluster.begin(index, "enter", store_url, 4) for index in range(2)]
        wait_until(lambda: held_hellos() >= 2)
        ending = Beside(pool_worker.uninitialize)
        point.release()
        assert starting.result()[0] == -2008
        ending.result()
        assert [other.result() for other in others] == [(0, "")] * 2
        assert sorted(cluster.call_all("rank")) == [0, 1]


@pytest.mark.own_store
def test_store_that_another_capability_shares_is_opened_by_a_failure(store_url: str, workers: Any) -> None:
    with workers(1) as cluster, held(CONNECTING) as point:
        starting = Beside(lambda: pool_worker.enter(store_url, 4))
        point.wait_until_reached()
        url = next(iter(hosting._servers))
        hosting.host(url, "test")
        try:
            other = cluster.begin(0, "enter", store_url, 4)
            wait_until(lambda: held_hellos() >= 1)
            ending = Beside(bm.uninitialize)
            point.release()
            assert starting.result()[0] == -2008
            ending.result()
            assert other.result() == (0, "")
            assert cluster.call(0, "rank") == 0
            cluster.call(0, "uninitialize")
        finally:
            hosting.release(url, "test")
