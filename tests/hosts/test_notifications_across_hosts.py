"""Notifications between hosts: in order, after the bytes, and not for ever when the other host has vanished."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import hosts
from support.hosts import Network
from support.workers import Cluster

pytestmark = hosts.needs_root

HEARTBEAT_S = 2
SIZE = 4 << 20


@pytest.fixture
def cluster(hosts3: Network) -> Iterator[Cluster]:
    """One engine on each of two hosts."""
    places = [hosts3.hosts[0].place, hosts3.hosts[1].place]
    environment = {"MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S": str(HEARTBEAT_S), "MF_TRANSFER_TIMEOUT_MS": "20000"}
    with Cluster(2, "support.transfer_worker", environment=environment, places=places) as made:
        yield made


def started(cluster: Cluster, network: Network) -> list[str]:
    return [cluster.call(index, "start", f"{network.hosts[index].address}:0") for index in range(2)]


def test_both_ways_and_in_order(hosts3: Network, cluster: Cluster) -> None:
    sessions = started(cluster, hosts3)
    assert cluster.call(0, "route", sessions[1])[0] == "tcp"
    sending = [cluster.begin(index, "notify_many", sessions[1 - index], 500) for index in range(2)]
    for pending in sending:
        pending.result()
    for index in range(2):
        expected = [(sessions[1 - index], b"%d" % number) for number in range(500)]
        assert cluster.call(index, "wait_for_notifications", 500) == expected
    assert cluster.call(0, "call", "notify", sessions[1], bytes(32768))[0] == 0
    assert cluster.call(1, "wait_for_notifications", 1) == [(sessions[0], bytes(32768))]


@pytest.mark.parametrize("delay_ms", [0, 5])
def test_the_bytes_are_there_before_it(hosts3: Network, cluster: Cluster, delay_ms: int) -> None:
    sessions = started(cluster, hosts3)
    if delay_ms:
        hosts3.hosts[1].delay(delay_ms)
    address = cluster.call(1, "open_memory", "target", SIZE)
    checking = cluster.begin(1, "check_turns", sessions[0], "target", 12)
    cluster.call(0, "write_turns", sessions[1], address, SIZE, 12)
    checking.result()


def test_a_host_that_vanishes_is_not_waited_for(hosts3: Network, cluster: Cluster) -> None:
    """Its answer never comes, and no connection is closed: the heartbeat time-out ends the call."""
    sessions = started(cluster, hosts3)
    assert cluster.call(0, "call", "send_probe", sessions[1]) == (0, "")
    hosts3.hosts[1].link_down()
    code, sentence = cluster.call(0, "call", "notify", sessions[1], b"x")
    assert code == -2014, sentence
    assert sessions[1] in sentence
    hosts3.hosts[1].link_up()
