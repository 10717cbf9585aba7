"""The memory that a scene provides, as everything above sees it: one contiguous part of a space, which can grow."""

from __future__ import annotations

from typing import Protocol

from memfabric_hybrid import _native
from memfabric_hybrid.clock import Deadline


class Slot(Protocol):
    """Any thread. `end` and `extend` may meet; who comes second fails, or finds nothing to do."""

    @property
    def space(self) -> _native.Space: ...

    def extend(self, size_bytes: int) -> None:
        """Adds memory at the end, perhaps none; everybody who sees the slot sees all of it when this returns."""

    def end(self, farewell: Deadline) -> None:
        """Gives everything back. Memory that arrays or tensors are on stays until they are garbage."""

    def abandon_after_fork(self) -> None:
        """In a forked child: what talks to others is the parent's."""


def start_of(space: _native.Space) -> int:
    """Where our own memory begins."""
    return space._slot_address(space.local_rank, _native.DRAM)


def size_of(space: _native.Space) -> int:
    """How much of it there is now."""
    return space._allocated(space.local_rank, _native.DRAM)
