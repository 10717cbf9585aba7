"""Processes that may open few more or nothing: the limit of descriptors, set from inside or outside."""

from __future__ import annotations

import itertools
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process can open nothing at all."""
    with _limit(os.getpid(), 0):
        yield


@contextmanager
def no_more_descriptors(pid: int, but: int = 0) -> Iterator[None]:
    """That process can open so many, and nothing more than it closes beyond that."""
    listed = os.listdir(f"/proc/{pid}/fd")
    taken = {int(number) for number in listed if os.path.lexists(f"/proc/{pid}/fd/{number}")}  # not the listing's own
    free = (number for number in itertools.count() if number not in taken)
    with _limit(pid, next(itertools.islice(free, but, None))):
        yield


@contextmanager
def _limit(pid: int, soft: int) -> Iterator[None]:
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
