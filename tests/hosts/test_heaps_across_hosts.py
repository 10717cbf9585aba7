"""Share Memory between hosts: collectives, which go through the store, and copies, which go over TCP or UCX."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import pytest

from memfabric_hybrid.clock import Deadline
from support import host_members, hosts, kernel_library, ucx_hosts
from support.hosts import Network
from support.workers import Cluster

pytestmark = hosts.needs_root
GONE = -2014
MTE, RDMA = 1, 4


@pytest.fixture(params=["tcp", "ucx"])
def cluster(hosts3: Network, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Six ranks, two on each host; rank 0 runs the store."""
    op_type = MTE | RDMA if request.param == "ucx" else MTE
    with started(hosts3, op_type) as cluster:
        yield cluster
        routes = {name for name, bytes_moved in cluster.call(0, "traffic").items() if bytes_moved}
        assert not routes & ({"tcp", "ucx"} - {request.param}), "nothing went another way"


@contextlib.contextmanager
def started(network: Network, op_type: int) -> Iterator[Cluster]:
    environment = {"MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S": "1", **ucx_hosts.ENVIRONMENT}
    with Cluster(6, "support.heap_worker", environment=environment, places=network.places(2)) as cluster:
        heaps = cluster.call_all("take_part", host_members.store_url(network), 6, op_type=op_type)
        assert len(set(heaps)) == 1
        yield cluster


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> str:
    return kernel_library.build(tmp_path_factory.mktemp("kernels"))


def test_barriers_and_gathers(cluster: Cluster) -> None:
    assert cluster.call_all("barriers", 20) == [[]] * 6
    assert cluster.call_all("gathered_rounds", 10, [1, 1000, 60_000]) == [0] * 6


def test_put_and_get_reach_every_rank(cluster: Cluster) -> None:
    """Everybody writes to everybody, each to a place of its own, and reads what it was sent."""
    for writer in range(6):
        for owner in range(6):
            word = f"from {writer} to {owner}".encode()
            assert cluster.call(writer, "call", "put", word, owner, writer * 64) == (None, "")
    assert cluster.call_all("barriers", 1) == [[]] * 6
    for owner in range(6):
        for writer in range(6):
            word = f"from {writer} to {owner}".encode()
            assert cluster.call(owner, "load_bytes", owner, writer * 64, len(word)) == word
            assert cluster.call(writer, "fetch", owner, writer * 64, len(word)) == word


def test_ucx_only_leads_to_neighbours_as_well(hosts3: Network, kernels: str) -> None:
    with started(hosts3, RDMA) as cluster:
        assert [cluster.call(0, "call", "reach", rank)[0] for rank in range(6)] == [3, 4, 4, 4, 4, 4]
        for owner in (1, 3):
            assert cluster.call(0, "call", "put", b"by RDMA", owner, 64) == (None, "")
            assert cluster.call(owner, "load_bytes", owner, 64, 7) == b"by RDMA"
            assert cluster.call(0, "fetch", owner, 64, 7) == b"by RDMA"
        for library in (kernels, "numba"):
            far = [cluster.call(0, "run_kernel", library, "kernel_is_far", 0, rank, timeout_s=120) for rank in range(6)]
            assert far == [0, 1, 1, 1, 1, 1]
        assert cluster.call_all("barriers", 3) == [[]] * 6
        assert cluster.call(0, "traffic")["ucx"] > 0


def test_who_is_reached_how(cluster: Cluster) -> None:
    assert [cluster.call(0, "call", "reach", rank)[0] for rank in range(6)] == [3, 3, 4, 4, 4, 4]
    with pytest.raises(Exception, match=r"on another host: copy with put\(\) and get\(\)"):
        cluster.call(0, "call", "array", 2, 1, "u1")
    with pytest.raises(Exception, match=r"shm object 0: .* is beyond the 2097152 bytes of each rank"):
        cluster.call(0, "call", "put", b"four", 5, (2 << 20) - 3)


@pytest.mark.parametrize("kind", ["c++", "numba"])
def test_kernels_put_to_and_get_from_other_hosts(cluster: Cluster, kernels: str, kind: str) -> None:
    library = kernels if kind == "c++" else "numba"
    for rank in range(6):
        cluster.call(rank, "store_bytes", rank, 0, bytes([rank + 1]) * 777)
    assert cluster.call_all("barriers", 1) == [[]] * 6
    cluster.call_all("run_kernel", library, "kernel_get_and_put", 0, 777, 4096, 8192, timeout_s=120)
    assert cluster.call_all("barriers", 1) == [[]] * 6
    for rank in range(6):
        assert cluster.call(rank, "load_bytes", rank, 4096, 777) == bytes([(rank - 1) % 6 + 1]) * 777
        assert cluster.call(rank, "load_bytes", rank, 8192, 777) == bytes([(rank - 2) % 6 + 1]) * 777
    cluster.call_all("run_kernel", library, "kernel_shift_doubled", 0, 1000, 16384, timeout_s=120)
    assert cluster.call_all("barriers", 1) == [[]] * 6
    for rank in range(6):
        left = np.frombuffer(cluster.call((rank - 1) % 6, "load_bytes", (rank - 1) % 6, 0, 4000), np.float32)
        assert cluster.call(rank, "load_bytes", rank, 16384, 4000) == (left * np.float32(2)).tobytes()


def test_kernels_know_who_is_far_and_learn_of_failures(cluster: Cluster, kernels: str) -> None:
    for library in (kernels, "numba"):
        far = [cluster.call(0, "run_kernel", library, "kernel_is_far", 0, rank, timeout_s=120) for rank in range(7)]
        assert far == [0, 0, 1, 1, 1, 1, 0]
        assert cluster.call(0, "run_kernel", library, "kernel_put", 0, 5, 64, timeout_s=120) == 1
    cluster.kill(5)
    _, code, _ = cluster.call(0, "timed", "barrier")
    assert code == GONE
    for library in (kernels, "numba"):
        assert cluster.call(0, "run_kernel", library, "kernel_put", 0, 5, 64, timeout_s=120) == 0


def test_a_lost_host_ends_the_barriers_of_the_others(hosts3: Network, cluster: Cluster) -> None:
    waiting = [cluster.begin(rank, "timed", "barrier") for rank in range(4)]
    hosts3.hosts[2].link_down()
    for wait in waiting:
        _, code, sentence = wait.result()
        assert code == GONE
        assert "rank 4 is gone" in sentence or "rank 5 is gone" in sentence


def test_a_heap_is_whole_again_when_a_lost_host_is_back(hosts3: Network) -> None:
    """As the sentence says, which tells what to do otherwise."""
    environment = {"MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S": "1"}
    with Cluster(6, "support.heap_worker", environment=environment, places=hosts3.places(2)) as cluster:
        cluster.call_all("take_part", host_members.store_url(hosts3), 6, operation_timeout=5)
        hosts3.hosts[2].link_down()
        code, sentence = -2004, ""
        deadline = Deadline(30)
        while code == -2004 and not deadline.expired:
            _, code, sentence = cluster.call(0, "timed", "barrier")
        assert code == GONE
        assert "if that rank was only silent, the object is whole again when it is back; otherwise destroy" in sentence
        hosts3.hosts[2].link_up()
        answers = [("", code, sentence)]
        while any(code for _, code, _ in answers):
            assert not deadline.expired, answers
            answers = cluster.call_all("timed", "barrier", timeout_s=30)
