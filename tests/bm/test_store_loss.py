"""The store dies, stops, moves: copies go on, and when it is back everybody is whole again by themselves.

`MF_KILL_ROUNDS` lengthens the loop of killed and restarted stores.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm, shm
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.store import connect, parse_url
from memfabric_hybrid.store.server import hosting
from support import campaigns
from support.ports import reserved_port
from support.workers import Cluster

pytestmark = pytest.mark.own_store

STORE, MEMBERS, NEWCOMER = 0, (1, 2, 3), 4
WHOLE_S = 2.0
ALONE = {"start_store": False}


@pytest.fixture
def cluster(store_url: str, workers: Any) -> Iterator[Cluster]:
    """Worker 0 runs the store and nothing else; 1 to 3 are ranks 0 to 2 and copy to each other; 4 comes later."""
    with workers(5, MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S="1") as cluster:
        assert cluster.call(STORE, "enter", store_url, 8, start_store_only=True) == (0, "")
        for index in MEMBERS:
            assert cluster.call(index, "take_part", store_url, 8, settings=ALONE) == index - 1
        for index in MEMBERS:
            others = [rank for rank in range(3) if rank != index - 1]
            cluster.call(index, "start_copying", others, lane=index)
        yield cluster


def check_copies_never_stopped(cluster: Cluster, indices: tuple[int, ...] = MEMBERS) -> None:
    for index in indices:
        (seen,) = cluster.call(index, "stop_copying")
        assert seen["wrong"] == []
        for target, changes in seen["changes"].items():
            if target + 1 in indices:
                said = "\n".join(f"--- worker {one}:\n{cluster.output(one)}" for one in (STORE, *MEMBERS))
                assert [code for _, code in changes] == [0], f"rank {index - 1} to {target}: {changes}\n{said}"
                assert seen["rounds"][target] > 10


def restart_store(cluster: Cluster, store_url: str) -> float:
    """When it was there again."""
    cluster.start(STORE)
    assert cluster.call(STORE, "enter", store_url, 8, start_store_only=True) == (0, "")
    return time.monotonic()


@pytest.mark.soak
def test_killed_and_restarted_store(cluster: Cluster, store_url: str) -> None:
    for _ in range(campaigns.length("MF_KILL_ROUNDS", 2)):
        cluster.kill(STORE)
        time.sleep(0.3)
        back_at = restart_store(cluster, store_url)
        assert cluster.call(NEWCOMER, "take_part", store_url, 8, settings=ALONE) == 3
        cluster.call(NEWCOMER, "wait_for_view", [0, 1, 2, 3])
        assert time.monotonic() - back_at < WHOLE_S
        cluster.call_all("wait_for_view", [0, 1, 2, 3], indices=MEMBERS)
        assert cluster.call(NEWCOMER, "write", 2, 0, b"reached") == (0, "")
        cluster.call(NEWCOMER, "uninitialize")
        cluster.call_all("wait_for_view", [0, 1, 2], indices=MEMBERS)
    check_copies_never_stopped(cluster)


def test_nobody_is_dropped_because_the_store_stands_still_or_dies_again(cluster: Cluster, store_url: str) -> None:
    """It is back, some have registered, and before the last one could it stands still for longer than the grace of 1 s;
    or it is killed once more.
    """
    for how in (signal.SIGSTOP, signal.SIGKILL):
        cluster.kill(2, signal.SIGSTOP)
        cluster.kill(STORE)
        restart_store(cluster, store_url)
        with connect(store_url) as store:
            while set(store.prefix("bm/ranks/", deadline=Deadline(10)).entries) != {"bm/ranks/0", "bm/ranks/2"}:
                time.sleep(0.01)
        cluster.kill(STORE, how)
        cluster.kill(2, signal.SIGCONT)
        if how is signal.SIGSTOP:
            time.sleep(2.0)
            cluster.kill(STORE, signal.SIGCONT)
        else:
            restart_store(cluster, store_url)
        with connect(store_url) as store:
            assert store.wait("bm/ranks/1", deadline=Deadline(10))
        time.sleep(1.5)  # longer than the grace
    check_copies_never_stopped(cluster)


def test_member_that_dies_while_the_store_is_away(cluster: Cluster, store_url: str) -> None:
    cluster.kill(STORE)
    cluster.kill(2)
    cluster.call_all("wait_for_view", [0, 2], indices=(1, 3))
    restart_store(cluster, store_url)
    assert cluster.call(NEWCOMER, "take_part", store_url, 8, settings=ALONE) == 1, "its rank is free"
    cluster.call_all("wait_for_view", [0, 1, 2], indices=(1, 3, NEWCOMER))
    check_copies_never_stopped(cluster, (1, 3))


def test_member_that_leaves_while_the_store_is_away(cluster: Cluster, store_url: str) -> None:
    cluster.kill(STORE)
    (seen,) = cluster.call(2, "stop_copying")
    assert seen["wrong"] == []
    began = time.monotonic()
    cluster.call(2, "destroy")
    assert time.monotonic() - began < 5, "an orderly end does not wait long for a store that is away"
    cluster.call_all("wait_for_view", [0, 2], indices=(1, 3))
    restart_store(cluster, store_url)
    cluster.call(2, "create")
    cluster.call(2, "join")
    cluster.call_all("wait_for_view", [0, 1, 2], indices=MEMBERS)
    check_copies_never_stopped(cluster, (1, 3))


def test_control_calls_wait_for_the_store_up_to_their_time_out(store_url: str, workers: Any) -> None:
    with workers(3) as cluster:
        assert cluster.call(0, "enter", store_url, 4, start_store_only=True) == (0, "")
        for index, seconds in ((1, 1), (2, 60)):
            assert cluster.call(index, "enter", store_url, 4, start_store=False, operation_timeout=seconds) == (0, "")
            cluster.call(index, "create")
        cluster.kill(0)
        began = time.monotonic()
        code, sentence = cluster.call(1, "call", "join")
        assert code == -2004
        assert store_url in sentence
        assert 0.9 < time.monotonic() - began < 6
        joining = cluster.begin(2, "join")
        restart_store(cluster, store_url)
        joining.result()
        assert cluster.call(2, "view") == [1]


def test_stopped_store(cluster: Cluster, store_url: str) -> None:
    cluster.kill(STORE, signal.SIGSTOP)
    time.sleep(2.5)  # longer than the heartbeat time-out
    cluster.kill(STORE, signal.SIGCONT)
    assert cluster.call(NEWCOMER, "take_part", store_url, 8, settings=ALONE) == 3
    cluster.call_all("wait_for_view", [0, 1, 2, 3], indices=(*MEMBERS, NEWCOMER))
    for index in MEMBERS:
        (seen,) = cluster.call(index, "stop_copying")
        assert seen["wrong"] == []


def test_store_that_moves(cluster: Cluster, store_url: str) -> None:
    with reserved_port() as port:
        elsewhere = f"tcp://127.0.0.1:{port}"
        cluster.kill(STORE)
        restart_store(cluster, elsewhere)
        assert [cluster.call(index, "update_store_url", elsewhere) for index in MEMBERS] == [0, 0, 0]
        with connect(elsewhere) as store:
            while len(store.prefix("bm/ranks/", deadline=Deadline(10)).entries) < 3:  # they register by themselves
                time.sleep(0.01)
        assert cluster.call(NEWCOMER, "take_part", elsewhere, 8, settings=ALONE) == 3
        cluster.call_all("wait_for_view", [0, 1, 2, 3], indices=(*MEMBERS, NEWCOMER))
        check_copies_never_stopped(cluster)


def test_rank_of_a_silent_member_is_not_given_away_after_a_move(cluster: Cluster, store_url: str) -> None:
    """Its rank socket has a name at the store's new place, too: newcomers of this host see that it lives."""
    with reserved_port() as port:
        elsewhere = f"tcp://127.0.0.1:{port}"
        cluster.kill(STORE)
        restart_store(cluster, elsewhere)
        assert [cluster.call(index, "update_store_url", elsewhere) for index in MEMBERS] == [0, 0, 0]
        for rank in range(3):
            wait_for_name(f"/bm@127.0.0.1:{port}/{rank}")
        cluster.kill(1, signal.SIGSTOP)
        cluster.call_all("wait_for_view", [1, 2], indices=(2, 3))
        assert cluster.call(NEWCOMER, "take_part", elsewhere, 8, settings=ALONE) == 3, "rank 0 is only silent"
        cluster.kill(1, signal.SIGCONT)
        cluster.call_all("wait_for_view", [0, 1, 2, 3], indices=(*MEMBERS, NEWCOMER))


