"""Which address means what: the arithmetic of one object's range. Pure.

    base                      base + capacity × max_dram
    │ DRAM slot 0 │ DRAM slot 1 │ … │ HBM slot 0 │ HBM slot 1 │ … │
    └ max_dram ───┘                 └ max_hbm ───┘

A rank owns one slot in each space; what it contributes fills the slot from its start. The native core does the same
arithmetic on the hot path; this module is where sizes are validated.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from memfabric_hybrid import _native
from memfabric_hybrid.errors import InvalidParam, NoResources

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
GRANULE = _native.HUGE_PAGE_BYTES  # sizes are rounded up to it
MAX_DRAM = 2 * TIB
MAX_HBM = 64 * GIB
RANGE_TOTAL = _native.REGION_END - _native.REGION_START  # what the cluster-wide region of addresses can hold


class Tier(IntEnum):
    """The two spaces of an object. Without an accelerator both live in host memory."""

    DRAM = _native.DRAM
    HBM = _native.HBM


class Layout(msgspec.Struct, frozen=True):
    """The shape of one object, the same on every rank."""

    capacity: int
    max_dram: int
    max_hbm: int

    @property
    def total_bytes(self) -> int:
        return self.capacity * (self.max_dram + self.max_hbm)

    def __str__(self) -> str:
        """As a program asks for it."""
        hbm = f" and {shown_size(self.max_hbm)} of HBM" if self.max_hbm else ""
        return f"{shown_size(self.max_dram)} of DRAM{hbm} per rank for {self.capacity} ranks"

    def max_bytes(self, tier: Tier) -> int:
        return self.max_dram if tier is Tier.DRAM else self.max_hbm


def shown_size(size_bytes: int) -> str:
    """In the largest unit that leaves a whole number."""
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB")):
        if size_bytes and size_bytes % unit == 0:
            return f"{size_bytes // unit} {name}"
    return f"{size_bytes} bytes"


def round_up(size_bytes: int) -> int:
    return -(-size_bytes // GRANULE) * GRANULE


def validated_layout(capacity: int, local: tuple[int, int], maximum: tuple[int, int]) -> tuple[Layout, tuple[int, int]]:
    """The layout and the rounded local sizes (DRAM, HBM), or InvalidParam / NoResources naming value and limit."""
    for name, own, most, limit in zip(("dram", "hbm"), local, maximum, (MAX_DRAM, MAX_HBM), strict=True):
        if most > limit:
            raise InvalidParam(f"max_{name}_size is {most} bytes, the limit is {limit}")
        if own > limit:
            raise InvalidParam(f"local_{name}_size is {own} bytes, the limit is {limit}")
        if own > most:
            raise InvalidParam(f"local_{name}_size is {own} bytes, which is more than max_{name}_size {most}")
    if not any(maximum):
        raise InvalidParam("both max_dram_size and max_hbm_size are 0: the object would have no addresses")
    layout = Layout(capacity, round_up(maximum[0]), round_up(maximum[1]))
    if layout.total_bytes > RANGE_TOTAL:
        raise NoResources(
            f"world size {capacity} × (max_dram_size {layout.max_dram} + max_hbm_size {layout.max_hbm}) = "
            f"{layout.total_bytes} bytes, but 47-bit addresses hold at most {RANGE_TOTAL}; lower max or the world size"
        )
    return layout, (round_up(local[0]), round_up(local[1]))
