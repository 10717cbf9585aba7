"""Transfers that go over TCP although both processes are on one host: everything works as by any other route."""

from __future__ import annotations

import ipaddress
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import memfabric_hybrid as mf
from support.ports import reserved_port
from support.workers import Cluster

SIZE = 4 << 20


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(2, "support.transfer_worker") as made:
        yield made


def started(cluster: Cluster, op_type: mf.TransDataOpType = mf.TransDataOpType.HOST_TCP) -> tuple[str, int]:
    """Worker 0 may use what `op_type` says; the session of worker 1, and its memory."""
    cluster.call(0, "start", "127.0.0.1:0", data_op_type=op_type)
    return cluster.call(1, "start", "127.0.0.1:0"), cluster.call(1, "open_memory", "target", SIZE)


def test_host_tcp_goes_over_tcp_on_one_host_too(cluster: Cluster) -> None:
    session, address = started(cluster)
    assert cluster.call(0, "route", session) == ("tcp", "data_op_type allows nothing but the network")
    assert cluster.call(0, "exercise", session, address, SIZE, 7) > 5


def test_the_best_route_of_one_host_is_no_network(cluster: Cluster) -> None:
    session, _ = started(cluster, mf.TransDataOpType.SDMA)
    assert cluster.call(0, "route", session) == ("peer_process", "both are on one host")


def test_what_is_not_registered_is_not_touched(cluster: Cluster) -> None:
    session, address = started(cluster)
    cluster.call(0, "open_memory", "source", SIZE + 1)
    cluster.call(0, "store", "source", b"x" * (SIZE + 1))
    code, sentence = cluster.call(0, "write", session, "source", address, SIZE + 1)
    assert code == -2000, sentence
    assert "not all inside memory that is registered there now" in sentence
    assert cluster.call(1, "load", "target") == bytes(SIZE)


def test_a_killed_peer_is_told_and_its_successor_is_found(cluster: Cluster) -> None:
    session, address = started(cluster)
    cluster.call(0, "record_downs")
    cluster.call(0, "open_memory", "source", SIZE)
    assert cluster.call(0, "write", session, "source", address, SIZE) == (0, "")
    cluster.kill(1)
    assert cluster.call(0, "wait_for_downs", 1) == [session]
    code, sentence = cluster.call(0, "write", session, "source", address, SIZE)
    assert code == -2014, sentence
    cluster.start(1)
    assert cluster.call(1, "start", session) == session
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
        cluster.call(0, "start", "127.0.0.1:0", data_op_type=mf.TransDataOpType.HOST_TCP, nic=nic)
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
            before, now = now, cluster.call(0, "written")
            time.sleep(0.1)
        assert cluster.call(0, "written") == now
        cluster.kill(1, signal.SIGCONT)
        (codes, _, sentences), *_ = cluster.call(0, "stop_writing")
        assert list(codes) == [0], sentences
