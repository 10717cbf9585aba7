"""Ranks of symmetric heaps for the tests of Share Memory: worker processes, and this process beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import uvloop

import memfabric_hybrid as mf
from memfabric_hybrid import shm
from support.workers import Cluster

uvloop.new_event_loop().close()  # the first loop of a process opens a pipe that stays: now, not in the middle of a test


@pytest.fixture(autouse=True)
def clean_process() -> Iterator[None]:
    """Every test starts without a last error and ends with everything off."""
    mf.get_and_clear_last_err_msg()
    yield
    shm.uninitialize()
    mf.uninitialize()
    mf.get_and_clear_last_err_msg()


@pytest.fixture
def heap(store_url: str) -> shm.ShareMemory:
    """This process alone: the one rank of object 0 with 4 MiB."""
    config = shm.ShmConfig()
    config.init_timeout = config.create_timeout = config.operation_timeout = 5
    assert shm.initialize(store_url, 1, 0, 0, config) == 0, mf.get_last_err_msg()
    return shm.create(0, 1, 0, 4 << 20)


@pytest.fixture
def ranks(store_url: str) -> Callable[..., AbstractContextManager[Cluster]]:
    """`with ranks(3) as cluster:` three processes that share object 0."""

    @contextmanager
    def started(count: int, **settings: object) -> Iterator[Cluster]:
        with Cluster(count, "support.heap_worker") as cluster:
            addresses = cluster.call_all("take_part", store_url, count, **settings, timeout_s=60)
            assert len(set(addresses)) == 1, f"not the same address everywhere: {addresses}"
            yield cluster

    return started


@pytest.fixture
def workers() -> Callable[[int], Cluster]:
    """`with workers(3) as cluster:` three processes that have done nothing yet."""
    return lambda count: Cluster(count, "support.heap_worker")
