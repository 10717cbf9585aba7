"""A rank without descriptors cannot create an object, says so, and can when it has some again."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import shm


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
