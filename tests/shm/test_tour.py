"""Every call of the interface with few and many ranks, and with several objects and pools in the same processes."""

from __future__ import annotations

import pytest

from support.workers import Cluster


@pytest.mark.parametrize("count", [1, 2, 3, 8, 32])
def test_every_call(store_url: str, count: int) -> None:
    with Cluster(count, "support.heap_tour") as cluster:
        cluster.call_all("take_part", store_url, count, timeout_s=60)
        assert cluster.call_all("tour", timeout_s=60) == [[]] * count


def test_several_objects_at_once(store_url: str) -> None:
    """Objects 0, 5 and 63 live side by side; each is toured, and the others go on when it is destroyed."""
    with Cluster(3, "support.heap_tour") as cluster:
        cluster.call_all("take_part", store_url, 3)
        for number in (5, 63):
            cluster.call_all("create", 3, number)
        for number in (5, 0, 63):
            assert cluster.call_all("tour", number, timeout_s=60) == [[]] * 3


@pytest.mark.also_on_etcd
@pytest.mark.also_over_tls
def test_object_of_some_ranks_of_the_world(store_url: str) -> None:
    with Cluster(3, "support.heap_tour") as cluster:
        cluster.call_all("take_part", store_url, 3)
        cluster.call_all("create", 2, 7, indices=[0, 1])
        assert cluster.call_all("tour", 7, indices=[0, 1], timeout_s=60) == [[], []]
        assert cluster.call_all("tour", timeout_s=60) == [[]] * 3


def test_objects_beside_pools(store_url: str) -> None:
    """Both kinds have ranks, ids and addresses of their own in one store; the death of neither touches the other."""
    with Cluster(2, "support.heap_tour") as cluster:
        cluster.call_all("take_part", store_url, 2)
        assert cluster.call_all("pool_beside", store_url, 2) == ["", ""]
        assert cluster.call_all("tour", timeout_s=60) == [[], []]
        assert cluster.call_all("pool_still_works") == ["", ""]
        cluster.call_all("end_pool")
