"""Worlds in which nobody is told of everybody: ranks of other hosts become known when somebody has to do with them.

Three hosts, two ranks on each, and a limit of one rank: for these processes the world is large.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import host_members, hosts
from support.host_members import MEMBERS, RANKS, STORE
from support.hosts import Network
from support.workers import Cluster

pytestmark = hosts.needs_root
ON_FIRST, ON_SECOND = 7, 8  # who wait, and where
ENVIRONMENT = {"MF_FOLLOW_ALL": "1", "MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S": "2"}


@pytest.fixture
def cluster(hosts3: Network) -> Iterator[Cluster]:
    """Worker 0 runs the store, 1 to 6 have joined as ranks 0 to 5, two more wait to take a dead one's rank."""
    places = [hosts3.hosts[0].place, *hosts3.places(2), hosts3.hosts[0].place, hosts3.hosts[1].place]
    with Cluster(9, "support.pool_worker", environment=ENVIRONMENT, places=places) as cluster:
        url = host_members.store_url(hosts3)
        host_members.start_store(cluster, url)
        for index in MEMBERS:
            settings = {"start_store": False}
            assert cluster.call(index, "take_part", url, host_members.WORLD, settings=settings) == index - 1
        yield cluster


def replace_rank_5(cluster: Cluster, index: int, network: Network) -> None:
    settings = {"start_store": False}
    url = host_members.store_url(network)
    assert cluster.call(index, "take_part", url, host_members.WORLD, settings=settings) == 5


def test_nobody_hears_of_other_hosts_without_need(cluster: Cluster) -> None:
    views = cluster.call_all("known", indices=MEMBERS)
    assert views == [[0, 1], [0, 1], [2, 3], [2, 3], [4, 5], [4, 5]]


def test_the_first_copy_finds_its_rank_and_its_neighbours(cluster: Cluster) -> None:
    host_members.write(cluster, 1, 3)
    assert cluster.call(1, "known") == [0, 1, 2, 3], "its host is followed from now on"
    host_members.write(cluster, 1, 4)
    assert cluster.call(3, "known") == [2, 3], "who is written to need not know"


def test_a_batch_finds_all_of_its_ranks(cluster: Cluster) -> None:
    own = cluster.call(1, "address", 0)
    targets = [cluster.call(1, "address", rank) for rank in (1, 2, 4)]
    cluster.call(1, "store", 0, 0, b"to many")
    code, why = cluster.call(1, "call", "copy_data_batch", [own] * 3, targets, [7] * 3, 3, 9)
    assert code == 0, why
    for rank in (1, 2, 4):
        assert cluster.call(rank + 1, "load", rank, 0, 7) == b"to many"


def test_put_get_and_routes_find_their_rank(cluster: Cluster) -> None:
    assert cluster.call(1, "call", "put", b"words", 2) == (None, "")
    assert cluster.call(3, "load", 2, 0, 5) == b"words"
    assert cluster.call(5, "call", "get", 2, out=bytearray(5)) == (b"words", "")
    assert cluster.call(6, "route", 0)[0] == "tcp"
    assert cluster.call(6, "known") == [0, 1, 4, 5]


def test_whoever_asks_for_all_hears_of_all(cluster: Cluster) -> None:
    assert cluster.call(1, "ranks") == RANKS
    cluster.call(4, "record_events")
    cluster.kill(6)
    for index in (1, 4):
        cluster.call(index, "wait_for_view", [0, 1, 2, 3, 4])
    assert cluster.call(4, "wait_for_events", 1)[-1] == (5, "LEAVE_EVENT")


def test_ranks_are_waited_for_wherever_they_come(cluster: Cluster, hosts3: Network) -> None:
    """Rank 5 dies, and comes again on another host while somebody waits for it there."""
    cluster.kill(6)
    waiting = cluster.begin(1, "wait_for", [2, 5], 20.0)
    replace_rank_5(cluster, ON_SECOND, hosts3)
    waiting.result()
    assert cluster.call(1, "known") == [0, 1, 2, 3, 5], "and of nobody else"


def test_a_rank_that_came_again_elsewhere_is_found_there(cluster: Cluster, hosts3: Network) -> None:
    host_members.write(cluster, 1, 6)
    cluster.kill(6)
    host_members.wait_until_left(cluster, 1, 5)
    replace_rank_5(cluster, ON_FIRST, hosts3)
    host_members.write(cluster, 1, ON_FIRST)
    host_members.write(cluster, 3, ON_FIRST)
    assert cluster.call(1, "route", 5)[0] == "mapped"
    assert cluster.call(3, "route", 5)[0] == "tcp"


def test_a_restarted_store_changes_nothing_for_who_is_known(cluster: Cluster, hosts3: Network) -> None:
    host_members.write(cluster, 1, 3)
    cluster.kill(STORE)
    host_members.write(cluster, 1, 4)
    code, why = cluster.call(1, "write", 4, 0, b"?")
    assert (code, "rank 4 has not joined" in why) == (-2014, True), why
    cluster.start(STORE)
    host_members.start_store(cluster, host_members.store_url(hosts3))
    host_members.wait_until_registered(hosts3, len(RANKS))
    host_members.write(cluster, 1, 5, within_s=10.0)
    assert cluster.call(1, "known") == RANKS
