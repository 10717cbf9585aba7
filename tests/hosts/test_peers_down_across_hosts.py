"""The peer-down callback across hosts: a cable that is pulled is not the last thing that is heard of a peer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memfabric_hybrid.clock import Deadline
from support import hosts
from support.hosts import Network
from support.workers import Cluster

pytestmark = hosts.needs_root
NEAR, FAR = 0, 1
SOON_S = 20.0


@pytest.fixture
def cluster(hosts3: Network) -> Iterator[Cluster]:
    environment = {"MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S": "1", "MF_TRANSFER_TIMEOUT_MS": "1000"}
    places = [host.place for host in hosts3.hosts[:2]]
    with Cluster(2, "support.transfer_worker", environment=environment, places=places) as made:
        yield made


def test_end_of_a_peer_that_has_come_back_is_told_as_well(hosts3: Network, cluster: Cluster) -> None:
    for index in (NEAR, FAR):
        session = cluster.call(index, "start", f"{hosts3.hosts[index].address}:0")
    cluster.call(NEAR, "record_downs")
    assert cluster.call(NEAR, "call", "send_probe", session) == (0, "")
    hosts3.hosts[FAR].link_down()
    assert cluster.call(NEAR, "wait_for_downs", 1, SOON_S) == [session]
    hosts3.hosts[FAR].link_up()
    deadline = Deadline(SOON_S)
    while (answer := cluster.call(NEAR, "call", "send_probe", session)) != (0, ""):
        assert not deadline.expired, answer
    cluster.kill(FAR)
    assert cluster.call(NEAR, "wait_for_downs", 2, SOON_S) == [session, session]
