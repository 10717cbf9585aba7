"""What several ranks can do wrong together: each gets a code, and a sentence that names who and what."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from support.workers import Cluster

Ranks = Callable[..., AbstractContextManager[Cluster]]
MIB = 1 << 20


@pytest.mark.parametrize(
    ("rank_sizes", "sizes"), [((2, 2), (2 * MIB, 4 * MIB)), ((2, 3), (2 * MIB, 2 * MIB))], ids=["bytes", "ranks"]
)
def test_ranks_that_want_different_objects(
    workers: Callable[[int], Cluster], store_url: str, rank_sizes: tuple[int, int], sizes: tuple[int, int]
) -> None:
    with workers(2) as cluster:
        for rank in range(2):
            assert cluster.call(rank, "enter", store_url, 3, create_timeout=2)[0] == 0
        calls = [cluster.begin(rank, "try_to_create", rank_sizes[rank], 0, sizes[rank]) for rank in range(2)]
        reasons = [call.result()[1] for call in calls]
        assert all(reason.startswith("create shm failed: ") for reason in reasons), reasons
        refused = [reason for reason in reasons if "asked for shm object 0 with" in reason and "but rank" in reason]
        assert len(refused) == 1, reasons  # who came second; the first one waits in vain, and says for whom
        other = next(reason for reason in reasons if reason not in refused)
        assert "did not come within 2 s: " in other
        cluster.call_all("create", 2)  # and afterwards it works
        assert cluster.call_all("barriers", 2) == [[], []]


def test_rank_that_is_in_use(ranks: Ranks, store_url: str) -> None:
    with ranks(1) as cluster, Cluster(1, "support.heap_worker") as second:
        code, why = second.call(0, "enter", store_url, 1)
        assert code == -2006
        assert "rank 0" in why
        assert cluster.call_all("barriers", 1) == [[]]


def test_other_world_size(ranks: Ranks, workers: Callable[[int], Cluster], store_url: str) -> None:
    with workers(2) as cluster:
        assert cluster.call(0, "enter", store_url, 2) == (0, "")
        code, why = cluster.call(1, "enter", store_url, 3)
        assert code == -2000
        assert "world size of 2, this one says 3" in why


def test_subgroup_with_unequal_lengths(ranks: Ranks) -> None:
    with ranks(3) as cluster:
        calls = [
            cluster.begin(rank, "timed", "subgroup_all_gather", "k", 2, place, b"x" * (1 + place))
            for place, rank in enumerate((2, 0))
        ]
        for call in calls:
            _, what, why = call.result()
            assert str(what).startswith("subgroup_all_gather failed: ")
            assert "rank_id 0 (rank 2 of the object) brought 1 bytes to an all-gather" in why
            assert "rank_id 1 (rank 0 of the object) brought 2 bytes to an all-gather" in why
        cluster.call_all("barriers", 1)


def test_subgroup_that_waits_for_the_wrong_one(ranks: Ranks) -> None:
    """Once a subgroup has met, a time-out names the rank of the object too."""
    with ranks(3, operation_timeout=1) as cluster:
        calls = [cluster.begin(rank, "call", "subgroup_barrier", "k", 2, place) for place, rank in ((0, 2), (1, 0))]
        assert [call.result() for call in calls] == [(0, ""), (0, "")]
        code, why = cluster.call(2, "call", "subgroup_barrier", "k", 2, 0)
        assert code == -2004
        assert "rank_id 1 (rank 0 of the object)" in why
        code, why = cluster.call(2, "call", "subgroup_barrier", "k", 2, 1)
        assert code == -2000
        assert "this rank is rank_id 0 of 2, this call says 1 of 2" in why


def test_exit_handler_that_fails(ranks: Ranks) -> None:
    """Its exception is logged; the other ranks' handlers run, and so does this rank's next one."""
    with ranks(2) as cluster:
        assert cluster.call(0, "fail_at_exit") == 0
        assert cluster.call(1, "record_exits") == 0
        assert cluster.call(1, "call", "global_exit", 3) == (0, "")
        assert cluster.call(1, "wait_for_exits", 1) == [3]
        assert cluster.call(0, "wait_for_exits", 1) == [3]
        assert cluster.call(0, "record_exits") == 0  # replaces the one that fails
        assert cluster.call(0, "call", "global_exit", 4) == (0, "")
        assert cluster.call_all("wait_for_exits", 2) == [[3, 4], [3, 4]]
        assert "this handler fails" in cluster.output(0)
