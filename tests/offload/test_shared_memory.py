"""SHARED memory: ranks come together, see each other's memory at the same addresses, and part again."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch

import memfabric_hybrid as mf
from memfabric_hybrid import _native, offload
from memfabric_hybrid.address_space import join_fact
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.membership.identity import host_identity
from memfabric_hybrid.store import connect, parse_url
from support import offload_worker
from support.offload_worker import GIB, MIB, malloc, must
from support.workers import Cluster

Workers = Callable[..., AbstractContextManager[Cluster]]


def share_all(cluster: Cluster, store_url: str, **fields: Any) -> None:
    """Every worker takes part, as the rank of its index."""
    size = cluster.count
    begun = [cluster.begin(rank, "share", store_url, rank, size, **fields) for rank in range(size)]
    for one in begun:
        one.result()


def test_every_rank_reads_and_writes_the_memory_of_all(workers: Workers, store_url: str) -> None:
    with workers(3) as cluster:
        share_all(cluster, store_url)
        places = [cluster.call(rank, "malloc", MIB) for rank in range(3)]
        assert [place - places[0] for place in places] == [0, GIB, 2 * GIB], "a slot has the reserved size"
        for rank in range(3):
            cluster.call(rank, "store", places[(rank + 1) % 3], bytes([rank]) * 100)
        for reader in range(3):
            for rank in range(3):
                assert cluster.call(reader, "load", places[(rank + 1) % 3], 100) == bytes([rank]) * 100
                assert cluster.call(reader, "call", "get_dva", places[rank]) == (places[rank], "")


def test_one_rank_has_the_memory_and_others_copy_from_it(workers: Workers, store_url: str) -> None:
    """As tensor-parallel programs do: rank 0 brings all of it, with tensors, and tells addresses to the others."""
    with workers(1) as cluster:
        other = cluster.begin(0, "share", store_url, 1, alloc_size=0)
        offload_worker.share(store_url, 0, alloc_size=GIB, local_world_size=2)
        other.result()
        cache = offload.empty([8, 512], dtype=torch.bfloat16)
        cache.copy_(torch.arange(8)[:, None] + 1)
        mine = cluster.call(0, "malloc", 8192)
        row = 512 * 2
        pieces = [(cache.data_ptr() + index * row, mine + index * row, row) for index in (7, 2)]
        assert cluster.call(0, "sparse_copy", pieces) == (0, "")
        content = cluster.call(0, "load", mine, 8192)
        assert content[7 * row : 8 * row] == cache[7].view(torch.uint8).numpy().tobytes()
        assert content[2 * row : 3 * row] == cache[2].view(torch.uint8).numpy().tobytes()
        back = [(mine + 7 * row, cache.data_ptr(), row)]
        assert cluster.call(0, "sparse_copy", back) == (0, "")
        assert torch.equal(cache[0], cache[7])


def test_memory_that_is_added_later_is_everybodys(workers: Workers, store_url: str) -> None:
    with workers(2) as cluster:
        share_all(cluster, store_url, alloc_size=2 * MIB)
        place = cluster.call(1, "malloc", 300 * MIB)
        cluster.call(1, "store", place + 300 * MIB - 5, b"hello")
        assert cluster.call(0, "load", place + 300 * MIB - 5, 5) == b"hello"


def test_a_rank_alone(store_url: str) -> None:
    offload_worker.share(store_url, 0, 1)
    ctypes.memset(malloc(5 * MIB), 1, 5 * MIB)
    offload.uninitialize()
    offload_worker.share(store_url, 0, 1)
    must(offload.free(malloc(1)))


def test_tensors_of_before_stand_in_the_way(store_url: str) -> None:
    """The addresses of a rank are the same every time, and still in use."""
    offload_worker.share(store_url, 0, 1)
    tensor = offload.empty(100).fill_(2)
    offload.uninitialize()
    code, why = offload_worker.enter(scene=1, store_url=store_url, reserve_size=GIB)
    assert code == -2001
    assert "arrays on its memory still exist" in why
    assert tensor.sum() == 200
    del tensor
    offload_worker.share(store_url, 0, 1)


def test_all_may_leave_and_come_again(workers: Workers, store_url: str) -> None:
    with workers(2) as cluster:
        places = []
        for _ in range(2):
            share_all(cluster, store_url)
            places.append([cluster.call(rank, "malloc", 100) for rank in (0, 1)])
            cluster.call(0, "store", places[-1][1], b"again")
            assert cluster.call(1, "load", places[-1][1], 5) == b"again"
            for rank in (1, 0):  # rank 0 runs the store
                cluster.call(rank, "leave")
        assert places[0] == places[1]


def test_copies_from_a_rank_that_is_gone_fail(workers: Workers, store_url: str) -> None:
    with workers(3) as cluster:
        share_all(cluster, store_url)
        places = [cluster.call(rank, "malloc", 4096) for rank in range(3)]
        cluster.call(1, "leave")
        cluster.kill(2)
        for gone in (1, 2):
            code, why = cluster.call(0, "copy_until_it_fails", places[gone], places[0], 100)
            assert code in (-2014, -2012), why
            assert f"rank {gone} cannot be reached" in why
            assert cluster.call(0, "call", "get_dva", places[gone])[0] == 0


def test_ranks_that_do_not_come_are_named(store_url: str) -> None:
    code, why = offload_worker.enter(
        scene=offload.SHARED, store_url=store_url, world_size=3, reserve_size=GIB, init_timeout=3
    )
    assert code == -2004
    assert "2 of 3 ranks did not come within 3 s: 1, 2" in why
    assert offload.malloc(8) == 0, "and nothing is left of the attempt"
    offload_worker.share(store_url, 0, 1)


def test_a_rank_may_leave_as_soon_as_it_has_come(workers: Workers, store_url: str) -> None:
    """The others have it all the same."""
    with workers(2) as cluster:
        for _ in range(5):
            begun = [cluster.begin(rank, "share", store_url, rank) for rank in (0, 1)]
            leaving = cluster.begin(1, "leave")
            for one in (*begun, leaving):
                one.result()
            cluster.call(0, "leave")


def test_a_rank_that_dies_before_anybody_has_seen_it(workers: Workers, store_url: str) -> None:
    """The others do not wait for it until their time is over."""
    must(mf.create_config_store(store_url))
    with workers(2) as cluster:
        cluster.call(1, "stand_still_in_initialize", store_url, 1)
        waiting = cluster.begin(0, "enter", scene=1, store_url=store_url, world_size=2, reserve_size=GIB)
        wait_until_joined(store_url, 0)
        cluster.kill(1)
        code, why = waiting.result()
        assert code == -2014, why
        assert "rank 1" in why
        assert "its process died, left the cluster" in why


def wait_until_joined(store_url: str, rank: int) -> None:
    """The store shows that rank's part in the memory."""
    store, deadline = connect(parse_url(store_url)), Deadline(20)
    key = join_fact.key("offload/0", host_identity(), rank)
    while store.get(key, deadline=deadline) is None:
        pass
    store.close()


