"""Engines for the tests of Transfer: one in this process, others in worker processes beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
import uvloop

import memfabric_hybrid as mf
from support.workers import Cluster

uvloop.new_event_loop().close()  # the first loop of a process opens a pipe that stays: now, not in the middle of a test


@pytest.fixture(autouse=True)
def clean_process() -> Iterator[None]:
    """Every test starts without a last error and ends with everything off."""
    mf.get_and_clear_last_err_msg()
    yield
    mf.uninitialize()
    mf.get_and_clear_last_err_msg()


@pytest.fixture
def engine() -> Iterator[mf.TransferEngine]:
    """An initialised engine of this process."""
    with mf.TransferEngine() as engine:
        assert engine.initialize(None, "127.0.0.1:0", "Prefill", 0) == 0, mf.get_last_err_msg()
        yield engine


@pytest.fixture
def workers() -> Callable[..., AbstractContextManager[Cluster]]:
    """`with workers(3) as cluster:` three processes that take steps of `transfer_worker`."""
    return lambda count, **environment: Cluster(count, "support.transfer_worker", environment=environment)
