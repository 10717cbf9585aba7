"""Members of a cluster for the tests of Big Memory: this process, and worker processes beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm
from support import pool_worker
from support.pool_worker import MIB
from support.workers import Cluster


@pytest.fixture(autouse=True)
def clean_process() -> Iterator[None]:
    """Every test starts without a last error and ends with everything off."""
    mf.get_and_clear_last_err_msg()
    yield
    pool_worker.uninitialize()
    mf.get_and_clear_last_err_msg()


@pytest.fixture
def pool(store_url: str) -> bm.BigMemory:
    """This process alone: rank 0 of 4 with 4 MiB of 8 DRAM and 2 MiB of 4 HBM, joined."""
    pool_worker.take_part(store_url, 4, dram=4 * MIB, max_dram_size=8 * MIB, hbm=2 * MIB, max_hbm_size=4 * MIB)
    return pool_worker.pools[0]


@pytest.fixture
def workers() -> Callable[[int], AbstractContextManager[Cluster]]:
    """`with workers(3) as cluster:` three processes that take steps of `pool_worker`."""
    return lambda count, **environment: Cluster(count, "support.pool_worker", environment=environment)
