"""The hosts of tests: they reach each other and nobody else, workers run on them, and nothing of them stays."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from support import hosts, iproute, namespaces
from support.host_sockets import connected, frames, round_trip_s, to_all
from support.hosts import Network
from support.places import Place
from support.worker import TESTS
from support.workers import Cluster

pytestmark = hosts.needs_root
LONG_S = 20.0

SCRIPT = """
import os, socket, threading

def look():
    return {os.stat(f"/proc/self/task/{task}/ns/net").st_ino for task in os.listdir("/proc/self/task")}

AT_IMPORT = look()

def network():
    return AT_IMPORT | look()

def names():
    return sorted(name for _, name in socket.if_nameindex())

def keeps_a_namespace():
    folder = "/proc/self/fd"
    return any(os.readlink(f"{folder}/{number}").startswith("net:") for number in os.listdir(folder)
               if os.path.lexists(f"{folder}/{number}"))
"""


def inode(network: int) -> int:
    return os.fstat(network).st_ino


def holders(networks: set[int]) -> set[int]:
    return {pid for network in networks for pid in namespaces.holders("net", network)}


def test_hosts_reach_each_other_with_both_families(hosts3: Network) -> None:
    for one in hosts3.hosts:
        for other in hosts3.hosts:
            for version in (4, 6):
                with connected(one, other, version=version) as ends:
                    assert round_trip_s(ends) < LONG_S


def test_the_first_frame_passes() -> None:
    """The kernel does a part of bringing a cable up a moment later; what is lost until then nobody sends again."""
    with Network(2) as network, frames(network.hosts[0]) as one, frames(network.hosts[1]) as other:
        for _ in range(40):
            for sender, receiver in ((one, other), (other, one)):
                sender.send(to_all(b"first"))
                assert receiver.recv(2000).endswith(b"first")
            network.hosts[0].link_down()
            network.hosts[0].link_up()


def test_each_host_has_its_own_loopback_and_abstract_sockets(hosts3: Network) -> None:
    listeners = []
    for host in hosts3.hosts:
        with host.entered():
            listeners.append(socket.create_server(("127.0.0.1", 9000)))
            listeners.append(socket.socket(socket.AF_UNIX))
            listeners[-1].bind("\0memfabric test of hosts")
    for listener in listeners:
        listener.close()


def test_two_networks_with_the_same_addresses_do_not_meet() -> None:
    with Network(2) as one, Network(2) as other:
        assert [host.address for host in one.hosts] == [host.address for host in other.hosts]
        with one.hosts[0].entered(), socket.create_server((one.hosts[0].address, 9000)) as listener:
            with other.hosts[1].entered(), pytest.raises(ConnectionRefusedError):
                socket.create_connection((one.hosts[0].address, 9000), timeout=LONG_S)
            with one.hosts[1].entered():
                socket.create_connection((one.hosts[0].address, 9000), timeout=LONG_S).close()
            listener.accept()[0].close()


def test_nothing_of_the_machine_changes_and_nothing_stays() -> None:
    devices, own = socket.if_nameindex(), os.readlink("/proc/thread-self/ns/net")
    with Network(3) as network:
        inodes = {inode(host.network) for host in network.hosts}
        assert holders(inodes) == {os.getpid()}
        assert socket.if_nameindex() == devices
        with network.hosts[1].entered():
            assert os.readlink("/proc/thread-self/ns/net") == f"net:[{inode(network.hosts[1].network)}]"
        assert os.readlink("/proc/thread-self/ns/net") == own
    assert holders(inodes) == set()
    assert socket.if_nameindex() == devices


def test_a_network_that_cannot_be_made_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The descriptors that are left would fail this test."""
    monkeypatch.setattr(hosts, "DEVICE", "a name that no device may have")
    with pytest.raises(RuntimeError, match="ip failed: ") as caught, Network(2):
        pass
    assert "a name that no device may have" in str(caught.value), "which command it was"


def test_missing_programs_are_named(hosts3: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(RuntimeError, match="scripts/install-missing iproute2"):
        iproute.ip(hosts3.hosts[0].network, ["link"])


def test_workers_run_on_their_hosts_from_the_first_import_on(hosts3: Network) -> None:
    with Cluster(6, script=SCRIPT, places=hosts3.places(2)) as cluster:
        expected = [{inode(host.network)} for host in hosts3.hosts for _ in range(2)]
        assert cluster.call_all("network") == expected
        assert cluster.call_all("names") == [["eth0", "lo"]] * 6
        assert cluster.call_all("keeps_a_namespace") == [False] * 6


def test_a_worker_that_is_started_again_is_on_the_same_host_or_on_another_one(hosts3: Network) -> None:
    with Cluster(2, script=SCRIPT, places=[hosts3.hosts[1].place, Place()]) as cluster:
        cluster.kill(0)
        cluster.start(0)
        assert cluster.call(0, "network") == {inode(hosts3.hosts[1].network)}
        cluster.dismiss(0)
        cluster.places[0] = hosts3.hosts[2].place
        cluster.start(0)
        assert cluster.call(0, "network") == {inode(hosts3.hosts[2].network)}
        own = namespaces.own_network()
        assert cluster.call(1, "network") == {inode(own)}, "beside the test, as ever"
        os.close(own)


def test_a_place_that_is_none_is_told_and_the_next_worker_starts() -> None:
    with open("/dev/null", "rb") as nothing:
        with (
            pytest.raises(RuntimeError, match=r"worker 0 cannot start at .*setns"),
            Cluster(1, script=SCRIPT, places=[Place(nothing.fileno())]),
        ):
            pass
        with Cluster(1, script=SCRIPT) as cluster:
            assert cluster.call(0, "network")
        with pytest.raises(ValueError, match="3 workers have 1 places"):
            Cluster(3, script=SCRIPT, places=[Place()])


def test_everything_goes_when_the_test_process_is_killed() -> None:
    """Also the delay line's process, and what runs on a host and in a container."""
    program = f"""
import os, subprocess, sys
sys.path.insert(0, {str(TESTS)!r})
from support.hosts import Network
from support.workers import Cluster
with Network(2) as network:
    one, other = network.hosts
    one.delay(5)
    with Cluster(3, target="subprocess", places=[one.place, other.place, other.container()]) as cluster:
        cluster.call(2, "call", ["sh", "-c", "setsid sleep 60 >/dev/null 2>&1 & :"])
        print(*[os.fstat(host.network).st_ino for host in network.hosts], flush=True)
        sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        networks = {int(number) for number in parent.stdout.readline().split()}
        assert len(networks) == 2
        assert len(holders(networks)) == 1 + 3 + 1, "the test process, three workers, what one of them started"
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + LONG_S
    while (left := holders(networks)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left == set()
