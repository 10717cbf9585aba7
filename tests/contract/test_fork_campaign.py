"""Forks under load: the child has no part in what its parent has and may begin anew, and the parent notices nothing."""

from __future__ import annotations

import pytest

from support.campaigns import generator, length
from support.workers import Cluster

RANKS = 2
GOES_ON_S = 10.0  # far more than any pause that the machine's other work causes, less than the time-outs of the calls


@pytest.mark.soak
def test_forks_while_everything_runs(store_url: str) -> None:
    choices = generator("forks")
    with Cluster(1, "store.server_worker") as store, Cluster(RANKS, "support.forking_worker") as cluster:
        store.call(0, "serve", store_url)
        entering = [cluster.begin(rank, "enter", store_url, rank, RANKS) for rank in range(RANKS)]
        places = [each.result() for each in entering]
        for rank in range(RANKS):
            cluster.call(rank, "work", *places[1 - rank])
        for _ in range(length("MF_FORK_ROUNDS", 30)):
            rank = choices.randrange(RANKS)
            before, _ = cluster.call(rank, "progress")
            cluster.call(rank, "fork", store_url, anew=choices.random() < 0.3)
            wait_for_progress(cluster, rank, before)
        everything = [cluster.call(rank, "progress") for rank in range(RANKS)]
        assert not any(wrong for _, wrong in everything), everything
        cluster.call_all("stop", True)


def wait_for_progress(cluster: Cluster, rank: int, before: dict[str, int]) -> None:
    """Every kind of work has gone on since then, in time."""
    went_on, (done, wrong) = cluster.call(rank, "goes_on", before, GOES_ON_S)
    assert not wrong, cluster.report(rank, f"was disturbed: {wrong}")
    if not went_on:
        pytest.fail(cluster.report(rank, f"does not go on: {before} before the fork, {done} {GOES_ON_S} s later"))
