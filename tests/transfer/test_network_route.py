"""Transfers that take the network although both processes are on one host, by TCP or by UCX (over its own TCP here):
everything works as by any other route.
"""

from __future__ import annotations

import ipaddress
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import memfabric_hybrid as mf
from support import ucx_hosts
from support.ports import reserved_port
from support.workers import Cluster

SIZE = 4 << 20


HOST_TCP, HOST_RDMA, SDMA = mf.TransDataOpType.HOST_TCP, mf.TransDataOpType.HOST_RDMA, mf.TransDataOpType.SDMA
by_every_network = pytest.mark.parametrize("op_type", [HOST_TCP, HOST_RDMA], ids=["tcp", "ucx"])


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(2, "support.transfer_worker", environment=ucx_hosts.LOOPBACK) as made:
        yield made


def started(cluster: Cluster, op_type: mf.TransDataOpType = HOST_TCP) -> tuple[str, int]:
    """Worker 0 may use what `op_type` says; the session of worker 1, which may use all, and its memory."""
    cluster.call(0, "start", "127.0.0.1:0", data_op_type=op_type)
    session = cluster.call(1, "start", "127.0.0.1:0", data_op_type=SDMA | HOST_RDMA)
    return session, cluster.call(1, "open_memory", "target", SIZE)


def test_host_tcp_goes_over_tcp_on_one_host_too(cluster: Cluster) -> None:
    session, address = started(cluster)
    assert cluster.call(0, "route", session) == ("tcp", "data_op_type allows nothing but the network")
    assert cluster.call(0, "exercise", session, address, SIZE, 7) > 5


def test_host_rdma_goes_by_ucx_on_one_host_too(cluster: Cluster) -> None:
    session, address = started(cluster, HOST_RDMA)
    name, reason = cluster.call(0, "route", session)
    assert name == "ucx"
    assert reason.startswith("data_op_type allows nothing but the network: UCX 1.")
    assert cluster.call(0, "exercise", session, address, SIZE, 7) > 5


def test_a_peer_without_ucx_is_not_reached_by_it(cluster: Cluster) -> None:
    cluster.call(0, "start", "127.0.0.1:0", data_op_type=HOST_RDMA)
    session = cluster.call(1, "start", "127.0.0.1:0", data_op_type=HOST_TCP)
    code, sentence = cluster.call(0, "call", "send_probe", session)
    assert code == -2014
    assert "HOST_RDMA is not possible: the other end says: data_op_type does not allow RDMA" in sentence


@pytest.mark.plain_store("with TLS there is another reason")
def test_without_a_device_host_rdma_says_where_it_looked() -> None:
    with mf.TransferEngine() as engine:
        assert engine.initialize(None, "127.0.0.1:0", "Decode", 0, HOST_RDMA) == -2002
    assert "there is no RDMA device on this machine (looked in" in mf.get_last_err_msg()


def test_ucx_forgets_what_is_unregistered(cluster: Cluster) -> None:
    session, address = started(cluster, HOST_RDMA)
    cluster.call(0, "open_memory", "source", SIZE)
    assert cluster.call(0, "write", session, "source", address, SIZE) == (0, "")
    assert cluster.call(1, "call", "unregister_memory", address) == (0, "")
    code, sentence = cluster.call(0, "write", session, "source", address, SIZE)
    assert code in (-2000, -2012), sentence  # UCX does not say how far it came before it heard of it
    assert "not all inside memory that is registered there now" in sentence
    code, sentence = cluster.call(0, "write", session, "source", address, SIZE)
    assert code == -2000, sentence
    assert "not all inside memory that is registered there now" in sentence
    again = cluster.call(1, "open_memory", "target", SIZE)
    assert cluster.call(0, "write", session, "source", again, SIZE) == (0, "")


def test_the_best_route_of_one_host_is_no_network(cluster: Cluster) -> None:
    session, _ = started(cluster, SDMA)
    assert cluster.call(0, "route", session) == ("peer_process", "both are on one host")


@by_every_network
def test_what_is_not_registered_is_not_touched(cluster: Cluster, op_type: mf.TransDataOpType) -> None:
    session, address = started(cluster, op_type)
    cluster.call(0, "open_memory", "source", SIZE + 1)
    cluster.call(0, "store", "source", b"x" * (SIZE + 1))
    code, sentence = cluster.call(0, "write", session, "source", address, SIZE + 1)
    assert code == -2000, sentence
    assert "not all inside memory that is registered there now" in sentence
    assert cluster.call(1, "load", "target") == bytes(SIZE)