@pytest.mark.own_store
def test_no_store_answers(store_url: str) -> None:
    code, why = offload_worker.enter(
        scene=offload.SHARED, store_url=store_url, world_size=2, rank_id=1, reserve_size=GIB, init_timeout=3
    )
    assert code == -2004
    assert store_url.removeprefix("tcp://") in why


def test_a_rank_that_exists(workers: Workers, store_url: str) -> None:
    with workers(2) as cluster:
        share_all(cluster, store_url)
        code, why = offload_worker.enter(
            scene=offload.SHARED, store_url=store_url, world_size=2, rank_id=1, reserve_size=GIB
        )
        assert code == -2006, why


def test_ranks_that_reserve_different_sizes(workers: Workers, store_url: str) -> None:
    """The one that asks second is told what both have asked for; the first one hears that it has left."""
    with workers(1) as cluster:
        fields = {"scene": 1, "store_url": store_url, "world_size": 2, "init_timeout": 5}
        other = cluster.begin(0, "enter", rank_id=1, reserve_size=2 * GIB, **fields)
        answers = [offload_worker.enter(rank_id=0, reserve_size=GIB, **fields), other.result()]
        refused = [why for code, why in answers if code == -2000]
        assert len(refused) == 1, answers
        assert "1 GiB of DRAM per rank for 2 ranks" in refused[0]
        assert "2 GiB of DRAM per rank for 2 ranks" in refused[0]
        assert {code for code, _ in answers} <= {-2000, -2014, -2004}, "the last, if the store has left with it"


