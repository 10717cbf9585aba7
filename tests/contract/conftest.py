"""For tests of what programs may do to our calls from signal handlers, and of processes that must end up clean."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import shm
from support.workers import Cluster


@pytest.fixture
def everything_off() -> Iterator[None]:
    """No error of an earlier test is left, and nothing runs afterwards."""
    mf.get_and_clear_last_err_msg()
    yield
    mf.uninitialize()
    mf.get_and_clear_last_err_msg()


@pytest.fixture
def heap_and_other(store_url: str, everything_off: None) -> Iterator[tuple[shm.ShareMemory, Cluster]]:
    """This process is rank 0; worker 1 is rank 1 and worker 2 runs the store."""
    with Cluster(3, "support.heap_worker") as cluster:
        cluster.call(2, "serve_store", store_url)
        config = shm.ShmConfig()
        config.start_store = False
        config.create_timeout = config.operation_timeout = 100
        entering = cluster.begin(1, "take_part", store_url, 2, start_store=False, operation_timeout=100)
        assert shm.initialize(store_url, 2, 0, 0, config) == 0, mf.get_last_err_msg()
        heap = shm.create(0, 2, 0, 2 << 20)
        entering.result()
        yield heap, cluster
        shm.uninitialize()
        cluster.call(1, "uninitialize")
