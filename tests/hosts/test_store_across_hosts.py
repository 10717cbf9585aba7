"""The store serves members of several hosts: they meet, are told who comes and goes, and survive its end."""

from __future__ import annotations

import signal

import pytest

from support import host_members, hosts
from support.host_members import MEMBERS, RANKS, WORLD
from support.hosts import Network
from support.workers import Cluster

pytestmark = hosts.needs_root
PATIENT_S = 5.0  # a heartbeat time-out that a busy machine keeps: nobody is silent here


@pytest.mark.parametrize("version", [4, 6])
def test_members_of_all_hosts_meet(hosts3: Network, version: int) -> None:
    with host_members.started(hosts3, PATIENT_S, version) as cluster:
        assert len(set(cluster.call_all("address", 5, indices=MEMBERS))) == 1, "an address means the same everywhere"
        host_members.write_between_neighbours(cluster)
        assert [host_members.departures(cluster, index) for index in MEMBERS] == [[]] * 6


@pytest.mark.also_over_tls
def test_members_that_come_at_the_same_time_get_different_ranks(hosts3: Network) -> None:
    url = host_members.store_url(hosts3)
    with Cluster(7, "support.pool_worker", places=[hosts3.hosts[0].place, *hosts3.places(2)]) as cluster:
        host_members.start_store(cluster, url)
        entries = [cluster.begin(index, "enter", url, WORLD, start_store=False) for index in MEMBERS]
        assert [entry.result() for entry in entries] == [(0, "")] * 6
        assert sorted(cluster.call_all("rank", indices=MEMBERS)) == RANKS


def test_a_death_on_one_host_is_told_on_the_others(hosts3: Network) -> None:
    """Long before the heartbeat time-out: the kernel closes the connection of the dead one."""
    with host_members.started(hosts3, 3600) as cluster:
        cluster.kill(5)
        others = [index for index in MEMBERS if index != 5]
        host_members.wait_until_whole(cluster, others, [0, 1, 2, 3, 5])
        cluster.call(3, "call", "leave")
        others.remove(3)
        host_members.wait_until_whole(cluster, others, [0, 1, 3, 5])


def test_a_rank_comes_back_on_another_host(hosts3: Network) -> None:
    url = host_members.store_url(hosts3)
    with host_members.started(hosts3, PATIENT_S) as cluster:
        cluster.kill(3)
        host_members.wait_until_whole(cluster, [1, 2, 4, 5, 6], [0, 1, 3, 4, 5])
        cluster.places[3] = hosts3.hosts[2].place
        cluster.start(3)
        assert host_members.take_part(cluster, 3, url) == 2, "the lowest rank that is free"
        host_members.wait_until_whole(cluster)
        host_members.write(cluster, 5, 3)  # now a neighbour
        assert [host_members.departures(cluster, index) for index in (1, 2, 4, 5, 6)] == [[2]] * 5


def test_a_restarted_store_is_whole_again_and_nobody_leaves(hosts3: Network) -> None:
    with host_members.started(hosts3, PATIENT_S) as cluster:
        host_members.restart_store(cluster, hosts3)
        host_members.wait_until_registered(hosts3, 6)
        assert [host_members.departures(cluster, index) for index in MEMBERS] == [[]] * 6
        cluster.call(6, "uninitialize")
        host_members.wait_until_whole(cluster, MEMBERS[:5], RANKS[:5])
        assert host_members.take_part(cluster, 6, host_members.store_url(hosts3)) == 5
        host_members.wait_until_whole(cluster)
        host_members.write_between_neighbours(cluster)


def test_who_runs_the_store_is_replaced_on_the_same_host(hosts3: Network) -> None:
    """Everybody may start the store, but only processes of its host can: the others go on as its clients."""
    url = host_members.store_url(hosts3)
    environment = {"MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S": "1"}
    with Cluster(6, "support.pool_worker", environment=environment, places=hosts3.places(2)) as cluster:
        for index in range(6):
            assert host_members.take_part(cluster, index, url, start_store=True) == index
        host_members.wait_until_whole(cluster, range(6))
        cluster.kill(0)  # it came first, on the store's host
        host_members.wait_until_whole(cluster, range(1, 6), range(1, 6))
        host_members.wait_until_registered(hosts3, 5)
        cluster.start(0)
        assert host_members.take_part(cluster, 0, url, start_store=True) == 0
        host_members.write(cluster, 0, 1)
        host_members.write(cluster, 1, 0)


def test_a_restarted_store_gives_no_rank_of_a_living_member_away(hosts3: Network) -> None:
    """One member is stopped when the store comes back, another one runs: newcomers wait for both."""
    url = host_members.store_url(hosts3)
    heartbeat_timeout_s = 4.0
    environment = {"MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S": f"{heartbeat_timeout_s:g}"}
    places = [hosts3.hosts[0].place, hosts3.hosts[1].place, hosts3.hosts[2].place, hosts3.hosts[0].place]
    with Cluster(4, "support.pool_worker", environment=environment, places=places) as cluster:
        host_members.start_store(cluster, url)
        assert [host_members.take_part(cluster, index, url) for index in (1, 2)] == [0, 1]
        cluster.kill(1, signal.SIGSTOP)
        host_members.restart_store(cluster, hosts3)
        newcomer = cluster.begin(3, "enter", url, WORLD, start_store=False)
        host_members.wait_until_registered(hosts3, 1)
        assert not newcomer.ready()
        cluster.kill(1, signal.SIGCONT)
        assert newcomer.result() == (0, "")
        assert cluster.call_all("rank", indices=(1, 2, 3)) == [0, 1, 2]
        assert cluster.call(1, "write", 1, 0, b"still rank 0") == (0, "")
