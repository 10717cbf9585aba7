"""Networks that are slow, lossy or away for a while: entering takes longer, and says so when it takes too long."""

from __future__ import annotations

from support import host_members, hosts
from support.host_members import MEMBERS, WORLD
from support.hosts import Network
from support.workers import Cluster

pytestmark = hosts.needs_root


def test_members_meet_over_a_slow_and_lossy_network(hosts3: Network) -> None:
    hosts3.hosts[1].delay(20, jitter_ms=10)
    hosts3.hosts[1].loss(3)
    with host_members.started(hosts3, heartbeat_timeout_s=20) as cluster:
        host_members.write_between_neighbours(cluster)
        assert [host_members.departures(cluster, index) for index in MEMBERS] == [[]] * 6
        hosts3.heal()  # farewells need not wait


def test_initialize_says_which_store_it_did_not_reach_and_waits_for_it(hosts3: Network) -> None:
    url = host_members.store_url(hosts3)
    with Cluster(2, "support.pool_worker", places=hosts3.places(1)[:2]) as cluster:
        host_members.start_store(cluster, url)
        hosts3.partition(hosts3.hosts[0], hosts3.hosts[1])
        code, sentence = cluster.call(1, "enter", url, WORLD, start_store=False, init_timeout=1)
        assert code == -2004
        assert f"store {url} could not be reached within 1 s" in sentence
        entering = cluster.begin(1, "enter", url, WORLD, start_store=False, init_timeout=60)
        hosts3.heal()
        assert entering.result(60) == (0, "")
        assert cluster.call(1, "rank") == 0


def test_leaving_while_the_store_is_out_of_reach_does_not_take_long(hosts3: Network) -> None:
    with host_members.started(hosts3, heartbeat_timeout_s=1) as cluster:
        hosts3.hosts[2].link_down()
        cluster.call_all("uninitialize", indices=(5, 6), timeout_s=20)
        host_members.wait_until_whole(cluster, (1, 2, 3, 4), [0, 1, 2, 3])


def test_bytes_that_the_network_takes_slowly_are_moving(hosts3: Network) -> None:
    """The kernel buffers megabytes: that nothing is left to send does not mean that nothing moves."""
    url = host_members.store_url(hosts3)
    places = [hosts3.hosts[0].place, hosts3.hosts[0].place, hosts3.hosts[1].place]
    with Cluster(3, "support.pool_worker", places=places) as cluster:
        host_members.start_store(cluster, url)
        for index in (1, 2):
            host_members.take_part(cluster, index, url, operation_timeout=1)
        host_members.wait_until_whole(cluster, (1, 2), (0, 1))
        data = bytes(range(256)) * 4096
        assert cluster.call(1, "write", 1, 0, data) == (0, "")  # TCP learns that it may send much at once
        hosts3.hosts[1].rate(4)
        assert cluster.call(1, "write", 1, 0, data[::-1]) == (0, "")  # 2 s
        hosts3.heal()
        assert cluster.call(1, "read", 1, 0, len(data)) == (0, data[::-1])
