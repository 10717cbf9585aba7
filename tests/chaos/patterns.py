"""Patterns: what every byte of the campaign's memory says about who wrote it, and for whom.

Eight bytes, repeated over the whole block by their position in memory: four of the sequence number, then the kind of
memory, the writer, its lane, and the target. Any piece of a block is checkable, whatever was written over it half-way.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
PATTERN_BYTES = 8


class Pattern(NamedTuple):
    """The part that does not change with the sequence number."""

    kind: int
    writer: int
    lane: int
    target: int

    def columns(self) -> tuple[int, int, int, int]:
        """None of them is 0: fresh memory is."""
        return 0xC0 | self.kind, 0x80 | self.writer, 0x40 | self.lane, 0x20 | self.target

    def block(self, sequence: int, offset: int, size: int) -> Bytes:
        """`size` bytes for a place `offset` bytes after a multiple of eight."""
        one = np.array([*(sequence & 0xFFFFFFFF).to_bytes(4, "little"), *self.columns()], np.uint8)
        phase = offset % PATTERN_BYTES
        return np.tile(one, (phase + size) // PATTERN_BYTES + 1)[phase : phase + size].copy()

    def foreign_bytes(self, found: Bytes, *, mixed: bool = False) -> str:
        """What is in memory of this pattern, from a multiple of eight on, that its writer did not write; "" if nothing.

        Lanes and targets may be `mixed`.
        """
        rows = found[: len(found) // PATTERN_BYTES * PATTERN_BYTES].reshape(-1, PATTERN_BYTES)
        for column, expected in enumerate(self.columns()):
            seen = rows[:, 4 + column]
            wrong = (seen != 0) & ((seen & 0xE0 != expected & 0xE0) if mixed and column > 1 else (seen != expected))
            if wrong.any():
                row = int(wrong.argmax())
                shown = found[max(0, row - 1) * PATTERN_BYTES : (row + 2) * PATTERN_BYTES].tobytes().hex(" ", 8)
                return f"{int(wrong.sum())} foreign bytes in memory of {self}, first at {row * PATTERN_BYTES}: {shown}"
        return ""


def difference(written: Bytes, found: Bytes) -> str:
    """Where what was read back is not what was written; "" if it is.

    Without `np.array_equal`, which takes any exception, a signal handler's too, for a difference.
    """
    where = np.flatnonzero(written != found)
    if len(where) == 0:
        return ""
    first = int(where[0])
    wrote, saw = (block[first : first + 16].tobytes().hex(" ", 8) for block in (written, found))
    return f"{len(where)} of {len(written)} bytes differ, from {first} to {int(where[-1])}: wrote {wrote}, found {saw}"
