"""Ranks that count as being on two hosts: each host combines in shared memory, their leaders meet in the store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support import campaigns
from support.workers import Cluster

HOSTS = {0: "a", 1: "b", 2: "a", 3: "b", 4: "b"}  # by rank; interleaved, so that order of rank is not order of host
COUNT = len(HOSTS)


@contextmanager
def two_hosts(store_url: str, **settings: object) -> Iterator[Cluster]:
    with Cluster(COUNT, "support.heap_worker") as cluster:
        for rank, host in HOSTS.items():
            cluster.call(rank, "count_as_host", host)
        assert len(set(cluster.call_all("take_part", store_url, COUNT, **settings))) == 1
        yield cluster


def test_collectives_over_two_hosts(store_url: str) -> None:
    with two_hosts(store_url) as cluster:
        assert cluster.call_all("barriers", 20) == [[]] * COUNT
        assert cluster.call_all("gathered_rounds", 8, [1, 8, 30_000, 65536]) == [0] * COUNT
        assert cluster.call_all("mixed_rounds", 10) == [0] * COUNT
        for rank, host in HOSTS.items():
            assert [cluster.call(rank, "call", "reach", peer)[0] for peer in range(COUNT)] == [
                3 if other == host else 4 for other in HOSTS.values()
            ]


def test_memory_of_the_own_host_is_shared(store_url: str) -> None:
    with two_hosts(store_url) as cluster:
        cluster.call(0, "store_bytes", 2, 0, b"hello")
        assert cluster.call(2, "load_bytes", 2, 0, 5) == b"hello"


def test_unequal_lengths_are_refused_everywhere(store_url: str) -> None:
    with two_hosts(store_url) as cluster:
        for odd in (2, 1):  # not the leader of its host, and the leader of the other
            pending = [cluster.begin(r, "timed", "all_gather", b"x" * (2 if r == odd else 1)) for r in range(COUNT)]
            for call in pending:
                _, result, why = call.result()
                assert str(result).startswith("all_gather failed"), result
                assert "brought 1 bytes" in why
                assert "brought 2 bytes" in why
        assert cluster.call_all("barriers", 3) == [[]] * COUNT


def test_time_out_can_be_repeated(store_url: str) -> None:
    with two_hosts(store_url, operation_timeout=1) as cluster:
        pending = [cluster.begin(rank, "timed", "barrier") for rank in (0, 2)]
        for call in pending:
            _, code, why = call.result()
            assert code == -2004
            assert "host 1 has ranks [1, 3, 4]" in why
        assert cluster.call_all("barriers", 3) == [[]] * COUNT


@pytest.mark.parametrize("victim", [1, 2, 4])
def test_death_is_told_on_both_hosts(store_url: str, victim: int) -> None:
    with two_hosts(store_url) as cluster:
        survivors = [rank for rank in range(COUNT) if rank != victim]
        cluster.call_all("hold_at", "collective.wait", indices=survivors)
        cluster.call_all("begin_thread", "waiting", "barrier", indices=survivors)
        assert cluster.call_all("wait_until_held", "collective.wait", indices=survivors) == [True] * len(survivors)
        cluster.call_all("release_at", "collective.wait", indices=survivors)
        killed_at = time.monotonic()
        cluster.kill(victim)
        for returned_at, code, why in cluster.call_all("end_thread", "waiting", indices=survivors):
            assert code == -2014
            assert f"rank {victim} " in why
            assert returned_at - killed_at < campaigns.notice_s()
