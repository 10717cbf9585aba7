"""Cluster-wide address ranges: one region of the 47-bit space, cut into ranges that sessions hold by name. Pure.

The first probe follows from the name, so different objects spread, and an object that is created again after a store
restart lands where it was.
"""

from __future__ import annotations

import zlib

import msgspec

from memfabric_hybrid.errors import Duplicated, InvalidParam, NoResources, NotExist
from memfabric_hybrid.store.limits import GIB, shown

REGION_START, REGION_END = 0x1000_0000_0000, 0x5000_0000_0000
ALIGNMENT_BYTES = GIB


class Range(msgspec.Struct):
    base: int
    size_bytes: int
    holders: set[bytes] = msgspec.field(default_factory=set)

    @property
    def end(self) -> int:
        return self.base + _aligned(self.size_bytes)


class RangeTable:
    def __init__(self) -> None:
        self._ranges: dict[str, Range] = {}

    def hold(self, name: str, size_bytes: int, session: bytes) -> int:
        """The base of the range, allocated if nobody holds it yet."""
        if size_bytes < 1:
            raise InvalidParam(f"range {shown(name)}: size {size_bytes} bytes is below 1")
        found = self._ranges.get(name)
        if found is None:
            found = self._ranges[name] = Range(self._place(name, size_bytes), size_bytes)
        elif found.size_bytes != size_bytes:
            raise InvalidParam(
                f"range {shown(name)} is held with {found.size_bytes} bytes, this call says {size_bytes} bytes; "
                "all members must say the same"
            )
        found.holders.add(session)
        return found.base

    def restore(self, name: str, base: int, size_bytes: int, session: bytes) -> None:
        """What a session held before: overlaps with other names are accepted, they exist in the processes already."""
        end = base + _aligned(size_bytes)
        if size_bytes < 1 or base % ALIGNMENT_BYTES or not REGION_START <= base < end <= REGION_END:
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

    def _place(self, name: str, size_bytes: int) -> int:
        region_bytes = REGION_END - REGION_START
        wanted_bytes = _aligned(size_bytes)
        if wanted_bytes > region_bytes:
            raise NoResources(f"range {shown(name)}: {size_bytes} bytes, the whole region has {region_bytes}")
        start = REGION_START + zlib.crc32(name.encode()) % (region_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        taken = sorted((found.base, found.end) for found in self._ranges.values())
        for first, last in ((start, REGION_END), (REGION_START, REGION_END)):
            base = first
            for low, high in taken:
                if high <= base:
                    continue
                if low >= base + wanted_bytes:
                    break
                base = high
            if base + wanted_bytes <= last:
                return base
        raise NoResources(
            f"range {shown(name)}: no {size_bytes} bytes in one piece are free; "
            f"{len(taken)} ranges hold {sum(high - low for low, high in taken)} of {region_bytes} bytes"
        )


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
