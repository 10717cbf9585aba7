"""Ranks that are killed while others wait for them: the survivors are told at once, with the number of the dead.

Lengths come from MF_KILL_ROUNDS and the bound from MF_KILL_NOTICE_S: a few rounds and seconds in the ordinary suite,
hundreds of rounds and half a second under `scripts/soak`.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from support import campaigns
from support.workers import Cluster

Ranks = Callable[..., AbstractContextManager[Cluster]]


def restart(cluster: Cluster, store_url: str, victim: int, count: int) -> None:
    """The survivors destroy the broken object, a successor takes the victim's rank, all create it again."""
    survivors = [rank for rank in range(count) if rank != victim]
    cluster.call_all("destroy", indices=survivors)
    cluster.start(victim)
    deadline = time.monotonic() + 10
    while True:  # the store may need a moment to see that the rank is free
        code, why = cluster.call(victim, "enter", store_url, count)
        if code == 0 or time.monotonic() > deadline:
            break
    assert code == 0, why
    cluster.call_all("create", count)


@pytest.mark.soak
@pytest.mark.parametrize("call", [("barrier",), ("all_gather", b"12345678"), ("subgroup_barrier",)])
def test_killed_inside_a_collective(store_url: str, rng: random.Random, call: tuple[object, ...]) -> None:
    count, notice_s = 4, campaigns.notice_s()
    with Cluster(count, "support.heap_worker") as cluster:
        cluster.call_all("take_part", store_url, count)
        for _ in range(campaigns.length("MF_KILL_ROUNDS", 3)):
            victim = rng.randrange(1, count)  # rank 0 runs the store
            survivors = [rank for rank in range(count) if rank != victim]
            method, *arguments = call
            if method == "subgroup_barrier":
                assert cluster.call_all("call", "barrier") == [(0, "")] * count
                for rank in range(count):
                    cluster.begin(rank, "call", "subgroup_barrier", "all", count, rank)
                placed = {rank: ["all", count, rank] for rank in range(count)}
            else:
                placed = {rank: arguments for rank in range(count)}
            some = rng.sample(survivors, rng.randrange(1, len(survivors) + 1))
            waiting = {rank: cluster.begin(rank, "timed", method, *placed[rank]) for rank in some}
            if rng.random() < 0.5 and len(some) < len(survivors):
                cluster.begin(victim, "timed", method, *placed[victim])  # dies in it, as the others may
            time.sleep(rng.random() * 0.02)
            killed_at = time.monotonic()
            cluster.kill(victim)
            for rank, pending in waiting.items():
                returned_at, result, why = pending.result(5)
                assert returned_at - killed_at < notice_s, f"rank {rank} was told after {returned_at - killed_at:.3f} s"
                assert result == -2014 or str(result).endswith("successor"), (result, why)
                assert f"rank {victim} died" in why
            for rank in survivors:  # also those who come later
                began = time.monotonic()
                returned_at, result, why = cluster.call(rank, "timed", method, *placed[rank])
                assert returned_at - began < notice_s
                assert f"rank {victim} " in why
            restart(cluster, store_url, victim, count)
        assert cluster.call_all("barriers", 5) == [[]] * count


def test_stopped_rank_is_missing_then_gone(ranks: Ranks) -> None:
    with ranks(2, operation_timeout=1) as cluster:
        cluster.kill(1, signal.SIGSTOP)
        code, why = cluster.call(0, "call", "barrier")
        assert code == -2004
        assert "rank 1" in why
        deadline = time.monotonic() + 10
        while code == -2004 and time.monotonic() < deadline:
            code, why = cluster.call(0, "call", "barrier")
        assert code == -2014
        assert "rank 1 " in why
        cluster.kill(1, signal.SIGKILL)


def test_stopped_rank_that_goes_on_makes_the_object_whole(ranks: Ranks) -> None:
    """The store took it for dead, and so did the others. Its memory and its place in every group are the same."""
    with ranks(3, operation_timeout=20) as cluster:
        cluster.call(1, "store_bytes", 1, 0, b"before")
        cluster.kill(1, signal.SIGSTOP)
        for rank in (0, 2):
            while (outcome := cluster.call(rank, "call", "barrier", timeout_s=60))[0] != -2014:
                assert outcome[0] == -2004, outcome
            assert "rank 1 " in outcome[1]
            assert cluster.call(rank, "call", "reach", 1)[0] == 0
        cluster.kill(1, signal.SIGCONT)
        deadline = time.monotonic() + 20
        for rank in (0, 2):
            while cluster.call(rank, "call", "reach", 1)[0] == 0:
                assert time.monotonic() < deadline, f"rank {rank} does not see rank 1 again"
        assert cluster.call_all("call", "barrier") == [(0, "")] * 3
        assert cluster.call_all("call", "all_gather", b"x") == [(b"xxx", "")] * 3
        assert cluster.call(0, "load_bytes", 1, 0, 6) == b"before"
        cluster.kill(1)  # and a death is a death
        assert cluster.call(0, "call", "barrier")[0] == -2014


def test_destroy_is_told_to_those_who_wait(ranks: Ranks) -> None:
    with ranks(3) as cluster:
        waiting = cluster.begin(0, "timed", "barrier")
        assert cluster.call(2, "destroy") == 0
        _, code, why = waiting.result()
        assert code == -2014
        assert why.endswith(
            "rank 2 has left: it destroyed the object; destroy the object and create it again without it, or with its "
            "successor"
        )
