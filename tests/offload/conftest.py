"""Offload memory for the tests: of this process, and of worker processes beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
import torch

import memfabric_hybrid as mf
from support import offload_worker
from support.offload_worker import MIB
from support.workers import Cluster

torch.set_num_threads(1)  # otherwise it starts some in the middle of a test, which keep running


@pytest.fixture(autouse=True)
def clean_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test starts without a last error and a store in the environment, and ends with everything off."""
    for name in ("MF_CONFIG_STORE_URL", "ASCEND_MF_STORE_URL"):
        monkeypatch.delenv(name, raising=False)
    mf.get_and_clear_last_err_msg()
    yield
    mf.uninitialize()
    mf.get_and_clear_last_err_msg()


@pytest.fixture
def local() -> None:
    """This process has LOCAL memory: 8 MiB of 1 GiB."""
    offload_worker.take_part(alloc_size=8 * MIB)


@pytest.fixture
def workers() -> Callable[..., AbstractContextManager[Cluster]]:
    """`with workers(3) as cluster:` three processes that take steps of `offload_worker`."""
    return lambda count, **environment: Cluster(count, "support.offload_worker", environment=environment)
