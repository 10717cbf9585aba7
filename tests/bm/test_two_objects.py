"""Several objects at once, copies between them, and tags that forbid a route."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm
from memfabric_hybrid.bm import BmCopyType, BmMemType
from support import pool_worker
from support.pool_worker import MIB

HOST, DEVICE = BmMemType.HOST, BmMemType.DEVICE


def test_two_objects_do_not_disturb_each_other(store_url: str, workers: Any) -> None:
    with workers(2) as cluster:
        for index in range(2):
            cluster.call(index, "take_part", store_url, 2, object_id=1, dram=2 * MIB)
            cluster.call(index, "create", 2, dram=4 * MIB, hbm=2 * MIB)
        cluster.call(0, "join", 2)
        assert cluster.call(0, "view", 1) == [0, 1]
        assert cluster.call(0, "view", 2) == [0]
        cluster.call(1, "join", 2)
        assert cluster.call(0, "view", 2) == [0, 1]
        cluster.call(1, "destroy", 1)
        assert cluster.call(0, "view", 1) == [0]
        assert cluster.call(0, "view", 2) == [0, 1]
        assert cluster.call(0, "address", 0, object_id=2) == cluster.call(1, "address", 0, object_id=2)


def test_local_side_may_lie_in_the_other_object(store_url: str, workers: Any) -> None:
    for object_id in (1, 2):
        if object_id == 1:
            pool_worker.take_part(store_url, 2, object_id=1, dram=2 * MIB)
        else:
            pool_worker.create(2, dram=2 * MIB, hbm=2 * MIB)
            pool_worker.join(2)
    first, second = pool_worker.pools[1], pool_worker.pools[2]
    with workers(1) as cluster:
        cluster.call(0, "take_part", store_url, 2, object_id=1, dram=2 * MIB)
        cluster.call(0, "create", 2, dram=2 * MIB, hbm=2 * MIB)
        cluster.call(0, "join", 2)
        cluster.call(0, "store", 1, 0, b"over there", HOST, 2)
        far, own = second.peer_rank_ptr(1, HOST), first.peer_rank_ptr(0, HOST)
        for copy_type in (BmCopyType.L2G, BmCopyType.H2G, BmCopyType.AUTO):
            assert first.copy_data(far, own, 10, copy_type) == 0, mf.get_last_err_msg()
            assert ctypes.string_at(own, 10) == b"over there"
            ctypes.memset(own, 0, 10)
        assert first.copy_data(own, second.peer_rank_ptr(1, DEVICE), 10, BmCopyType.G2L) == 0
        assert first.copy_data(far + 2 * MIB - 5, own, 10, BmCopyType.L2G) == -2000, "beyond its memory"
        assert f"{far + 2 * MIB - 5:#x}" in mf.get_last_err_msg()
        cluster.call(0, "call", "leave", object_id=2)
        assert first.copy_data(far, own, 10, BmCopyType.L2G) == -2014, "its owner has left the other object"
        cluster.call(0, "join", 2)
        assert first.copy_data(far, own, 10, BmCopyType.L2G) == 0
        second.destroy()
        assert first.copy_data(own, first.peer_rank_ptr(1, HOST), 10, BmCopyType.G2G) == 0


def test_ranges_of_objects_are_used_again(store_url: str) -> None:
    assert pool_worker.enter(store_url, 1024) == (0, "")
    for _ in range(20):  # 8 TiB each, of 64 in all
        with bm.create2(3, 0, 8 << 30) as pool:
            assert pool.join() == 0


def test_64_objects_in_one_process(store_url: str, workers: Any) -> None:
    with workers(2) as cluster:
        for index in range(2):
            cluster.call(index, "enter", store_url, 2)
            for object_id in range(64):
                cluster.call(index, "create", object_id)
                cluster.call(index, "join", object_id)
        assert cluster.call(0, "write", 1, 5, b"x", object_id=63) == (0, "")
        assert cluster.call(1, "load", 1, 5, 1, object_id=63) == b"x"
        cluster.kill(1)
        for object_id in (0, 31, 63):
            cluster.call(0, "wait_for_view", [0], object_id=object_id)


# ---- tags -----------------------------------------------------------------------------------------------------------


def take_part_with(cluster: Any, index: int, store_url: str, tag: str, rules: str) -> None:
    cluster.call(index, "take_part", store_url, 4, tag=tag, tag_op_info=rules)


def test_tags_decide_who_reaches_whom(store_url: str, workers: Any) -> None:
    rules = "prefill:HOST_SHM:decode,prefill:DEVICE_SDMA:prefill"
    with workers(4) as cluster:
        for index, tag in enumerate(["prefill", "decode", "other", ""]):
            take_part_with(cluster, index, store_url, tag, rules)
        assert cluster.call_all("view") == [[0, 1, 3], [0, 1, 3], [2, 3], [0, 1, 2, 3]]
        code, sentence = cluster.call(1, "write", 2, 0, b"x")
        assert code == -2014
        assert "'decode'" in sentence
        assert "'other'" in sentence
        assert "no route" in sentence


def test_rule_that_names_a_route_which_does_not_exist(store_url: str, workers: Any) -> None:
    with workers(2) as cluster:
        for index, tag in enumerate(["a", "b"]):
            take_part_with(cluster, index, store_url, tag, "b:HOST_RDMA:a,a:HOST_URMA:b")
        code, sentence = cluster.call(0, "write", 1, 0, b"x")
        assert code == -2014
        assert "HOST_RDMA" in sentence
        assert "HOST_URMA" in sentence
        assert cluster.call_all("view") == [[0], [1]]


def test_rules_of_a_pair_are_or_ed(store_url: str, workers: Any) -> None:
    with workers(2) as cluster:
        for index, tag in enumerate(["a", "b"]):
            take_part_with(cluster, index, store_url, tag, "a:HOST_TCP:b,b:DEVICE_MTE:a")
        assert cluster.call_all("view") == [[0, 1]] * 2


def test_no_route_is_not_a_death(store_url: str, workers: Any) -> None:
    """The rank that cannot be reached takes part: it is seen to join and to leave."""
    with workers(2) as cluster:
        take_part_with(cluster, 0, store_url, "a", "a:HOST_RDMA:b")
        cluster.call(0, "record_events")
        take_part_with(cluster, 1, store_url, "b", "a:HOST_RDMA:b")
        cluster.call(1, "call", "leave")
        assert cluster.call(0, "wait_for_events", 2) == [(1, "JOIN_EVENT"), (1, "LEAVE_EVENT")]


# ---- small things ---------------------------------------------------------------------------------------------------


def test_alignment_does_not_matter(pool: bm.BigMemory) -> None:
    own = pool.peer_rank_ptr(0, HOST)
    source = (ctypes.c_char * 300).from_buffer(bytearray(range(200)) + bytearray(100))
    for source_at in range(0, 64, 7):
        for target_at in range(0, 64, 9):
            for size in (1, 31, 33, 63, 64, 65, 130):
                start = ctypes.addressof(source) + source_at
                assert pool.copy_data(start, own + target_at, size, BmCopyType.H2G) == 0
                assert ctypes.string_at(own + target_at, size) == source.raw[source_at : source_at + size]


@pytest.mark.parametrize("kind", [BmCopyType.AUTO, 9, True])
def test_copy_type_may_be_any_number(pool: bm.BigMemory, kind: Any) -> None:
    own = pool.peer_rank_ptr(0, HOST)
    plain = ctypes.create_string_buffer(8)
    code = pool.copy_data(own, ctypes.addressof(plain), 8, kind)
    assert code == 0, "True is 1, which is G2L"
