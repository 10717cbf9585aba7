"""Copies between hosts while one of them is cut off, stopped, killed or busy: codes towards it, and nothing else."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator

import pytest

from memfabric_hybrid.clock import Deadline
from support import host_members, hosts
from support.held_gil import held_gil
from support.host_members import MEMBERS
from support.hosts import Network
from support.workers import Cluster

pytestmark = hosts.needs_root
TIMEOUT_S = 1.0
SOON_S = 30.0
WRITER = 1  # rank 0
NEIGHBOUR, HEALTHY, FAULTY = 1, 2, 4  # ranks that it writes to, each from a thread of its own
TOWARDS_THE_LOST = {-2004, -2012, -2014}


@pytest.fixture
def cluster(hosts3: Network) -> Iterator[Cluster]:
    """Rank 0 copies to a neighbour and to two other hosts all the time."""
    with host_members.started(hosts3, TIMEOUT_S) as cluster:
        for lane, target in enumerate((NEIGHBOUR, HEALTHY, FAULTY)):
            cluster.call(WRITER, "start_copying", [target], lane)
        wait_for(cluster, lambda code, rounds: code == 0 and rounds > 3, (NEIGHBOUR, HEALTHY, FAULTY))
        yield cluster
        for seen in cluster.call(WRITER, "stop_copying"):
            assert seen["wrong"] == []
            for target in {NEIGHBOUR, HEALTHY} & set(seen["rounds"]):
                assert [code for _, code in seen["changes"][target]] == [0], "who is well was never disturbed"


def state(cluster: Cluster) -> dict[int, tuple[int, int]]:
    """Of each target the last code (1: none yet), and how many rounds have worked."""
    return {
        target: (seen["changes"][target][-1][1] if seen["changes"][target] else 1, rounds)
        for seen in cluster.call(WRITER, "copied")
        for target, rounds in seen["rounds"].items()
    }


def wait_for(cluster: Cluster, holds: Callable[[int, int], bool], targets: tuple[int, ...]) -> None:
    deadline = Deadline(SOON_S)
    seen = state(cluster)
    while not all(holds(*seen[target]) for target in targets):
        assert not deadline.expired, seen
        time.sleep(0.02)
        seen = state(cluster)


def others_go_on(cluster: Cluster) -> None:
    before = state(cluster)
    for target in (NEIGHBOUR, HEALTHY):
        wait_for(cluster, lambda code, rounds, least=before[target][1] + 3: code == 0 and rounds > least, (target,))


def test_a_host_whose_cable_is_pulled(hosts3: Network, cluster: Cluster) -> None:
    hosts3.hosts[2].link_down()
    wait_for(cluster, lambda code, rounds: code in TOWARDS_THE_LOST, (FAULTY,))
    others_go_on(cluster)
    hosts3.hosts[2].link_up()
    wait_for(cluster, lambda code, rounds: code == 0, (FAULTY,))


def test_a_host_that_is_parted_from_ours_only(hosts3: Network, cluster: Cluster) -> None:
    """The store still sees it, so it is a member, and copies there say that no byte moves."""
    hosts3.partition(hosts3.hosts[0], hosts3.hosts[2])
    wait_for(cluster, lambda code, rounds: code in TOWARDS_THE_LOST, (FAULTY,))
    others_go_on(cluster)
    hosts3.heal()
    wait_for(cluster, lambda code, rounds: code == 0, (FAULTY,))


def test_a_slow_and_lossy_network_is_no_fault(hosts3: Network, cluster: Cluster) -> None:
    hosts3.hosts[2].delay(20)
    hosts3.hosts[2].loss(1)
    before = state(cluster)[FAULTY][1]
    wait_for(cluster, lambda code, rounds: rounds > before + 5, (FAULTY,))
    others_go_on(cluster)
    hosts3.hosts[2].heal()
    wait_for(cluster, lambda code, rounds: code == 0, (FAULTY,))


def test_a_stopped_process(hosts3: Network, cluster: Cluster) -> None:
    cluster.kill(FAULTY + 1, signal.SIGSTOP)
    wait_for(cluster, lambda code, rounds: code in TOWARDS_THE_LOST, (FAULTY,))
    others_go_on(cluster)
    cluster.kill(FAULTY + 1, signal.SIGCONT)
    wait_for(cluster, lambda code, rounds: code == 0, (FAULTY,))


def test_a_killed_process_and_its_successor(hosts3: Network, cluster: Cluster) -> None:
    cluster.kill(FAULTY + 1)
    wait_for(cluster, lambda code, rounds: code in TOWARDS_THE_LOST, (FAULTY,))
    others_go_on(cluster)
    host_members.wait_until_whole(cluster, [index for index in MEMBERS if index != FAULTY + 1], [0, 1, 2, 3, 5])
    cluster.start(FAULTY + 1)
    assert host_members.take_part(cluster, FAULTY + 1, host_members.store_url(hosts3)) == FAULTY
    wait_for(cluster, lambda code, rounds: code == 0, (FAULTY,))


def test_a_process_whose_python_is_stuck_serves_its_memory(cluster: Cluster) -> None:
    with held_gil(cluster, FAULTY + 1):
        before = state(cluster)[FAULTY][1]
        wait_for(cluster, lambda code, rounds: code == 0 and rounds > before + 10, (FAULTY,))
