"""Cluster-wide address ranges: which sessions hold which of them by name. Pure; `placement` says where they lie.

Members' ranges are placed as if there were no others: a stranger that holds the whole region under a name of its own is
in nobody's way.
"""

from __future__ import annotations

import msgspec

from memfabric_hybrid.errors import Duplicated, InvalidParam, NotExist
from memfabric_hybrid.store.limits import MAX_MEMBERS_RANGES_BYTES, MAX_OTHERS_RANGES_BYTES, is_kept, shown
from memfabric_hybrid.store.state.placement import is_place, placed, span_of
from memfabric_hybrid.store.state.room import Room

LONGEST_SHOWN = 300  # characters of what somebody asked for


class Range(msgspec.Struct):
    base: int
    size_bytes: int
    asked: str = ""  # by whom first, and for what
    holders: set[bytes] = msgspec.field(default_factory=set)


class RangeTable:
    def __init__(self) -> None:
        self.room = Room("ranges", MAX_MEMBERS_RANGES_BYTES, MAX_OTHERS_RANGES_BYTES)
        self._ranges: dict[str, Range] = {}

    def hold(self, name: str, size_bytes: int, session: bytes, asked: str = "") -> int:
        """The base of the range, allocated if nobody holds it yet."""
        if size_bytes < 1:
            raise InvalidParam(f"range {shown(name)}: size {size_bytes} bytes is below 1")
        found = self._ranges.get(name)
        if found is not None and found.size_bytes != size_bytes:
            raise InvalidParam(_difference(name, found, size_bytes, asked[:LONGEST_SHOWN]))
        self._check_room(name, found, session)
        base = self._place(name, size_bytes) if found is None else found.base
        self.add(name, base, size_bytes, asked[:LONGEST_SHOWN], session)
        return base

    def _place(self, name: str, size_bytes: int) -> int:
        ignores_others = is_kept(name)
        taken = (
            span_of(other.base, other.size_bytes)
            for other_name, other in self._ranges.items()
            if not ignores_others or is_kept(other_name)
        )
        return placed(name, size_bytes, taken)

    def add(self, name: str, base: int, size_bytes: int, asked: str, session: bytes) -> None:
        """What is known to be held, wherever it is written down."""
        holders = self._ranges.setdefault(name, Range(base, size_bytes, asked)).holders
        if session not in holders:
            holders.add(session)
            self.room.take(_cost_bytes(name), is_members=is_kept(name))

    def restore(self, name: str, base: int, size_bytes: int, session: bytes) -> None:
        """What a session held before: overlaps with other names are accepted, they exist in the processes already."""
        if not is_place(base, size_bytes):
            raise InvalidParam(f"range {shown(name)}: {size_bytes} bytes at {base:#x} is no range of this store")
        found = self._ranges.get(name)
        if found is not None and (found.base, found.size_bytes) != (base, size_bytes):
            raise Duplicated(
                f"range {shown(name)} is {found.size_bytes} bytes at {found.base:#x} now, "
                f"this member holds {size_bytes} bytes at {base:#x}"
            )
        self._check_room(name, found, session)
        self.add(name, base, size_bytes, "", session)

    def release(self, name: str, session: bytes) -> None:
        found = self._ranges.get(name)
        if found is None or session not in found.holders:
            raise NotExist(f"range {shown(name)} is not held by this member")
        found.holders.discard(session)
        self.room.give_back(_cost_bytes(name), is_members=is_kept(name))
        if not found.holders:
            del self._ranges[name]

    def _check_room(self, name: str, found: Range | None, session: bytes) -> None:
        if found is None or session not in found.holders:
            self.room.check(_cost_bytes(name), is_members=is_kept(name))


def _cost_bytes(name: str) -> int:
    """What it costs that somebody holds a range, roughly: its places in the tables are counted, too."""
    return 4 * len(name) + LONGEST_SHOWN + 256


def _difference(name: str, found: Range, size_bytes: int, asked: str) -> str:
    if found.asked and asked:
        return f"{found.asked}, but {asked}; all ranks must ask for the same"
    return (
        f"range {shown(name)} is held with {found.size_bytes} bytes, this call says {size_bytes} bytes; "
        "all members must say the same"
    )
