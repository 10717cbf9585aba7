"""Barrier and all-gather among real processes: nobody is early, nobody gets other data, and misuse is told to all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from support.workers import Cluster

Ranks = Callable[..., AbstractContextManager[Cluster]]


@pytest.mark.parametrize("count", [1, 2, 3, 8, 32])
def test_rounds_keep_step(ranks: Ranks, count: int) -> None:
    rounds = max(20, 400 // count)
    with ranks(count) as cluster:
        assert cluster.call_all("counted_rounds", rounds, timeout_s=60) == [0] * count
        assert cluster.call_all("gathered_rounds", rounds, [1, 8, 1000, 65536], timeout_s=60) == [0] * count
        assert cluster.call_all("mixed_rounds", rounds // 2, timeout_s=60) == [0] * count


def test_time_out_names_the_missing_and_the_round_can_be_repeated(ranks: Ranks) -> None:
    with ranks(3, operation_timeout=1) as cluster:
        code, why = cluster.call(1, "call", "barrier")
        assert code == -2004
        assert "2 of 3 ranks did not arrive" in why
        assert "rank 0, rank 2" in why
        assert cluster.call_all("barriers", 10) == [[], [], []]


def test_time_out_of_an_all_gather_is_no_data(ranks: Ranks) -> None:
    with ranks(2, operation_timeout=1) as cluster:
        _, what, why = cluster.call(0, "timed", "all_gather", b"x")
        assert what.startswith("all_gather failed: ")
        assert "rank 1" in why


def test_unequal_lengths_are_refused_everywhere(ranks: Ranks) -> None:
    with ranks(3) as cluster:
        calls = [cluster.begin(rank, "timed", "all_gather", b"x" * (1 + rank // 2)) for rank in range(3)]
        for call in calls:
            _, what, why = call.result()
            assert "rank 0 brought 1 bytes" in why
            assert "rank 2 brought 2 bytes" in why
            assert what.startswith("all_gather failed: ")
        assert cluster.call_all("barriers", 3) == [[], [], []]


def test_barrier_and_all_gather_do_not_mix(ranks: Ranks) -> None:
    with ranks(2) as cluster:
        barrier, gather = cluster.begin(0, "timed", "barrier"), cluster.begin(1, "timed", "all_gather", b"x")
        assert barrier.result()[1] == -2000
        assert "rank 0 called barrier, rank 1 brought 1 bytes" in gather.result()[2]


def test_objects_do_not_disturb_each_other(ranks: Ranks) -> None:
    with ranks(2) as cluster:
        cluster.call_all("create", 2, 63, size=1)
        addresses = [cluster.call_all("get", "gva", number) for number in (0, 63)]
        assert addresses[0] != addresses[1]
        waiting = cluster.begin(0, "timed", "barrier", object_id=63)
        cluster.call(1, "begin_thread", "other", "barrier")
        assert cluster.call(1, "timed", "barrier", object_id=63)[1] == 0
        assert waiting.result()[1] == 0
        assert cluster.call(0, "timed", "barrier")[1] == 0
        assert cluster.call(1, "end_thread", "other")[1] == 0
        assert cluster.call_all("destroy", 63) == [0, 0]
        assert cluster.call_all("barriers", 2) == [[], []]


def test_threads_of_one_rank_take_turns(ranks: Ranks) -> None:
    with ranks(2) as cluster:
        cluster.call(0, "begin_thread", "a", "barrier")
        cluster.call(0, "begin_thread", "b", "barrier")
        assert cluster.call(1, "barriers", 2) == []
        assert cluster.call(0, "end_thread", "a")[1] == 0
        assert cluster.call(0, "end_thread", "b")[1] == 0


def test_subgroup_misuse(ranks: Ranks) -> None:
    with ranks(3, operation_timeout=1) as cluster:
        for arguments, code, sentence in (
            (("", 2, 0), -2000, "key '' has 0 bytes"),
            (("k" * 64, 2, 0), -2000, "has 64 bytes, expected 1..63"),
            (("k", 0, 0), -2000, "rank_size is 0, expected 1..3"),
            (("k", 4, 0), -2000, "rank_size is 4, expected 1..3"),
            (("k", 2, 2), -2000, "rank_id is 2, expected 0..1"),
        ):
            got, why = cluster.call(0, "call", "subgroup_barrier", *arguments)
            assert (got, sentence in why) == (code, True), why
        code, why = cluster.call(0, "call", "subgroup_barrier", "k", 2, 0)
        assert code == -2004
        assert "1 of 2 ranks did not arrive" in why
        assert "rank_id 1" in why
        code, why = cluster.call(1, "call", "subgroup_barrier", "k", 2, 0)
        assert code == -2006
        assert "taken by rank 0" in why
        code, why = cluster.call(1, "call", "subgroup_barrier", "k", 3, 1)
        assert code == -2000
        assert "has 2 ranks, this call says 3" in why


def test_number_of_subgroups_is_limited(ranks: Ranks) -> None:
    with ranks(2) as cluster:
        for number in range(30):
            code, why = cluster.call(0, "call", "subgroup_barrier", f"alone {number}", 1, 0)
            if code != 0:
                break
        assert code == -2002
        assert number >= 16
        assert "room for" in why
        assert cluster.call(0, "call", "subgroup_barrier", "alone 0", 1, 0) == (0, "")
