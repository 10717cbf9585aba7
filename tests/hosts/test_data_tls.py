"""What goes between hosts is encrypted where the store has TLS: nobody reads it on the way, nobody without a
certificate takes part, and both ends know why.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid.clock import Deadline
from support import host_members, hosts
from support.certificates import DAY, NOW, Authority
from support.held_gil import held_gil
from support.hosts import Host, Network
from support.workers import Cluster

pytestmark = hosts.needs_root
SIZE = 1 << 20
WORD = b"nobody on the way may read this "
INFO = "MF_CONFIG_STORE_TLS_INFO"
HOST_RDMA = int(mf.TransDataOpType.HOST_RDMA)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def engines(hosts3: Network) -> Iterator[Cluster]:
    """One on each host; a test says what certificates they have."""
    with Cluster(
        3, "support.transfer_worker", environment={"MF_LOG_LEVEL": "1", INFO: ""}, places=hosts3.places(1)
    ) as made:
        yield made


def start(network: Network, cluster: Cluster, index: int, info: str) -> str:
    """The session."""
    cluster.call(index, "set_environment", INFO, info)
    return str(cluster.call(index, "start", f"{network.hosts[index].address}:0"))


def info_of(authority: Authority, name: str, *, with_crl: bool = False) -> str:
    return authority.info(authority.issue(name), with_crl=with_crl)


@contextlib.contextmanager
def overheard(host: Host) -> Iterator[list[bytes]]:
    """All packets that reach or leave a host meanwhile."""
    packets: list[bytes] = []
    with host.entered():
        tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
    tap.settimeout(0.1)
    over = threading.Event()

    def listen() -> None:
        while True:
            try:
                packets.append(tap.recv(1 << 17))
            except TimeoutError:
                if over.is_set():
                    return

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        yield packets
    finally:
        over.set()
        listener.join()
        tap.close()


def wait_for_line(cluster: Cluster, index: int, words: str) -> None:
    deadline = Deadline(20)
    while words not in cluster.output(index):
        assert not deadline.expired, f"worker {index} has not said {words!r}:\n{cluster.output(index)}"
        threading.Event().wait(0.01)


@pytest.mark.parametrize("secured", [True, False], ids=["tls", "plain"])
def test_nobody_on_the_way_reads_a_transfer(
    hosts3: Network, engines: Cluster, authority: Authority, secured: bool
) -> None:
    """Without TLS everybody does: the tap hears everything."""
    info = info_of(authority, "engine") if secured else ""
    start(hosts3, engines, 0, info)
    session = start(hosts3, engines, 1, info)
    target = engines.call(1, "open_memory", "target", SIZE)
    engines.call(0, "open_memory", "source", SIZE)
    engines.call(0, "store", "source", WORD * (SIZE // len(WORD)))
    with overheard(hosts3.hosts[1]) as packets:
        assert engines.call(0, "write", session, "source", target, SIZE) == (0, "")
        assert engines.call(0, "call", "notify", session, WORD) == (0, "")
    assert engines.call(1, "load", "target") == WORD * (SIZE // len(WORD))
    assert sum(map(len, packets)) > SIZE
    assert any(WORD[:16] in packet for packet in packets) != secured


def test_every_transfer_of_three_hosts(hosts3: Network, engines: Cluster, authority: Authority) -> None:
    sessions = [start(hosts3, engines, index, info_of(authority, f"engine{index}")) for index in range(3)]
    for distance in (1, 2):
        calls = []
        for index in range(3):
            peer = (index + distance) % 3
            memory = engines.call(peer, "open_memory", f"for {index}", SIZE)
            assert engines.call(index, "route", sessions[peer]) == ("tcp", "it is on another host; with TLS")
            calls.append(engines.begin(index, "exercise", sessions[peer], memory, SIZE, distance))
        for call in calls:
            assert call.result(60) > 5


def test_a_target_that_is_stuck_in_c_still_serves(hosts3: Network, engines: Cluster, authority: Authority) -> None:
    """Also the first contact: certificates are looked at by native threads."""
    start(hosts3, engines, 0, info_of(authority, "initiator"))
    session = start(hosts3, engines, 1, info_of(authority, "target"))
    target = engines.call(1, "open_memory", "target", SIZE)
    engines.call(0, "open_memory", "source", SIZE)
    engines.call(0, "store", "source", WORD)
    with held_gil(engines, 1):
        assert engines.call(0, "write", session, "source", target, SIZE) == (0, "")
    assert engines.call(1, "load", "target", 0, len(WORD)) == WORD


def test_an_engine_of_another_authority_is_refused(
    hosts3: Network, engines: Cluster, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger")
    sessions = [
        start(hosts3, engines, 0, info_of(authority, "member")),
        start(hosts3, engines, 1, info_of(stranger, "x")),
    ]
    code, sentence = engines.call(0, "call", "send_probe", sessions[1])
    assert code == -2014
    assert "there is no encrypted connection to it: its certificate is not trusted" in sentence
    code, sentence = engines.call(1, "call", "send_probe", sessions[0])
    assert code == -2014
    assert "its certificate is not trusted" in sentence
    wait_for_line(engines, 0, "is not let in: it says that this side's certificate is of no authority it knows")


def test_plain_engines_and_encrypted_ones_refuse_each_other(
    hosts3: Network, engines: Cluster, authority: Authority
) -> None:
    sessions = [start(hosts3, engines, 0, info_of(authority, "member")), start(hosts3, engines, 1, "")]
    code, sentence = engines.call(0, "call", "send_probe", sessions[1])
    assert code == -2014
    assert "it ended the connection in the TLS handshake; it speaks no TLS" in sentence
    wait_for_line(engines, 1, "it speaks TLS, and this process does not")
    code, sentence = engines.call(1, "call", "send_probe", sessions[0])
    assert code == -2014
    assert "refuses: it takes encrypted connections only" in sentence
    wait_for_line(engines, 0, "it does not speak TLS, as this process does")


def test_certificates_are_renewed_and_revoked_without_a_restart(
    hosts3: Network, engines: Cluster, authority: Authority
) -> None:
    session = start(hosts3, engines, 0, info_of(authority, "target", with_crl=True))
    expired = authority.info(authority.issue("second", end=NOW - DAY / 2))
    start(hosts3, engines, 1, expired)
    code, sentence = engines.call(1, "call", "send_probe", session)
    assert code == -2014
    assert "that this side's certificate has expired; renew it" in sentence
    authority.issue("second")
    deadline = Deadline(20)
    while engines.call(1, "call", "send_probe", session)[0] != 0:
        assert not deadline.expired, "the renewed certificate is not used"
    third = authority.issue("third")
    authority.revoke(third)
    wait_for_line(engines, 0, "have changed and are read again")
    start(hosts3, engines, 2, authority.info(third))
    code, sentence = engines.call(2, "call", "send_probe", session)
    assert code == -2014
    assert "that this side's certificate is revoked" in sentence
    assert engines.call(1, "call", "send_probe", session) == (0, ""), "others go on"


def test_rdma_is_not_used_where_data_must_be_encrypted(hosts3: Network, engines: Cluster, authority: Authority) -> None:
    engines.call(0, "set_environment", INFO, info_of(authority, "engine"))
    address = f"{hosts3.hosts[0].address}:0"
    code, sentence = engines.call(0, "call", "initialize", None, address, "Decode", 0, data_op_type=HOST_RDMA)
    assert code == -2002
    assert "UCX encrypts nothing, and data goes with TLS" in sentence


@pytest.fixture
def members(hosts3: Network, authority: Authority) -> Iterator[Cluster]:
    """A store, and two members of other hosts."""
    environment = {INFO: info_of(authority, "member"), "MF_LOG_LEVEL": "2"}
    places = [host.place for host in hosts3.hosts]
    with Cluster(3, "support.pool_worker", environment=environment, places=places) as made:
        host_members.start_store(made, host_members.store_url(hosts3))
        yield made


def take_part(network: Network, cluster: Cluster) -> None:
    for index in (1, 2):
        host_members.take_part(cluster, index, host_members.store_url(network))
    host_members.wait_until_whole(cluster, (1, 2), (0, 1))


@pytest.mark.parametrize("setting", ["on", "off"])
def test_nobody_on_the_way_reads_a_pool(hosts3: Network, members: Cluster, setting: str) -> None:
    for index in (1, 2):
        members.call(index, "set_environment", "MF_DATA_TLS", setting)
    take_part(hosts3, members)
    route = members.call(1, "route", 1)
    assert route == ("tcp", "it is on another host" + ("; with TLS" if setting == "on" else ""))
    with overheard(hosts3.hosts[2]) as packets:
        assert members.call(1, "write", 1, 0, WORD * 1000) == (0, "")
        assert members.call(1, "read", 1, 0, len(WORD) * 1000) == (0, WORD * 1000)
    assert any(WORD[:16] in packet for packet in packets) == (setting == "off")
    assert members.call(2, "load", 1, 0, len(WORD)) == WORD


def test_members_that_do_not_agree_are_told(hosts3: Network, members: Cluster) -> None:
    members.call(2, "set_environment", "MF_DATA_TLS", "off")
    take_part(hosts3, members)
    code, sentence = members.call(1, "write", 1, 0, b"x")
    assert code == -2014
    assert "this process sends data with TLS only, rank 1 without" in sentence
    code, sentence = members.call(2, "write", 0, 0, b"x")
    assert code == -2014
    assert "rank 0 sends data with TLS only, this process without" in sentence
