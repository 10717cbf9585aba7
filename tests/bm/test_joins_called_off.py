"""A join that waits, for a neighbour or for the store, and another thread that wants to end or leave the object."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm
from memfabric_hybrid.bm import runtime
from support import pool_worker
from support.threads import Beside, wait_until
from support.workers import Cluster

HEARTBEAT = "MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S"
PATIENT: dict[str, int] = {"init_timeout": 60, "create_timeout": 60, "operation_timeout": 60}


def with_sentence(call: Any) -> tuple[int, str]:
    mf.get_and_clear_last_err_msg()
    return call(), mf.get_last_err_msg()


@pytest.fixture
def stopped(store_url: str, workers: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """This process runs the store and has created objects 0 and 1; a neighbour has joined object 0 and is stopped."""
    monkeypatch.setenv(HEARTBEAT, "600")
    assert pool_worker.enter(store_url, 4, **PATIENT) == (0, "")
    for object_id in (0, 1):
        pool_worker.create(object_id)
    with workers(1, **{HEARTBEAT: "600"}) as cluster:
        cluster.call(0, "take_part", store_url, 4)
        cluster.kill(0, signal.SIGSTOP)
        yield cluster
        pool_worker.uninitialize()
        cluster.kill(0, signal.SIGCONT)


def begin_to_join() -> Beside[tuple[int, str]]:
    """`join` of object 0, which waits for its neighbour."""
    pool = pool_worker.pools[0]
    joining = Beside(lambda: with_sentence(pool.join))
    wait_until(runtime.current_node().exchange._asker._turn.locked)
    return joining


def test_destroy_interrupts_a_join(stopped: Cluster) -> None:
    joining = begin_to_join()
    Beside(pool_worker.pools[0].destroy).result()
    code, sentence = joining.result()
    assert code == -2000
    assert "bm object 0 was destroyed meanwhile" in sentence
    assert pool_worker.call("join")[0] == -2000


def test_leave_interrupts_a_join(stopped: Cluster) -> None:
    joining = begin_to_join()
    assert Beside(lambda: with_sentence(pool_worker.pools[0].leave)).result() == (0, "")
    code, sentence = joining.result()
    assert code == -2003
    assert "bm object 0 was left while join() was under way" in sentence
    assert pool_worker.call("leave")[0] == -2003


def test_destroy_does_not_wait_behind_the_join_of_another_object(stopped: Cluster) -> None:
    with Cluster(1, "support.pool_worker", environment={HEARTBEAT: "600"}) as beside:
        beside.call(0, "take_part", runtime.current().url.__str__(), 4, 1)  # a neighbour that object 1 has to tell
        pool_worker.join(1)
        joining = begin_to_join()
        Beside(pool_worker.pools[1].destroy).result()
        assert joining.runs
        Beside(pool_worker.pools[0].destroy).result()
        assert joining.result()[0] == -2000


def test_uninitialize_interrupts_a_join(stopped: Cluster) -> None:
    joining = begin_to_join()
    Beside(bm.uninitialize).result()
    assert joining.result()[0] == -2000


def test_destroy_leaves_the_end_to_a_join_that_waits_for_the_store(
    store_url: str, workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is stopped: nobody can interrupt the request. Its thread frees the memory when the process leaves."""
    monkeypatch.setenv(HEARTBEAT, "600")
    with workers(1, **{HEARTBEAT: "600"}) as cluster:
        cluster.call(0, "take_part", store_url, 4)
        assert pool_worker.enter(store_url, 4, **PATIENT) == (0, "")
        pool_worker.create()
        pool = pool_worker.pools[0]
        cluster.kill(0, signal.SIGSTOP)
        joining = Beside(lambda: with_sentence(pool.join))
        wait_until(lambda: runtime.current_node().pools()[0]._joining)
        Beside(pool.destroy).result()
        assert joining.runs
        assert pool.join() == -2000
        Beside(bm.uninitialize).result()
        assert joining.result()[0] in (-2000, -2003)
        cluster.kill(0, signal.SIGCONT)