def test_a_rank_is_not_given_away_before_its_owner_has_found_the_moved_store(cluster: Cluster, store_url: str) -> None:
    """From the moment it is told of the move: the store is not there yet, and when it is, the owner is silent."""
    with reserved_port() as port:
        elsewhere = f"tcp://127.0.0.1:{port}"
        cluster.kill(STORE)
        assert [cluster.call(index, "update_store_url", elsewhere) for index in MEMBERS] == [0, 0, 0]
        cluster.kill(1, signal.SIGSTOP)
        restart_store(cluster, elsewhere)
        assert cluster.call(NEWCOMER, "take_part", elsewhere, 8, settings=ALONE) == 3, "rank 0 is only silent"
        cluster.kill(1, signal.SIGCONT)
        cluster.call_all("wait_for_view", [0, 1, 2, 3], indices=(*MEMBERS, NEWCOMER))
        with connect(elsewhere) as store:
            assert len(store.prefix("bm/ranks/", deadline=Deadline(10)).entries) == 4


def wait_for_name(end: str) -> None:
    """Of an abstract Unix socket."""
    deadline = Deadline(10)
    while not any(line.endswith(end) for line in Path("/proc/net/unix").read_text().splitlines()):
        assert not deadline.expired, f"no socket has a name that ends with {end}"
        time.sleep(0.01)


