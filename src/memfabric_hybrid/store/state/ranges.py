"""Cluster-wide address ranges: which sessions hold which of them by name. Pure; `placement` says where they lie."""

from __future__ import annotations

import msgspec

from memfabric_hybrid.errors import Duplicated, InvalidParam, NotExist
from memfabric_hybrid.store.limits import shown
from memfabric_hybrid.store.state.placement import is_place, placed, span_of

LONGEST_SHOWN = 300  # characters of what somebody asked for


class Range(msgspec.Struct):
    base: int
    size_bytes: int
    asked: str = ""  # by whom first, and for what
    holders: set[bytes] = msgspec.field(default_factory=set)


class RangeTable:
    def __init__(self) -> None:
        self._ranges: dict[str, Range] = {}

    def hold(self, name: str, size_bytes: int, session: bytes, asked: str = "") -> int:
        """The base of the range, allocated if nobody holds it yet."""
        if size_bytes < 1:
            raise InvalidParam(f"range {shown(name)}: size {size_bytes} bytes is below 1")
        found = self._ranges.get(name)
        if found is None:
            taken = (span_of(other.base, other.size_bytes) for other in self._ranges.values())
            found = self._ranges[name] = Range(placed(name, size_bytes, taken), size_bytes, asked[:LONGEST_SHOWN])
        elif found.size_bytes != size_bytes:
            raise InvalidParam(_difference(name, found, size_bytes, asked[:LONGEST_SHOWN]))
        found.holders.add(session)
        return found.base

    def add(self, name: str, base: int, size_bytes: int, asked: str, session: bytes) -> None:
        """What is known to be held, wherever it is written down."""
        self._ranges.setdefault(name, Range(base, size_bytes, asked)).holders.add(session)

    def restore(self, name: str, base: int, size_bytes: int, session: bytes) -> None:
        """What a session held before: overlaps with other names are accepted, they exist in the processes already."""
        if not is_place(base, size_bytes):
            raise InvalidParam(f"range {shown(name)}: {size_bytes} bytes at {base:#x} is no range of this store")
        found = self._ranges.setdefault(name, Range(base, size_bytes))
        if (found.base, found.size_bytes) != (base, size_bytes):
            raise Duplicated(
                f"range {shown(name)} is {found.size_bytes} bytes at {found.base:#x} now, "
                f"this member holds {size_bytes} bytes at {base:#x}"
            )
        found.holders.add(session)

    def release(self, name: str, session: bytes) -> None:
        found = self._ranges.get(name)
        if found is None or session not in found.holders:
            raise NotExist(f"range {shown(name)} is not held by this member")
        found.holders.discard(session)
        if not found.holders:
            del self._ranges[name]


def _difference(name: str, found: Range, size_bytes: int, asked: str) -> str:
    if found.asked and asked:
        return f"{found.asked}, but {asked}; all ranks must ask for the same"
    return (
        f"range {shown(name)} is held with {found.size_bytes} bytes, this call says {size_bytes} bytes; "
        "all members must say the same"
    )
