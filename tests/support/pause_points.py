"""Holding threads at the pause points of the code under test, so that an interleaving is forced, not hoped for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from memfabric_hybrid import _native

REACHED_S = 20.0


class Point:
    """One held point."""

    def __init__(self, name: str) -> None:
        self.name = name

    def wait_until_reached(self) -> None:
        """Returns when a thread stands there."""
        assert _native._wait_until_held(self.name, REACHED_S), f"nobody reached {self.name} within {REACHED_S:g} s"

    def let_pass(self) -> None:
        """Who stands there goes on; whoever comes next, the same thread again too, is held."""
        _native._let_pass_at(self.name)

    def release(self) -> None:
        _native._release_at(self.name)


# ---- in workers: what the test calls there ---------------------------------------------------------------------------


def hold_at(point: str) -> None:
    """Threads of this process wait at that pause point from now on."""
    _native._hold_at(point)


def wait_until_held(point: str) -> bool:
    return _native._wait_until_held(point, REACHED_S)


def let_pass_at(point: str) -> None:
    _native._let_pass_at(point)


def release_at(point: str) -> None:
    _native._release_at(point)


# ---- in the test's own process ---------------------------------------------------------------------------------------


@contextmanager
def held(name: str) -> Iterator[Point]:
    """While the block runs, whoever reaches the point waits there (until it is released)."""
    _native._hold_at(name)
    try:
        yield Point(name)
    finally:
        _native._release_at(name)
