"""Entering and leaving a cluster: ranks, who runs the store, any order of ending."""

from __future__ import annotations

from typing import Any

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm
from memfabric_hybrid.bm import BmMemType
from support import pool_worker
from support.pool_worker import MIB


def test_initialize_is_idempotent(store_url: str) -> None:
    assert mf.initialize() == 0
    assert mf.initialize(flags=0) == 0
    assert pool_worker.enter(store_url, 4) == (0, "")
    assert pool_worker.enter("tcp://never.looked.at:1", 1000) == (0, ""), "again while initialised: 0"
    assert bm.bm_rank_id() == 0
    bm.uninitialize()
    bm.uninitialize()
    assert bm.bm_rank_id() == 4294967295
    assert pool_worker.enter(store_url, 8) == (0, ""), "and a new life may have another world"


def test_ending_in_any_order(store_url: str) -> None:
    for ending in (
        (mf.uninitialize,),
        (bm.uninitialize, mf.uninitialize),
        (mf.uninitialize, bm.uninitialize),
        (lambda: pool_worker.destroy(), mf.uninitialize),
        (mf.uninitialize, lambda: pool_worker.destroy()),
        (bm.uninitialize, lambda: pool_worker.destroy(), mf.uninitialize, mf.uninitialize),
    ):
        assert pool_worker.take_part(store_url) == 0
        for step in ending:
            step()
        pool_worker.pools.clear()
        assert bm.bm_rank_id() == 4294967295
        assert mf.get_and_clear_last_err_msg() != ""


def test_join_and_leave_many_times(pool: bm.BigMemory) -> None:
    for _ in range(20):
        assert pool.join() == 0, "joining again does nothing"
        assert pool.leave() == 0
        assert pool.join() == 0
    assert pool_worker.view() == [0]
    assert mf.get_last_err_msg() == ""


def test_context_manager_destroys(store_url: str) -> None:
    assert pool_worker.enter(store_url) == (0, "")
    with bm.create(5, 1) as pool:
        assert pool.join(flags=0) == 0
        assert "rank 0 of 4, joined" in repr(pool)
        assert pool.local_mem_size(BmMemType.HOST) == 2 * MIB, "rounded up"
    assert repr(pool) == "<BigMemory 5: destroyed>"


def test_auto_ranking_gives_the_lowest_free_rank(store_url: str, workers: Any) -> None:
    with workers(4) as cluster:
        assert [cluster.call(index, "take_part", store_url, 8) for index in range(4)] == [0, 1, 2, 3]
        cluster.call(1, "uninitialize")
        cluster.call(2, "uninitialize")
        assert cluster.call(2, "take_part", store_url, 8) == 1
        assert cluster.call(1, "take_part", store_url, 8) == 2
        assert cluster.call_all("view") == [[0, 1, 2, 3]] * 4


def test_all_start_at_once_and_one_of_them_runs_the_store(store_url: str, workers: Any) -> None:
    with workers(4) as cluster:
        assert sorted(cluster.call_all("take_part", store_url, 4)) == [0, 1, 2, 3]
        cluster.call_all("wait_for_view", [0, 1, 2, 3])


def test_fixed_ranks_and_rank_0_runs_the_store(store_url: str, workers: Any) -> None:
    with workers(3) as cluster:
        fixed = {"auto_ranking": False}
        early = cluster.begin(0, "enter", store_url, 8, rank_id=5, **fixed)  # waits for the store
        assert cluster.call(1, "enter", store_url, 8, rank_id=0, **fixed) == (0, "")
        assert early.result() == (0, "")
        assert cluster.call(2, "enter", store_url, 8, rank_id=2, start_store=False, **fixed) == (0, "")
        assert cluster.call_all("rank") == [5, 0, 2]


@pytest.mark.own_store
def test_fixed_rank_other_than_0_never_starts_the_store(store_url: str) -> None:
    code, _ = pool_worker.enter(store_url, 8, auto_ranking=False, rank_id=1, init_timeout=1)
    assert code == -2004


def test_auto_and_fixed_ranks_in_one_cluster(store_url: str, workers: Any) -> None:
    with workers(3) as cluster:
        assert cluster.call(0, "enter", store_url, 4) == (0, "")
        assert cluster.call(1, "enter", store_url, 4, auto_ranking=False, rank_id=1) == (0, "")
        assert cluster.call(2, "enter", store_url, 4) == (0, "")
        assert cluster.call_all("rank") == [0, 1, 2]


def test_store_only(store_url: str, workers: Any) -> None:
    with workers(2) as cluster:
        assert cluster.call(0, "enter", store_url, 4, start_store_only=True) == (0, "")
        assert cluster.call(0, "rank") == 4294967295
        assert cluster.call(1, "take_part", store_url, 4) == 0
        assert cluster.call(1, "view") == [0]


def test_store_url_by_name_and_v6(workers: Any) -> None:
    from support.ports import reserved_port

    for host, listen_at in (("localhost", "127.0.0.1"), ("[::1]", "::1")):
        with reserved_port(listen_at) as port, workers(2) as cluster:
            assert sorted(cluster.call_all("take_part", f"tcp://{host}:{port}", 4)) == [0, 1]
            cluster.call_all("wait_for_view", [0, 1])
