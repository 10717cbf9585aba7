"""Transfers between three hosts with two engines on each: every engine writes to and reads from every other one, the
neighbour by memory and the others over TCP or by UCX, byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import memfabric_hybrid as mf
from support import hosts, ucx_hosts
from support.hosts import Network
from support.workers import Cluster

pytestmark = hosts.needs_root
SIZE = 1 << 20
ENGINES = range(6)
SDMA, HOST_RDMA = mf.TransDataOpType.SDMA, mf.TransDataOpType.HOST_RDMA


@pytest.fixture
def cluster(hosts3: Network) -> Iterator[Cluster]:
    environment = {**ucx_hosts.ENVIRONMENT, "MF_TRANSFER_TIMEOUT_MS": "20000"}
    with Cluster(6, "support.transfer_worker", environment=environment, places=hosts3.places(2)) as made:
        yield made


@pytest.fixture(params=["tcp", "ucx"])
def route(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def start(network: Network, cluster: Cluster, route: str, version: int = 4) -> list[str]:
    """The sessions."""
    op_type = SDMA if route == "tcp" else SDMA | HOST_RDMA
    sessions = []
    for index in ENGINES:
        host = network.hosts[index // 2]
        address = host.address if version == 4 else f"[{host.address6}]"
        sessions.append(cluster.call(index, "start", f"{address}:0", data_op_type=op_type))
    return sessions


@pytest.mark.parametrize("version", [4, 6], ids=["IPv4", "IPv6"])
def test_every_transfer_between_neighbours_and_hosts(
    hosts3: Network, cluster: Cluster, route: str, version: int
) -> None:
    """`exercise` checks every byte of its own memory and of the peer's, which nobody else touches."""
    sessions = start(hosts3, cluster, route, version)
    for distance in range(1, 6):
        calls = []
        for index in ENGINES:
            peer = (index + distance) % 6
            memory = cluster.call(peer, "open_memory", f"for {index}", SIZE)
            expected = "peer_process" if index // 2 == peer // 2 else route
            assert cluster.call(index, "route", sessions[peer])[0] == expected
            calls.append(cluster.begin(index, "exercise", sessions[peer], memory, SIZE, distance))
        for call in calls:
            assert call.result(60) > 5


def test_memory_comes_and_goes_while_others_write(hosts3: Network, cluster: Cluster, route: str) -> None:
    sessions = start(hosts3, cluster, route)
    lasting = cluster.call(2, "open_memory", "lasting", SIZE)
    cluster.call(0, "start_writing", sessions[2], lasting, SIZE)
    for _ in range(5):
        before = cluster.call(0, "written")
        fleeting = cluster.call(2, "open_memory", "fleeting", SIZE)
        cluster.call(4, "open_memory", "source", SIZE)
        assert cluster.call(4, "write", sessions[2], "source", fleeting, SIZE) == (0, "")
        assert cluster.call(2, "call", "unregister_memory", fleeting) == (0, "")
        code, sentence = cluster.call(4, "write", sessions[2], "source", fleeting, SIZE)
        assert code in ((-2000,) if route == "tcp" else (-2000, -2012)), sentence
        assert cluster.call(4, "write", sessions[2], "source", fleeting, SIZE)[0] == -2000
        cluster.call(4, "close_memory", "source")
        while cluster.call(0, "written") < before + 2:
            pass
    (codes, _, sentences), *_ = cluster.call(0, "stop_writing")
    assert list(codes) == [0], sentences
