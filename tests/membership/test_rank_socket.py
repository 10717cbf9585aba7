"""Rank sockets: one living process per rank and host, free the moment it is gone; and queues of calls."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import Duplicated
from memfabric_hybrid.machine.peer_credentials import peer_credentials
from memfabric_hybrid.membership import rank_socket
from memfabric_hybrid.membership.call_queue import CallQueue
from memfabric_hybrid.membership.identity import host_identity
from support.workers import Cluster

pytestmark = pytest.mark.plain_user

HOLDER = """
import sys, time
from memfabric_hybrid.membership import rank_socket
listener = rank_socket.bind(sys.argv[1])
print("bound", flush=True)
time.sleep(60)
"""


@pytest.fixture
def name() -> str:
    return f"test/{secrets.token_hex(8)}"


def test_names_tell_users_clusters_and_ranks_apart() -> None:
    names = {rank_socket.socket_name(cluster, rank) for cluster in ("bm@a:1", "bm@a:2", "shm@a:1") for rank in (0, 10)}
    assert len(names) == 6
    assert all(f"/{os.geteuid()}/" in name for name in names)
    longest = rank_socket.socket_name("bm@[ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255]:65535", 1023)
    rank_socket.bind(longest).close()


def test_second_one_is_told_who_has_it(name: str) -> None:
    with rank_socket.bind(name), pytest.raises(Duplicated, match=rf"{name}.*pid {os.getpid()}"):
        rank_socket.bind(name)
    rank_socket.bind(name).close()


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_name_is_held_by_the_living_the_stopped_included(name: str, ending: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, name], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "bound\n"
        with pytest.raises(Duplicated, match=f"pid {holder.pid}"):
            rank_socket.bind(name)
        holder.send_signal(signal.SIGSTOP)
        with pytest.raises(Duplicated, match=f"pid {holder.pid}"):
            rank_socket.bind(name)
        holder.send_signal(signal.SIGCONT)
        holder.send_signal(ending)
        holder.wait(10)
        rank_socket.bind(name).close()


def test_credentials_are_the_kernels(name: str) -> None:
    with rank_socket.bind(name) as listener, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        peer.connect("\0" + name)
        assert peer_credentials(peer) == (os.getpid(), os.geteuid())
        accepted = listener.accept()[0]
        assert peer_credentials(accepted) == (os.getpid(), os.geteuid())
        accepted.close()


def test_host_identity_is_the_same_in_every_process_of_the_host() -> None:
    program = "from memfabric_hybrid.membership.identity import host_identity; print(host_identity())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert done.stdout.strip() == host_identity()


# ---- calls on a thread of their own ---------------------------------------------------------------------------------


def test_calls_run_in_order_and_all_of_them_before_close_returns() -> None:
    queue, done = CallQueue("test queue"), []
    for number in range(1000):
        queue.post(lambda number=number: done.append(number))  # type: ignore[misc]
    queue.close(Deadline(10))
    assert done == list(range(1000))
    queue.post(lambda: done.append(-1))
    queue.close(Deadline(10))
    assert done[-1] == 999


def test_exception_does_not_stop_the_queue(capsys: pytest.CaptureFixture[str]) -> None:
    queue, done = CallQueue("test queue"), []
    queue.post(lambda: 1 / 0)
    queue.post(lambda: done.append(1))
    queue.close(Deadline(10))
    assert done == [1]
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_call_may_post_and_close() -> None:
    queue, done = CallQueue("test queue"), threading.Event()

    def last() -> None:
        queue.close(Deadline(10))
        done.set()

    queue.post(lambda: queue.post(last))
    assert done.wait(5)


def test_idle_queue_has_no_thread() -> None:
    before = threading.active_count()
    queue = CallQueue("test queue")
    assert threading.active_count() == before
    queue.close(Deadline(10))


# ---- names that other users sit on ----------------------------------------------------------------------------------


SQUATTER = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
squatted = []
for name in sys.argv[1:]:
    squatted.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    squatted[-1].bind("\\0" + name)
    squatted[-1].listen()
print("sits", flush=True)
sys.stdin.read()
"""
root_only = pytest.mark.needs_root("only root can start processes of other users")


@contextmanager
def squatted(*names: str) -> Iterator[int]:
    """Another user listens at these names; the pid."""
    command = [sys.executable, "-I", "-S", "-c", SQUATTER, *names]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/") as squatter:
        assert squatter.stdin is not None
        assert squatter.stdout is not None
        assert squatter.stdout.readline() == "sits\n"
        try:
            yield squatter.pid
        finally:
            squatter.stdin.close()


@root_only
def test_name_that_another_user_sits_on_is_replaced_and_the_log_says_who(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with squatted(name) as pid:
        with rank_socket.bind(name):
            assert f"'{name}' is held by process {pid} of user 65534" in capsys.readouterr().err
            with pytest.raises(Duplicated, match=rf"pid {os.getpid()}"):  # still one living process for one rank
                rank_socket.bind(name)
        rank_socket.bind(name).close()


@root_only
def test_name_with_all_its_variants_taken_by_another_user_is_no_rank(name: str) -> None:
    everything = [name, *(f"{name}/{number}" for number in range(1, rank_socket.VARIANTS))]
    with squatted(*everything), pytest.raises(Duplicated, match=name):
        rank_socket.bind(name)


@root_only
def test_members_whose_names_another_user_sits_on_find_each_other(store_url: str) -> None:
    with Cluster(3, "support.pool_worker") as cluster:
        assert cluster.call(2, "enter", store_url, 2, start_store_only=True) == (0, "")
        port = store_url.rpartition(":")[2]
        names = [rank_socket.socket_name(f"bm@127.0.0.1:{port}", rank) for rank in range(2)]
        with squatted(*names) as pid:
            ranks = cluster.call_all("take_part", store_url, 2, settings={"start_store": False}, indices=(0, 1))
            assert sorted(ranks) == [0, 1]
            for index in (0, 1):
                assert f"is held by process {pid} of user 65534" in cluster.output(index)
            assert cluster.call(0, "write", ranks[1], 0, b"to the other") == (0, "")
            assert cluster.call(1, "load", ranks[1], 0, 12) == b"to the other"
