"""Where in the region of addresses a named range lies. Pure: what is taken goes in, a base address comes out.

The first place tried follows from the name, so different objects spread, and an object that is created again after a
store restart lands where it was. From there it is the first gap that is large enough, around the end if need be.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from memfabric_hybrid import _native
from memfabric_hybrid.errors import NoResources
from memfabric_hybrid.store.limits import GIB, shown

REGION_START, REGION_END = _native.REGION_START, _native.REGION_END
ALIGNMENT_BYTES = GIB

Span = tuple[int, int]  # first address, and the first one behind it


def span_of(base: int, size_bytes: int) -> Span:
    """What a range occupies: all of its last step, too."""
    return base, base + -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def is_place(base: int, size_bytes: int) -> bool:
    """Could `placed` have given this?"""
    start, end = span_of(base, size_bytes)
    return size_bytes > 0 and base % ALIGNMENT_BYTES == 0 and REGION_START <= start < end <= REGION_END


def preferred(name: str) -> int:
    """Where the range lies if nothing is in its way."""
    steps = (REGION_END - REGION_START) // ALIGNMENT_BYTES
    return REGION_START + zlib.crc32(name.encode()) % steps * ALIGNMENT_BYTES


def placed(name: str, size_bytes: int, taken: Iterable[Span]) -> int:
    """The base of the range, beside all that is taken; spans may overlap each other. NoResources: no room for it."""
    region_bytes = REGION_END - REGION_START
    _, wanted_bytes = span_of(0, size_bytes)
    if wanted_bytes > region_bytes:
        raise NoResources(f"range {shown(name)}: {size_bytes} bytes, the whole region has {region_bytes}")
    in_order = sorted(taken)
    for first in (preferred(name), REGION_START):
        base = first
        for low, high in in_order:
            if high <= base:
                continue
            if low >= base + wanted_bytes:
                break
            base = high
        if base + wanted_bytes <= REGION_END:
            return base
    raise NoResources(
        f"range {shown(name)}: no {size_bytes} bytes in one piece are free; "
        f"{len(in_order)} ranges hold {sum(high - low for low, high in in_order)} of {region_bytes} bytes"
    )
