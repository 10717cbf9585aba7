"""A member that runs out of descriptors: it says so to whoever joins, and is whole again when it has some. The limit is
set from outside, as an administrator would."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm
from support import pool_worker
from support.descriptor_limits import no_more_descriptors
from support.pool_worker import MIB
from support.workers import Cluster

Workers = Callable[[int], AbstractContextManager[Cluster]]


def test_neighbour_of_a_member_without_descriptors_is_told(store_url: str, workers: Workers) -> None:
    with workers(2) as cluster:
        assert cluster.call(0, "take_part", store_url, 4) == 0
        cluster.call(1, "enter", store_url, 4)
        cluster.call(1, "create")
        with no_more_descriptors(cluster.pid(0)):
            code, why = cluster.call(1, "call", "join", timeout_s=15)
            assert code == -2002, why
            assert "descriptor" in why
            assert "ulimit -n" in why
        assert cluster.call(1, "call", "join") == (0, "")
        for index in (0, 1):
            assert cluster.call(index, "write", 1 - index, 0, b"whole again") == (0, "")


def test_many_who_connect_to_a_member_without_descriptors(store_url: str, workers: Workers) -> None:
    """More than its spare one: those who get no answer are answered when it has some again."""
    with workers(5) as cluster:
        assert cluster.call(4, "enter", store_url, 4, start_store_only=True) == (0, "")  # it needs descriptors, too
        assert cluster.call(0, "take_part", store_url, 4) == 0
        for index in (1, 2, 3):
            cluster.call(index, "enter", store_url, 4)
            cluster.call(index, "create")
        with no_more_descriptors(cluster.pid(0)):
            joins = [cluster.begin(index, "call", "join") for index in (1, 2, 3)]
            codes = {joins[0].result()[0]}
        codes |= {pending.result()[0] for pending in joins[1:]}
        assert codes <= {0, -2002}
        assert -2002 in codes
        for index in (1, 2, 3):
            assert cluster.call(index, "call", "join") == (0, "")
            assert cluster.call(index, "write", 0, 0, b"here") == (0, "")


def test_create_without_descriptors(pool: bm.BigMemory) -> None:
    with no_more_descriptors(os.getpid()), pytest.raises(RuntimeError, match=r"create bm handle failed: .*open files"):
        bm.create(1, 2 * MIB)
    assert "ulimit -n" in mf.get_last_err_msg()
    pool_worker.create(1)


def test_join_of_a_process_without_descriptors(store_url: str, workers: Workers) -> None:
    with workers(1) as cluster:
        assert cluster.call(0, "take_part", store_url, 4) == 0
        pool_worker.enter(store_url, 4)
        pool_worker.create()
        with no_more_descriptors(os.getpid()):
            code = pool_worker.pools[0].join()
        assert code in (-2002, -2004), mf.get_last_err_msg()
        assert mf.get_last_err_msg()
        pool_worker.join()
        assert cluster.call(0, "write", 1, 0, b"here") == (0, "")