@pytest.mark.parametrize("local_world_size", [0, 2])
def test_ranks_on_more_hosts_than_was_said(workers: Workers, store_url: str, local_world_size: int) -> None:
    """Whoever counts on the other's memory would crash: that is said before."""
    with workers(1, MF_HOST_IDENTITY="another host") as cluster:
        fields = {"scene": 1, "store_url": store_url, "world_size": 2, "reserve_size": GIB}
        fields["local_world_size"] = local_world_size
        other = cluster.begin(0, "enter", rank_id=1, **fields)
        code, why = offload_worker.enter(rank_id=0, **fields)
        assert code == -2000
        assert "local_world_size is 2 (0 means the world_size 2), but ranks [0] share the memory of" in why
        assert other.result() == (code, why)


def test_ranks_of_another_host_are_copied_to_and_from(workers: Workers, store_url: str) -> None:
    with workers(1, MF_HOST_IDENTITY="another host") as cluster:
        other = cluster.begin(0, "share", store_url, 1, local_world_size=1)
        offload_worker.share(store_url, 0, local_world_size=1)
        other.result()
        mine, theirs = malloc(8192), cluster.call(0, "malloc", 8192)
        ctypes.memset(mine, 5, 100)
        assert offload.get_dva(theirs) == 0, "it is not mapped here"
        assert offload_worker.sparse_copy([(mine, theirs, 100)]) == (0, "")
        assert cluster.call(0, "load", theirs, 101) == b"\5" * 100 + b"\0"
        assert offload_worker.sparse_copy([(theirs, mine + 4096, 100)]) == (0, "")
        assert ctypes.string_at(mine + 4096, 100) == b"\5" * 100


@pytest.mark.parametrize("end", [offload.uninitialize, mf.uninitialize])
def test_who_waits_for_others_can_be_ended(store_url: str, end: Callable[[], None]) -> None:
    answers: list[tuple[int, str]] = []
    fields = {"scene": 1, "store_url": store_url, "world_size": 2, "reserve_size": GIB, "init_timeout": 100}
    _native._hold_at("offload.initialize.joined")
    waiting = threading.Thread(target=lambda: answers.append(offload_worker.enter(**fields)))
    waiting.start()
    try:
        assert _native._wait_until_held("offload.initialize.joined", 20)
    finally:
        _native._release_at("offload.initialize.joined")
    end()
    waiting.join(20)
    assert [code for code, _ in answers] == [-2008]
    assert "initialize() was under way in another thread" in answers[0][1]
    assert offload.malloc(8) == 0


def test_it_stands_beside_big_memory_in_one_cluster(store_url: str) -> None:
    from memfabric_hybrid import bm

    must(bm.initialize(store_url, 1, 0, bm.BmConfig()))
    pool = bm.create(0, 2 * MIB)
    must(pool.join())
    offload_worker.share(store_url, 0, 1)
    mine, theirs = malloc(4096), pool.peer_rank_ptr(0, bm.BmMemType.HOST)
    ctypes.memset(mine, 6, 64)
    assert offload_worker.sparse_copy([(mine, theirs, 64)]) == (0, "")
    assert ctypes.string_at(theirs, 65) == b"\6" * 64 + b"\0"
    must(pool.copy_data(theirs, mine + 64, 64, bm.BmCopyType.AUTO))
    assert ctypes.string_at(mine, 129) == b"\6" * 128 + b"\0"
    pool.destroy()
