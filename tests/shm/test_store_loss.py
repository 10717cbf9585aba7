"""The store dies and comes back while an object is in use: collectives never notice, and nobody loses what it holds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.workers import Cluster

pytestmark = pytest.mark.own_store

RANKS = 3
STORE = 3
HAND_OVER = "store.before_hand_over"
ACCEPTED = "store.hand_over.accepted"


@pytest.fixture
def cluster(store_url: str) -> Iterator[Cluster]:
    """Workers 0 to 2 are the ranks of object 0, worker 3 runs the store."""
    environment = {"MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S": "30"}
    with Cluster(RANKS + 1, "support.heap_worker", environment=environment) as started:
        started.call(STORE, "serve_store", store_url)
        started.call_all("take_part", store_url, RANKS, start_store=False, indices=range(RANKS))
        yield started
        started.call_all("uninitialize", indices=range(RANKS))


def restart_store(cluster: Cluster, store_url: str) -> None:
    cluster.kill(STORE)
    cluster.start(STORE)
    cluster.call(STORE, "serve_store", store_url)


def test_values_are_not_given_twice(cluster: Cluster, store_url: str) -> None:
    """Rank 0 holds a value and is the last one that the restarted store hears from."""
    assert cluster.call(0, "call", "atomic_alloc_value", 8) == (0, "")
    cluster.call(0, "hold_at", HAND_OVER)
    restart_store(cluster, store_url)
    assert cluster.call(0, "wait_until_held", HAND_OVER)
    cluster.call(1, "give_up_after", 1.0)
    waited_for = ""
    while "ranks [0] have not registered there again" not in waited_for:  # at first it may not find the store itself
        code, waited_for = cluster.call(1, "call", "atomic_alloc_value", 8)
        assert code == -2004, f"got value {code}: {waited_for}"
    cluster.call(1, "give_up_after", 20.0)
    asking = cluster.begin(1, "call", "atomic_alloc_value", 8)
    assert cluster.call(2, "call", "subgroup_barrier", "alone", 1, 0) == (0, "")  # who needs no store does not wait
    cluster.call(0, "release_at", HAND_OVER)
    assert asking.result() == (1, "")
    assert cluster.call_all("call", "barrier", indices=range(RANKS)) == [(0, "")] * RANKS
    assert cluster.call(0, "call", "atomic_release_value", 0) == (0, "")
    assert cluster.call(2, "call", "atomic_alloc_value", 8) == (0, "")


def test_value_that_somebody_else_has_ends_no_object(cluster: Cluster, store_url: str) -> None:
    """Another rank wrote the key into the restarted store: the value is lost, and nothing else."""
    assert cluster.call(0, "call", "atomic_alloc_value", 8) == (0, "")
    cluster.call(0, "hold_at", HAND_OVER)
    restart_store(cluster, store_url)
    assert cluster.call(0, "wait_until_held", HAND_OVER)
    cluster.call(1, "own_key", "shm-0-value/0")
    cluster.call(0, "release_at", HAND_OVER)
    assert cluster.call(1, "call", "atomic_alloc_value", 8) == (1, "")  # waits until rank 0 is registered again
    assert cluster.call_all("call", "barrier", indices=range(RANKS)) == [(0, "")] * RANKS
    code, why = cluster.call(0, "call", "atomic_release_value", 0)
    assert code == -2007, why
    assert "value 0 belongs to another rank now" in cluster.output(0)


def test_value_that_is_released_before_its_loss_is_known(cluster: Cluster, store_url: str) -> None:
    """The store has refused it, and the holder has not read that yet."""
    assert cluster.call(0, "call", "atomic_alloc_value", 8) == (0, "")
    for point in (HAND_OVER, ACCEPTED):
        cluster.call(0, "hold_at", point)
    restart_store(cluster, store_url)
    assert cluster.call(0, "wait_until_held", HAND_OVER)
    cluster.call(1, "own_key", "shm-0-value/0")
    cluster.call(0, "release_at", HAND_OVER)
    assert cluster.call(0, "wait_until_held", ACCEPTED)
    cluster.call(0, "release_soon", ACCEPTED)
    code, why = cluster.call(0, "call", "atomic_release_value", 0)
    assert code == -2007, why
    assert cluster.call(1, "call", "atomic_alloc_value", 8) == (1, "")
