"""A rank without descriptors cannot create an object, says so, and can when it has some again."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import shm
from support.descriptor_limits import no_descriptors, no_more_descriptors
from support.workers import Cluster


def test_create_without_descriptors(store_url: str, workers: Callable[[int], Cluster]) -> None:
    """Whichever of those that it needs is missing. The store is another process's, which has enough."""
    with workers(1) as cluster:
        cluster.call(0, "serve_store", store_url)
        config = shm.ShmConfig()
        config.start_store = False
        assert shm.initialize(store_url, 1, 0, 0, config) == 0, mf.get_last_err_msg()
        heap = shm.create(0, 1, 0, 2 << 20)
        refusals = 0
        while (reason := reason_against_create(refusals)) is not None:
            assert reason == f"create shm failed: {mf.get_and_clear_last_err_msg()}"
            assert "open files" in reason
            assert heap.barrier() == 0, mf.get_last_err_msg()
            refusals += 1
        assert refusals >= 2, "an object keeps two for as long as it lives"
        with shm.create(1, 1, 0, 2 << 20) as other:
            assert other.barrier() == 0, mf.get_last_err_msg()
        shm.uninitialize()


def reason_against_create(descriptors: int) -> str | None:
    with no_more_descriptors(os.getpid(), but=descriptors):
        try:
            shm.create(1, 1, 0, 2 << 20).destroy()
        except RuntimeError as failure:
            return str(failure)
    return None


@pytest.mark.own_store
def test_destroy_without_descriptors_leaves_nothing(heap: shm.ShareMemory) -> None:
    """Not even for a connection to the store: it hears of the end when it can be told."""
    other = shm.create(1, 1, 0, 2 << 20)
    store = other._parts.runtime.node.member.store
    store._pool.drop_idle()  # type: ignore[attr-defined]
    with no_descriptors():
        code = other.destroy()
    assert code == 0, mf.get_last_err_msg()
    assert heap.barrier() == 0, mf.get_last_err_msg()
    with shm.create(1, 1, 0, 2 << 20) as again:
        assert again.barrier() == 0, mf.get_last_err_msg()
