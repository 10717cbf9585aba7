"""Hosts that fall silent: the others are told within the heartbeat time-out, and all find together again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import host_members, hosts
from support.host_members import MEMBERS, ON_HOST
from support.hosts import Network
from support.workers import Cluster

pytestmark = hosts.needs_root
TIMEOUT_S = 1.0
SOON_S = 20.0  # members that come back late may take each other for lost until both are registered again
FIRST, SECOND, THIRD = ON_HOST


@pytest.fixture
def cluster(hosts3: Network) -> Iterator[Cluster]:
    with host_members.started(hosts3, TIMEOUT_S) as cluster:
        yield cluster


def test_a_host_whose_cable_is_pulled_is_missed_and_comes_back(hosts3: Network, cluster: Cluster) -> None:
    hosts3.hosts[2].link_down()
    host_members.wait_until_whole(cluster, (*FIRST, *SECOND), [0, 1, 2, 3])
    assert [host_members.departures(cluster, index) for index in THIRD] == [[], []], "they know nothing"
    assert cluster.call(5, "write", 5, 0, b"go on") == (0, ""), "and copy on"
    hosts3.hosts[2].link_up()
    host_members.wait_until_whole(cluster)
    assert cluster.call_all("rank", indices=THIRD) == [4, 5], "nobody else has taken their ranks"
    host_members.write_between_neighbours(cluster, SOON_S)


def test_ranks_of_a_lost_host_are_given_to_others(hosts3: Network, cluster: Cluster) -> None:
    hosts3.hosts[2].link_down()
    host_members.wait_until_whole(cluster, (*FIRST, *SECOND), [0, 1, 2, 3])
    for index in THIRD:
        cluster.kill(index)
        cluster.places[index] = hosts3.hosts[1].place
        cluster.start(index)
        assert host_members.take_part(cluster, index, host_members.store_url(hosts3)) == index - 1
    host_members.wait_until_whole(cluster)
    for one, other in ((3, 5), (6, 4), (5, 6)):
        host_members.write(cluster, one, other)


def test_a_member_whose_rank_was_given_away_is_told_when_it_is_back(hosts3: Network, cluster: Cluster) -> None:
    url = host_members.store_url(hosts3)
    hosts3.hosts[2].link_down()
    host_members.wait_until_whole(cluster, (*FIRST, *SECOND), [0, 1, 2, 3])
    cluster.call(3, "uninitialize")
    assert host_members.take_part(cluster, 3, url, auto_ranking=False, rank_id=4) == 4
    hosts3.hosts[2].link_up()
    cluster.call(5, "wait_for_view", [], timeout_s=20)
    code, sentence = cluster.call(5, "write", 4, 0, b"x")
    assert code == -2014
    assert "lost its rank" in sentence
    host_members.wait_until_whole(cluster, (1, 2, 3, 4, 6), [0, 1, 3, 4, 5])


def test_the_store_s_host_is_lost_and_comes_back(hosts3: Network, cluster: Cluster) -> None:
    hosts3.hosts[0].link_down()
    host_members.wait_until_whole(cluster, FIRST, [0, 1])
    for one, other in (SECOND, THIRD):
        assert cluster.call(one, "write", other - 1, 0, b"no store needed") == (0, "")
    hosts3.hosts[0].link_up()
    host_members.wait_until_whole(cluster)
    host_members.write_between_neighbours(cluster, SOON_S)


def test_a_host_that_is_parted_from_the_store_s_host_only(hosts3: Network, cluster: Cluster) -> None:
    hosts3.partition(hosts3.hosts[0], hosts3.hosts[1])
    host_members.wait_until_whole(cluster, (*FIRST, *THIRD), [0, 1, 4, 5])
    hosts3.heal()
    host_members.wait_until_whole(cluster)
    assert {rank for index in FIRST + THIRD for rank in host_members.departures(cluster, index)} == {2, 3}
    host_members.write_between_neighbours(cluster, SOON_S)


def test_the_store_is_restarted_while_a_host_is_away(hosts3: Network, cluster: Cluster) -> None:
    hosts3.hosts[2].link_down()
    host_members.restart_store(cluster, hosts3)
    host_members.wait_until_whole(cluster, (*FIRST, *SECOND), [0, 1, 2, 3])
    hosts3.hosts[2].link_up()
    host_members.wait_until_whole(cluster)
    assert cluster.call_all("rank", indices=MEMBERS) == [0, 1, 2, 3, 4, 5]
    host_members.write_between_neighbours(cluster, SOON_S)
