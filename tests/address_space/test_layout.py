"""Sizes and addresses of an object: limits, rounding, and what is beyond them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfabric_hybrid.address_space.layout import (
    GIB,
    GRANULE,
    MAX_DRAM,
    MAX_HBM,
    MIB,
    RANGE_TOTAL,
    TIB,
    Layout,
    Tier,
    round_up,
    validated_layout,
)
from memfabric_hybrid.errors import FabricError, InvalidParam, NoResources


def test_limits_are_the_documents() -> None:
    assert (GRANULE, MAX_DRAM, MAX_HBM, RANGE_TOTAL) == (2 * MIB, 2 * TIB, 64 * GIB, 64 * TIB)


@given(st.integers(0, MAX_DRAM))
def test_rounding_is_up_to_the_next_granule(size: int) -> None:
    rounded = round_up(size)
    assert rounded % GRANULE == 0
    assert 0 <= rounded - size < GRANULE


@pytest.mark.parametrize(
    ("capacity", "local", "maximum"),
    [
        (1, (1, 0), (1, 0)),
        (1, (0, 1), (0, 1)),
        (1, (0, 0), (1, 0)),
        (1, (0, 0), (0, 1)),
        (1, (MAX_DRAM, MAX_HBM), (MAX_DRAM, MAX_HBM)),
        (1024, (0, 0), (62 * GIB, 2 * GIB)),
        (32, (0, 0), (MAX_DRAM, 0)),
    ],
)
def test_good_sizes(capacity: int, local: tuple[int, int], maximum: tuple[int, int]) -> None:
    layout, rounded = validated_layout(capacity, local, maximum)
    assert layout == Layout(capacity, round_up(maximum[0]), round_up(maximum[1]))
    assert rounded == (round_up(local[0]), round_up(local[1]))
    assert layout.max_bytes(Tier.DRAM) == layout.max_dram
    assert layout.max_bytes(Tier.HBM) == layout.max_hbm


@pytest.mark.parametrize(
    ("capacity", "local", "maximum", "kind", "named"),
    [
        (1, (0, 0), (0, 0), InvalidParam, ["max_dram_size", "max_hbm_size"]),
        (1, (0, 0), (MAX_DRAM + 1, 0), InvalidParam, ["max_dram_size", str(MAX_DRAM + 1), str(MAX_DRAM)]),
        (1, (0, 0), (0, MAX_HBM + 1), InvalidParam, ["max_hbm_size", str(MAX_HBM + 1), str(MAX_HBM)]),
        (1, (2, 0), (1, 0), InvalidParam, ["local_dram_size is 2", "max_dram_size 1"]),
        (1, (0, 2), (0, 1), InvalidParam, ["local_hbm_size is 2", "max_hbm_size 1"]),
        (1, (1, 0), (0, 1), InvalidParam, ["local_dram_size is 1", "max_dram_size 0"]),
        (33, (0, 0), (MAX_DRAM, 0), NoResources, ["world size 33", str(33 * MAX_DRAM), str(RANGE_TOTAL)]),
        (1024, (0, 0), (64 * GIB, 1), NoResources, ["world size 1024", str(64 * GIB), str(GRANULE), str(RANGE_TOTAL)]),
    ],
)
def test_bad_sizes(
    capacity: int, local: tuple[int, int], maximum: tuple[int, int], kind: type[FabricError], named: list[str]
) -> None:
    with pytest.raises(kind) as caught:
        validated_layout(capacity, local, maximum)
    for part in named:
        assert part in str(caught.value)


sizes = st.one_of(st.integers(0, 8 * MIB), st.integers(0, 3 * TIB), st.integers(0, 1 << 64))


@given(st.integers(1, 1024), st.tuples(sizes, sizes), st.tuples(sizes, sizes))
def test_what_is_accepted_fits(capacity: int, local: tuple[int, int], maximum: tuple[int, int]) -> None:
    try:
        layout, rounded = validated_layout(capacity, local, maximum)
    except FabricError:
        return
    assert 0 < layout.total_bytes <= RANGE_TOTAL
    assert rounded[0] <= layout.max_dram <= MAX_DRAM
    assert rounded[1] <= layout.max_hbm <= MAX_HBM
    assert layout.total_bytes == capacity * (layout.max_dram + layout.max_hbm)