def test_whatever_uses_the_store_moves_with_it(store_url: str) -> None:
    """Share Memory and engines of the same process have no call of their own for that."""
    with reserved_port() as port, Cluster(2, "store.server_worker") as stores, mf.TransferEngine() as engine:
        elsewhere = f"tcp://127.0.0.1:{port}"
        stores.call(0, "serve", store_url)
        config, heap_config = bm.BmConfig(), shm.ShmConfig()
        config.start_store = heap_config.start_store = False
        assert bm.initialize(store_url, 1, 0, config) == 0
        assert shm.initialize(store_url, 1, 0, 0, heap_config) == 0
        assert engine.initialize(store_url, "name", "Prefill", 0) == 0
        with shm.create(0, 1, 0, 1 << 20) as heap:
            stores.kill(0)
            stores.call(1, "serve", elsewhere)
            assert bm.update_store_url(elsewhere) == 0
            assert heap.atomic_alloc_value(4) == 0
            with connect(elsewhere) as store:
                assert store.wait("transfer/sessions/name", deadline=Deadline(10)).decode() == engine.session_id
                assert store.wait("shm/ranks/0", deadline=Deadline(10))
        mf.uninitialize()


def test_a_store_that_has_moved_is_taken_over_where_it_is(store_url: str) -> None:
    """By a member that runs the store if nobody does: not at the place where it was once."""
    with reserved_port() as port, Cluster(2, "store.server_worker") as stores:
        elsewhere = f"tcp://127.0.0.1:{port}"
        stores.call(0, "serve", store_url)
        assert bm.initialize(store_url, 1, 0, bm.BmConfig()) == 0
        stores.call(1, "serve", elsewhere)
        assert bm.update_store_url(elsewhere) == 0
        with connect(elsewhere) as store:
            assert store.wait("bm/ranks/0", deadline=Deadline(10))
            stores.kill(0)
            stores.kill(1)
            assert store.wait("bm/ranks/0", deadline=Deadline(10)), "it is back, here"
        assert not hosting.somebody_listens(parse_url(store_url))
        mf.uninitialize()
        assert not hosting.somebody_listens(parse_url(elsewhere))


def test_member_whose_rank_was_given_away(store_url: str, workers: Any) -> None:
    """It comes late to the store's new place, where somebody has its rank: its copies must not pretend otherwise."""
    with reserved_port() as port, workers(4) as cluster:
        elsewhere = f"tcp://127.0.0.1:{port}"
        for index, url in ((0, store_url), (2, elsewhere)):
            assert cluster.call(index, "enter", url, 8, start_store_only=True) == (0, "")
            assert cluster.call(index + 1, "take_part", url, 8, settings=ALONE) == 0
        late, present = 1, 3
        cluster.call(present, "store", 0, 0, b"mine")
        assert cluster.call(late, "update_store_url", elsewhere) == 0
        cluster.call(late, "wait_for_view", [])
        code, sentence = cluster.call(late, "write", 0, 0, b"x")
        assert code == -2014
        assert "lost its rank" in sentence
        assert cluster.call(present, "view") == [0]
        assert cluster.call(present, "load", 0, 0, 4) == b"mine"
        cluster.call(late, "uninitialize")
        assert cluster.call(late, "take_part", elsewhere, 8, settings=ALONE) == 1
        cluster.call_all("wait_for_view", [0, 1], indices=(late, present))


@pytest.mark.also_over_tls
def test_store_host_among_the_members_is_replaced(store_url: str, workers: Any) -> None:
    """With auto ranking everybody may run the store: when its process dies another one takes over."""
    with workers(4, MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S="1") as cluster:
        for index in range(3):
            cluster.call(index, "take_part", store_url, 4)
        cluster.call(2, "start_copying", [1], lane=0)
        for victim, survivors in ((0, (1, 2)), (1, (2,))):
            cluster.kill(victim)
            died_at = time.monotonic()
            rank = cluster.call(3, "take_part", store_url, 4)
            cluster.call_all("wait_for_view", sorted([*survivors, rank]), indices=(*survivors, 3))
            assert time.monotonic() - died_at < WHOLE_S
            cluster.call(3, "uninitialize")
        (seen,) = cluster.call(2, "stop_copying")
        assert seen["wrong"] == []


def test_members_stopped_together_with_the_store_become_whole_again(store_url: str, workers: Any) -> None:
    """A suspended machine: everybody was silent for longer than the time-out, nobody is dead."""
    with workers(4, MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S="0.5") as cluster:
        for index in range(4):
            cluster.call(index, "take_part", store_url, 4)
        for _ in range(3):
            for index in range(4):
                cluster.kill(index, signal.SIGSTOP)
            time.sleep(1.2)
            for index in range(4):
                cluster.kill(index, signal.SIGCONT)
            time.sleep(0.3)
            cluster.call_all("wait_for_view", [0, 1, 2, 3])
