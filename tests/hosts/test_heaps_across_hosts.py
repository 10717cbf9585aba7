"""Share Memory's collectives between hosts, which go through the store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import host_members, hosts
from support.hosts import Network
from support.workers import Cluster

pytestmark = hosts.needs_root
GONE = -2014


@pytest.fixture
def cluster(hosts3: Network) -> Iterator[Cluster]:
    """Six ranks, two on each host; rank 0 runs the store."""
    environment = {"MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S": "1"}
    with Cluster(6, "support.heap_worker", environment=environment, places=hosts3.places(2)) as cluster:
        heaps = cluster.call_all("take_part", host_members.store_url(hosts3), 6)
        assert len(set(heaps)) == 1
        yield cluster


def test_barriers_and_gathers(cluster: Cluster) -> None:
    assert cluster.call_all("barriers", 20) == [[]] * 6
    assert cluster.call_all("gathered_rounds", 10, [1, 1000, 60_000]) == [0] * 6


def test_a_lost_host_ends_the_barriers_of_the_others(hosts3: Network, cluster: Cluster) -> None:
    waiting = [cluster.begin(rank, "timed", "barrier") for rank in range(4)]
    hosts3.hosts[2].link_down()
    for wait in waiting:
        _, code, sentence = wait.result()
        assert code == GONE
        assert "rank 4 is gone" in sentence or "rank 5 is gone" in sentence
