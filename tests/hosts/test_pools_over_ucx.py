"""Big Memory over UCX: when it is the way, who says so, and what happens at the ends of a participation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import host_members, hosts, ucx_hosts
from support.host_members import MEMBERS
from support.hosts import Network
from support.ucx_hosts import MAPPED_OR_UCX, UCX_ONLY
from support.workers import Cluster

pytestmark = hosts.needs_root
MIB = 1 << 20
SDMA, TCP = 1, 4


@pytest.fixture
def cluster(hosts3: Network) -> Iterator[Cluster]:
    """Worker 0 runs the store, the others are ranks, two on each host; nobody has entered."""
    places = [hosts3.hosts[0].place, *hosts3.places(2)]
    environment = {**ucx_hosts.ENVIRONMENT, "MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S": "1"}
    with Cluster(7, "support.pool_worker", environment=environment, places=places) as cluster:
        host_members.start_store(cluster, host_members.store_url(hosts3))
        yield cluster


def take_part(network: Network, cluster: Cluster, index: int, **options: object) -> None:
    url, settings = host_members.store_url(network), {"start_store": False}
    assert cluster.call(index, "take_part", url, host_members.WORLD, settings=settings, **options) == index - 1


def start(network: Network, cluster: Cluster, **options: object) -> None:
    for index in MEMBERS:
        take_part(network, cluster, index, **options)


def test_the_route_names_version_and_devices(hosts3: Network, cluster: Cluster) -> None:
    start(hosts3, cluster, data_op_type=MAPPED_OR_UCX)
    assert cluster.call(1, "route", 1) == ("mapped", "both are on one host")
    assert cluster.call(1, "write", 2, 0, b"found") == (0, "")
    name, reason = cluster.call(1, "route", 2)
    version = cluster.call(1, "ucx_version")
    assert name == "ucx"
    assert reason == f"it is on another host: UCX {version} over tcp (eth0), as MF_UCX_DEVICES says"
    before = cluster.call(1, "traffic", "ucx")
    assert cluster.call(1, "write", 2, 0, b"x" * 1000) == (0, "")
    assert cluster.call(1, "traffic", "ucx") == before + 1000


def test_ucx_only_leads_to_neighbours_as_well(hosts3: Network, cluster: Cluster) -> None:
    start(hosts3, cluster, data_op_type=UCX_ONLY, dram=2 * MIB, max_dram_size=8 * MIB)
    for rank in (1, 2, 5):
        assert cluster.call(1, "write", rank, 0, f"to {rank}".encode()) == (0, "")
        assert cluster.call(rank + 1, "load", rank, 0, 4) == f"to {rank}".encode()
        assert cluster.call(1, "route", rank)[0] == "ucx"
    assert "allows nothing but the network" in cluster.call(1, "route", 1)[1]
    for grown in (2, 3):  # a neighbour that grows, comes back and is another process is found as well
        assert cluster.call(2, "call", "extend_local_mem", 1, 2 * MIB) == (0, "")
        assert cluster.call(1, "write", 1, grown * 2 * MIB - 8, b"grown") == (0, "")
    assert cluster.call(2, "call", "leave") == (0, "")
    assert cluster.call(1, "write", 1, 0, b"gone")[0] == -2014
    cluster.call(2, "join")
    assert cluster.call(1, "write", 1, 0, b"back") == (0, "")
    cluster.kill(2)
    host_members.wait_until_left(cluster, 1, 1)
    cluster.start(2)
    take_part(hosts3, cluster, 2, data_op_type=UCX_ONLY, dram=2 * MIB, max_dram_size=8 * MIB)
    assert cluster.call(1, "write", 1, 0, b"anew") == (0, "")
    assert cluster.call(2, "load", 1, 0, 4) == b"anew"


def test_memory_that_has_grown_is_one_memory(hosts3: Network, cluster: Cluster) -> None:
    """A copy over the ends of what was registered piece by piece, with a rank that had nothing at first."""
    options = {"data_op_type": UCX_ONLY, "max_dram_size": 8 * MIB, "max_hbm_size": 8 * MIB}
    take_part(hosts3, cluster, 1, **options)
    take_part(hosts3, cluster, 2, dram=0, hbm=0, **options)
    assert cluster.call(1, "write", 1, 0, b"?")[0] == -2000, "there is no memory yet"
    for mem_type, size in ((1, 2 * MIB), (0, 2 * MIB), (1, 4 * MIB), (1, 2 * MIB)):
        assert cluster.call(2, "call", "extend_local_mem", mem_type, size) == (0, "")
        assert cluster.call(1, "write", 1, 0, b"!") == (0, "")
    data = bytes(number % 251 for number in range(8 * MIB - 200))
    assert cluster.call(1, "write", 1, 100, data) == (0, "")
    assert cluster.call(2, "load", 1, 100, len(data)) == data
    assert cluster.call(1, "read", 1, 100, len(data)) == (0, data)


@pytest.mark.parametrize("op_type", [SDMA, TCP, SDMA | TCP])
def test_ucx_over_tcp_is_taken_where_it_is_demanded_only(hosts3: Network, cluster: Cluster, op_type: int) -> None:
    for index in (1, 3):
        url, settings = host_members.store_url(hosts3), {"start_store": False}
        cluster.call(index, "take_part", url, host_members.WORLD, settings=settings, data_op_type=op_type)
    assert cluster.call(1, "write", 1, 0, b"found") == (0, "")
    assert cluster.call(1, "route", 1) == ("tcp", "it is on another host")


def test_nobody_touches_memory_that_was_left(hosts3: Network, cluster: Cluster) -> None:
    """While others write to it all the time."""
    start(hosts3, cluster, data_op_type=UCX_ONLY)
    for index in (1, 2, 3, 4):
        cluster.call(index, "start_copying", [5], index)
    for _ in range(5):
        cluster.call(1, "wait_for_rounds", 5, 3)
        assert cluster.call(6, "call", "leave") == (0, "")
        cluster.call(6, "fill_own", 0xEE)
        for index in (1, 2, 3, 4):
            cluster.call(index, "wait_for_code", 5, [-2014])
        assert cluster.call(6, "own_bytes") == {0xEE}
        cluster.call(6, "join")
    cluster.call(1, "wait_for_rounds", 5, 3)
    for index in (1, 2, 3, 4):
        for seen in cluster.call(index, "stop_copying"):
            assert seen["wrong"] == []
            assert {code for _, code in seen["changes"][5]} <= {0, -2012, -2014}


def test_a_rank_that_is_killed_in_the_middle(hosts3: Network, cluster: Cluster) -> None:
    start(hosts3, cluster, data_op_type=UCX_ONLY)
    for lane, target in enumerate((1, 2, 4)):
        cluster.call(1, "start_copying", [target], lane)
    for target in (1, 2, 4):
        cluster.call(1, "wait_for_rounds", target, 5)
    cluster.kill(5)
    host_members.wait_until_left(cluster, 1, 4)
    for target in (1, 2):
        cluster.call(1, "wait_for_rounds", target, 5)
    take_part_again = {"data_op_type": UCX_ONLY}
    cluster.start(5)
    take_part(hosts3, cluster, 5, **take_part_again)
    cluster.call(1, "wait_for_rounds", 4, 5)
    for seen in cluster.call(1, "stop_copying"):
        assert seen["wrong"] == []
        for target in {1, 2} & set(seen["rounds"]):
            assert [code for _, code in seen["changes"][target]] == [0], "who is well was never disturbed"


def test_an_end_without_ucx_is_named(hosts3: Network, cluster: Cluster) -> None:
    """The others go by TCP to it, and know why."""
    cluster.call(3, "set_environment", "MF_UCX_LIBRARY", "/nowhere/libucp.so.0")
    for object_id, op_type in ((0, UCX_ONLY | TCP), (1, MAPPED_OR_UCX)):
        for index in (1, 3):
            if object_id == 0:
                cluster.call(index, "enter", host_members.store_url(hosts3), host_members.WORLD, start_store=False)
            cluster.call(index, "create", object_id, data_op_type=op_type)
            cluster.call(index, "join", object_id)
        assert cluster.call(1, "write", 1, 0, b"by TCP", object_id) == (0, "")
        assert cluster.call(3, "load", 1, 0, 6, 1, object_id) == b"by TCP"
        name, reason = cluster.call(1, "route", 1, object_id)
        assert name == "tcp"
        assert reason.startswith("it is on another host; not by RDMA: the other end says: ")
        assert "/nowhere/libucp.so.0" in reason
        name, reason = cluster.call(3, "route", 0, object_id)
        assert (name, "/nowhere/libucp.so.0" in reason) == ("tcp", True)
