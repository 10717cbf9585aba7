"""A rank without descriptors cannot create an object, says so, and can when it has some again."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import shm
from memfabric_hybrid.store import StoreClient


@contextmanager
def no_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_create_without_descriptors(heap: shm.ShareMemory) -> None:
    with no_descriptors(), pytest.raises(RuntimeError, match=r"create shm failed: .*open files"):
        shm.create(1, 1, 0, 2 << 20)
    assert "open files" in mf.get_last_err_msg()
    assert heap.barrier() == 0, mf.get_last_err_msg()
    with shm.create(1, 1, 0, 2 << 20) as other:
        assert other.barrier() == 0, mf.get_last_err_msg()


def test_destroy_without_descriptors_leaves_nothing(heap: shm.ShareMemory) -> None:
    """Not even for a connection to the store: it hears of the end when it can be told."""
    other = shm.create(1, 1, 0, 2 << 20)
    store = other._parts.runtime.node.member.store
    assert isinstance(store, StoreClient)
    store._pool.drop_idle()
    with no_descriptors():
        code = other.destroy()
    assert code == 0, mf.get_last_err_msg()
    assert heap.barrier() == 0, mf.get_last_err_msg()
    with shm.create(1, 1, 0, 2 << 20) as again:
        assert again.barrier() == 0, mf.get_last_err_msg()
