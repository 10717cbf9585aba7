"""Ranks that are killed inside `create`, at any moment of it: the others' `create` fails at once and names them."""

from __future__ import annotations

import random
import time

import pytest

from memfabric_hybrid.address_space import join_fact
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.membership.identity import host_identity
from memfabric_hybrid.store import Store, connect
from support import campaigns
from support.workers import Cluster

COUNT = 4
WHILE_S = 30.0


def wait_until_inside(store: Store, ranks: list[int]) -> None:
    """These ranks are inside `create` of object 0: the store shows their part in it."""
    deadline = time.monotonic() + WHILE_S
    wanted = {join_fact.key("shm/0", host_identity(), rank) for rank in ranks}
    while not wanted <= store.prefix("shm/0/", deadline=Deadline(WHILE_S)).entries.keys():
        assert time.monotonic() < deadline, f"ranks {ranks} did not begin"


def replace(cluster: Cluster, store_url: str, victim: int) -> None:
    """A successor takes the victim's rank; the store may need a moment to see that it is free."""
    cluster.start(victim)
    deadline = time.monotonic() + WHILE_S
    while (entered := cluster.call(victim, "enter", store_url, COUNT))[0] and time.monotonic() < deadline:
        pass
    assert entered[0] == 0, entered[1]


@pytest.mark.soak
def test_killed_while_others_wait_in_create(store_url: str, rng: random.Random) -> None:
    with Cluster(COUNT, "support.heap_worker") as cluster:
        for rank in range(COUNT):
            assert cluster.call(rank, "enter", store_url, COUNT)[0] == 0
        with connect(store_url) as store:
            for _ in range(campaigns.length("MF_KILL_ROUNDS", 3)):
                victim = rng.randrange(1, COUNT)  # rank 0 runs the store
                missing = rng.choice([rank for rank in range(COUNT) if rank != victim])
                survivors = [rank for rank in range(COUNT) if rank not in (victim, missing)]
                pending = {rank: cluster.begin(rank, "try_to_create", COUNT) for rank in survivors}
                wait_until_inside(store, survivors)
                cluster.begin(victim, "try_to_create", COUNT)
                time.sleep(rng.choice([0.0, rng.random() * 0.005, rng.random() * 0.05]))
                killed_at = time.monotonic()
                cluster.kill(victim)
                for rank, call in pending.items():
                    returned_at, why = call.result(WHILE_S)
                    assert why.startswith("create shm failed: "), why
                    assert f"rank {victim} is gone" in why
                    assert returned_at - killed_at < campaigns.notice_s(), f"rank {rank}: {why}"
                replace(cluster, store_url, victim)
                cluster.call_all("create", COUNT)
                assert cluster.call_all("barriers", 2) == [[]] * COUNT
                cluster.call_all("destroy")


@pytest.mark.soak
def test_killed_while_create_completes(store_url: str, rng: random.Random) -> None:
    """Whether a survivor got the object or not, it is told: by `create`, or by the object's first barrier."""
    with Cluster(COUNT, "support.heap_worker") as cluster:
        for rank in range(COUNT):
            assert cluster.call(rank, "enter", store_url, COUNT)[0] == 0
        with connect(store_url) as store:
            for _ in range(campaigns.length("MF_KILL_ROUNDS", 3)):
                victim = rng.randrange(1, COUNT)
                survivors = [rank for rank in range(COUNT) if rank != victim]
                pending = {rank: cluster.begin(rank, "try_to_create", COUNT) for rank in survivors}
                wait_until_inside(store, survivors)
                cluster.begin(victim, "try_to_create", COUNT)
                time.sleep(rng.random() * 0.04)
                killed_at = time.monotonic()
                cluster.kill(victim)
                for rank, call in pending.items():
                    returned_at, why = call.result(WHILE_S)
                    if not why:
                        returned_at, code, why = cluster.call(rank, "timed", "barrier")
                        assert code == -2014
                        assert cluster.call(rank, "destroy") == 0
                    assert f"rank {victim} " in why
                    assert returned_at - killed_at < campaigns.notice_s(), f"rank {rank}: {why}"
                replace(cluster, store_url, victim)
                cluster.call_all("create", COUNT)
                assert cluster.call_all("barriers", 2) == [[]] * COUNT
                cluster.call_all("destroy")
