"""Workers in containers: they see only themselves, die as others do, and take all that they started with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from support import namespaces, places, processes
from support.hosts import Network
from support.worker import TESTS
from support.workers import Cluster, WorkerError

pytestmark = pytest.mark.needs_root("only root can make containers")
LONG_S = 20.0

SCRIPT = """
import os, subprocess, time

def numbers():
    shown = [name for name in os.listdir("/proc") if name.isdigit()]
    return os.getpid(), os.getppid(), os.getuid(), os.readlink("/proc/self"), shown

def space(name):
    return os.stat(f"/proc/self/ns/{name}").st_ino

def start_an_orphan():
    subprocess.run(["sh", "-c", "setsid sleep 60 >/dev/null 2>&1 & :"], check=True)

def a_place_to_hang():
    time.sleep(60)
"""


def processes_in(space: int) -> set[int]:
    """Those of a namespace of processes."""
    return namespaces.holders("pid", space)


def wait_until_empty(space: int) -> None:
    deadline = time.monotonic() + LONG_S
    while left := processes_in(space):
        assert time.monotonic() < deadline, f"still there: {[processes.command_line(pid) for pid in left]}"
        time.sleep(0.01)


def space_of_the_test(name: str) -> int:
    return os.stat(f"/proc/self/ns/{name}").st_ino


@pytest.mark.parametrize("own_users", [True, False])
def test_a_container_sees_only_itself(own_users: bool) -> None:
    with Cluster(2, script=SCRIPT, places=[places.container(own_users=own_users)] * 2) as cluster:
        assert cluster.call_all("numbers") == [(1, 0, 0, "1", ["1"])] * 2
        assert len({*cluster.call_all("space", "pid"), space_of_the_test("pid")}) == 3
        assert len({*cluster.call_all("space", "user"), space_of_the_test("user")}) == (3 if own_users else 1)
        assert {*cluster.call_all("space", "net")} == {space_of_the_test("net")}
        assert cluster.pid(0) in processes.children(), "the test knows its number outside"
    assert os.readlink("/proc/self") == str(os.getpid()), "nobody else's mounts change"


def test_containers_on_hosts(hosts3: Network) -> None:
    one, other, _ = hosts3.hosts
    with Cluster(3, script=SCRIPT, places=[one.container(), other.container(), other.place]) as cluster:
        expected = [os.fstat(host.network).st_ino for host in (one, other, other)]
        assert cluster.call_all("space", "net") == expected
        assert [numbers[0] == 1 for numbers in cluster.call_all("numbers")] == [True, True, False]


@pytest.mark.parametrize("own_users", [True, False])
def test_a_killed_container_is_seen_and_leaves_no_orphan(own_users: bool) -> None:
    with Cluster(1, script=SCRIPT, places=[places.container(own_users=own_users)]) as cluster:
        space = cluster.call(0, "space", "pid")
        cluster.call(0, "start_an_orphan")
        assert len(processes_in(space)) == 2
        lost = cluster.begin(0, "a_place_to_hang")
        cluster.kill(0)
        with pytest.raises(WorkerError, match="died during a_place_to_hang: it was killed by SIGKILL"):
            lost.result()
        assert processes_in(space) == set(), "when kill returns"
        cluster.start(0)
        assert cluster.call(0, "numbers")[0] == 1
        assert cluster.call(0, "space", "user") != space_of_the_test("user") or not own_users


def test_an_orderly_end_takes_orphans_along() -> None:
    with Cluster(1, script=SCRIPT, places=[places.container()]) as cluster:
        space = cluster.call(0, "space", "pid")
        cluster.call(0, "start_an_orphan")
    wait_until_empty(space)


def test_a_container_can_be_stopped_and_shows_its_stacks() -> None:
    with Cluster(1, script=SCRIPT, places=[places.container()]) as cluster:
        cluster.kill(0, signal.SIGSTOP)
        assert processes.state(cluster.pid(0)) == "T"
        cluster.kill(0, signal.SIGCONT)
        with pytest.raises(WorkerError, match=r"did not answer a_place_to_hang within 0\.5 s") as caught:
            cluster.call(0, "a_place_to_hang", timeout_s=0.5)
        assert "in a_place_to_hang" in str(caught.value)
        cluster.kill(0)


def test_containers_die_when_the_test_process_is_killed() -> None:
    program = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from support import places
from support.workers import Cluster
with Cluster(2, target="os", places=[places.container(), places.container(own_users=False)]) as cluster:
    print(*[status.st_ino for status in cluster.call_all("stat", "/proc/self/ns/pid")], flush=True)
    sys.stdin.read()
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        spaces = [int(number) for number in parent.stdout.readline().split()]
        assert [len(processes_in(space)) for space in spaces] == [1, 1]
        parent.kill()
    for space in spaces:
        wait_until_empty(space)