@by_every_network
def test_a_batch_names_the_piece_that_is_not_registered(cluster: Cluster, op_type: mf.TransDataOpType) -> None:
    session, address = started(cluster, op_type)
    source = cluster.call(0, "open_memory", "source", SIZE)
    targets = [address, address + SIZE, address + 64]
    code, sentence = cluster.call(0, "call", "batch_transfer_sync_write", session, [source] * 3, targets, [64, 64, 64])
    assert code == -2000, sentence
    assert sentence.startswith("piece 1 of 3 (counted from 0), 64 bytes from "), sentence
    assert cluster.call(1, "load", "target") == bytes(SIZE)


@by_every_network
def test_a_killed_peer_is_told_and_its_successor_is_found(cluster: Cluster, op_type: mf.TransDataOpType) -> None:
    session, address = started(cluster, op_type)
    cluster.call(0, "record_downs")
    cluster.call(0, "open_memory", "source", SIZE)
    assert cluster.call(0, "write", session, "source", address, SIZE) == (0, "")
    cluster.kill(1)
    assert cluster.call(0, "wait_for_downs", 1) == [session]
    code, sentence = cluster.call(0, "write", session, "source", address, SIZE)
    assert code == -2014, sentence
    cluster.start(1)
    assert cluster.call(1, "start", session, data_op_type=SDMA | HOST_RDMA) == session
    address = cluster.call(1, "open_memory", "target", SIZE)
    assert cluster.call(0, "write", session, "source", address, SIZE) == (0, "")


def connections_to(host: str) -> set[int]:
    """The ports of that address to which there are connections."""
    wanted = ipaddress.ip_address(host).packed[::-1].hex().upper()
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    places = [row[2].split(":") for row in rows if row[3] == "01"]  # ESTABLISHED
    return {int(port, 16) for address, port in places if address == wanted}


def test_nic_says_where_data_comes_in(cluster: Cluster) -> None:
    with reserved_port("127.0.0.3") as port:
        nic = f"tcp://127.0.0.3:{port}"
        cluster.call(0, "start", "127.0.0.1:0", data_op_type=HOST_TCP, nic=nic)
        session = cluster.call(1, "start", "127.0.0.1:0", nic=nic)
        address = cluster.call(1, "open_memory", "target", SIZE)
        assert cluster.call(0, "exercise", session, address, SIZE, 7) > 5
        (taken,) = connections_to("127.0.0.3")
        assert port < taken < port + 1024, "the first one is the other engine's"
        assert session.startswith("127.0.0.1:")


@pytest.mark.parametrize(
    ("nic", "what"),
    [
        ("tcp://127.0.0.1", "is not of the form tcp://ip[/mask]:port"),
        ("tcp://203.0.113.1:9000", "203.0.113.1 is no address of this machine"),
        ("tcp://203.0.113.1/24:9000", "this machine has no address in 203.0.113.0/24"),
    ],
)
def test_nic_of_another_machine_decides_nothing_and_is_named(
    nic: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Programs bring along what was written for other machines, and run unmodified."""
    with mf.TransferEngine() as engine:
        assert engine.initialize(None, "127.0.0.1:0", "Decode", 0, nic=nic) == 0, mf.get_last_err_msg()
    (record,) = caplog.records
    assert what in record.message
    assert "data of other hosts comes in at the session's own address" in record.message
    caplog.clear()
    with mf.TransferEngine() as engine:
        assert engine.initialize(None, "127.0.0.1:0", "Decode", 0, nic="mlx5_0") == 0, mf.get_last_err_msg()
    assert caplog.records == []


def test_other_threads_run_while_a_short_transfer_waits_for_the_network() -> None:
    with Cluster(2, "support.transfer_worker", environment={"MF_TRANSFER_TIMEOUT_MS": "120000"}) as cluster:
        session, address = started(cluster)
        cluster.call(0, "start_writing", session, address, 64)
        while cluster.call(0, "written") == 0:
            pass
        cluster.kill(1, signal.SIGSTOP)
        before, now = -1, cluster.call(0, "written")
        while before != now:  # then it is inside a call that cannot end
            time.sleep(0.1)
            before, now = now, cluster.call(0, "written")
        cluster.kill(1, signal.SIGCONT)
        (codes, _, sentences), *_ = cluster.call(0, "stop_writing")
        assert list(codes) == [0], sentences
