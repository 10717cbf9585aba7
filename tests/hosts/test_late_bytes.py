"""What a copy has given up never arrives later, over what was written since."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memfabric_hybrid.clock import Deadline
from support import host_members, hosts
from support.hosts import Network
from support.workers import Cluster

pytestmark = hosts.needs_root
WRITER, TARGET, TARGETS_RANK = 1, 3, 2
SIZE = 16 * 1024
OPERATION_TIMEOUT_S = 2
REPEATS_S = 3.0  # a kernel that went on sending would have sent again by then


@pytest.fixture
def cluster(hosts3: Network) -> Iterator[Cluster]:
    """Nobody is given up while a cable is pulled: only the copy is."""
    environment = {"MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S": "60"}
    places = [hosts3.hosts[0].place, *hosts3.places(2)]
    with Cluster(len(places), "support.pool_worker", environment=environment, places=places) as cluster:
        url = host_members.store_url(hosts3)
        host_members.start_store(cluster, url)
        for index in (WRITER, 2, TARGET):
            assert host_members.take_part(cluster, index, url, operation_timeout=OPERATION_TIMEOUT_S) == index - 1
        host_members.write(cluster, WRITER, TARGET)
        yield cluster


def test_bytes_that_were_given_up_do_not_come_when_the_cable_is_back(hosts3: Network, cluster: Cluster) -> None:
    hosts3.hosts[1].link_down()
    code, why = cluster.call(WRITER, "write", TARGETS_RANK, 0, b"o" * SIZE)
    assert code in (-2004, -2012, -2014), why
    hosts3.hosts[1].link_up()
    deadline = Deadline(20)
    while (answer := cluster.call(WRITER, "write", TARGETS_RANK, 0, b"n" * SIZE)) != (0, ""):
        assert not deadline.expired, answer
    watched = Deadline(REPEATS_S)
    while not watched.expired:
        assert cluster.call(TARGET, "load", TARGETS_RANK, 0, SIZE) == b"n" * SIZE
