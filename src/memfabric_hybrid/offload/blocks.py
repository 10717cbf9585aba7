"""Which parts of one growing span of memory are taken. Pure: offsets only, no memory and no locks.

Best fit: a block comes from the smallest hole that holds it, so that large holes stay large. Holes that touch are one
hole at any time. Blocks of 2 MiB and more begin at multiples of that, where huge pages do; all others at pages.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import NamedTuple

PAGE_BYTES = 4096
LARGE_BYTES = 2 << 20


class Block(NamedTuple):
    start: int
    size_bytes: int  # what was asked for, rounded up to whole pages


class Usage(NamedTuple):
    span_bytes: int
    taken_bytes: int
    blocks: int
    largest_bytes: int  # the largest hole
    last_bytes: int  # the hole at the end of the span, which grows with it


class Blocks:
    """A span of `span_bytes`, all of it free. One thread at a time."""

    def __init__(self, span_bytes: int = 0) -> None:
        self._span_bytes = 0
        self._taken: dict[int, int] = {}  # start → size
        self._starts: list[int] = []  # of the taken blocks, in order
        self._holes: dict[int, int] = {}  # start → size
        self._hole_ends: dict[int, int] = {}  # end → start
        self._holes_by_size: list[tuple[int, int]] = []  # (size, start), in order
        self.grow(span_bytes)

    def take(self, size_bytes: int) -> Block | None:
        """A block of at least that size; None if no hole holds it."""
        block_bytes, alignment = _rounded(size_bytes), _alignment(size_bytes)
        for index in range(bisect_left(self._holes_by_size, (block_bytes, 0)), len(self._holes_by_size)):
            hole_bytes, hole = self._holes_by_size[index]
            start = _up(hole, alignment)
            if start + block_bytes <= hole + hole_bytes:
                self._remove_hole(hole)
                self._add_hole(hole, start - hole)
                self._add_hole(start + block_bytes, hole + hole_bytes - start - block_bytes)
                self._taken[start] = block_bytes
                insort(self._starts, start)
                return Block(start, block_bytes)
        return None

    def give_back(self, start: int) -> bool:
        """False, and nothing happens, if no block begins there."""
        size_bytes = self._taken.pop(start, None)
        if size_bytes is None:
            return False
        del self._starts[bisect_left(self._starts, start)]
        self._free(start, size_bytes)
        return True

    def grow(self, by_bytes: int) -> None:
        """More free bytes at the end of the span."""
        self._free(self._span_bytes, by_bytes)
        self._span_bytes += by_bytes

    def missing(self, size_bytes: int) -> int:
        """By how much the span has to grow so that the block fits at its end, if it fits nowhere."""
        end = self._span_bytes
        start = _up(self._hole_ends.get(end, end), _alignment(size_bytes))
        return max(0, start + _rounded(size_bytes) - end)

    def holding(self, offset: int) -> Block | None:
        """The block that the byte at `offset` belongs to."""
        index = bisect_right(self._starts, offset) - 1
        if index < 0:
            return None
        start = self._starts[index]
        return Block(start, self._taken[start]) if offset < start + self._taken[start] else None

    def usage(self) -> Usage:
        free_bytes = sum(self._holes.values())
        largest_bytes = self._holes_by_size[-1][0] if self._holes_by_size else 0
        last_bytes = self._span_bytes - self._hole_ends.get(self._span_bytes, self._span_bytes)
        return Usage(self._span_bytes, self._span_bytes - free_bytes, len(self._taken), largest_bytes, last_bytes)

    def _free(self, start: int, size_bytes: int) -> None:
        """Joins it with the holes on both sides."""
        before = self._hole_ends.get(start)
        if before is not None:
            size_bytes += self._remove_hole(before)
            start = before
        if start + size_bytes in self._holes:
            size_bytes += self._remove_hole(start + size_bytes)
        self._add_hole(start, size_bytes)

    def _add_hole(self, start: int, size_bytes: int) -> None:
        if size_bytes:
            self._holes[start] = size_bytes
            self._hole_ends[start + size_bytes] = start
            insort(self._holes_by_size, (size_bytes, start))

    def _remove_hole(self, start: int) -> int:
        """Its size."""
        size_bytes = self._holes.pop(start)
        del self._hole_ends[start + size_bytes]
        del self._holes_by_size[bisect_left(self._holes_by_size, (size_bytes, start))]
        return size_bytes


def _up(number: int, step: int) -> int:
    return -(-number // step) * step


def _rounded(size_bytes: int) -> int:
    return _up(size_bytes, PAGE_BYTES)


def _alignment(size_bytes: int) -> int:
    return LARGE_BYTES if size_bytes >= LARGE_BYTES else PAGE_BYTES
