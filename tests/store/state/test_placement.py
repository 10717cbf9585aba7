"""Placement against a model that tries every place in turn, in a region so small that it gets full."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfabric_hybrid.errors import NoResources
from memfabric_hybrid.store.state import placement
from memfabric_hybrid.store.state.placement import ALIGNMENT_BYTES, REGION_END, REGION_START, Span, is_place, placed

STEPS = 24  # of the small region
WHOLE = REGION_END - REGION_START
names = st.text(max_size=8)
sizes = st.integers(1, (STEPS + 1) * ALIGNMENT_BYTES)
small_spans = st.tuples(st.integers(0, STEPS - 1), st.integers(1, 6)).map(
    lambda place: (
        REGION_START + place[0] * ALIGNMENT_BYTES,
        REGION_START + min(STEPS, sum(place)) * ALIGNMENT_BYTES,
    )
)


@contextmanager
def small_region() -> Iterator[None]:
    with patch.object(placement, "REGION_END", REGION_START + STEPS * ALIGNMENT_BYTES):
        yield


def is_free(span: Span, taken: list[Span]) -> bool:
    return all(span[1] <= low or high <= span[0] for low, high in taken)


def tried_in_turn(name: str, size_bytes: int, taken: list[Span]) -> int | None:
    """What `placed` promises, the slow way: the first place from the preferred one on, then from the start."""
    end = REGION_START + STEPS * ALIGNMENT_BYTES
    from_preferred = range(placement.preferred(name), end, ALIGNMENT_BYTES)
    for base in chain(from_preferred, range(REGION_START, end, ALIGNMENT_BYTES)):
        span = placement.span_of(base, size_bytes)
        if span[1] <= end and is_free(span, taken):
            return base
    return None


@given(name=names, size_bytes=sizes, taken=st.lists(small_spans, max_size=12))
def test_a_range_lies_at_the_first_place_that_is_free(name: str, size_bytes: int, taken: list[Span]) -> None:
    with small_region():
        expected = tried_in_turn(name, size_bytes, taken)
        if expected is None:
            with pytest.raises(NoResources, match=r"in one piece are free|the whole region has"):
                placed(name, size_bytes, taken)
        else:
            assert placed(name, size_bytes, taken) == expected
            assert is_place(expected, size_bytes)


@given(names=st.lists(names, min_size=1, max_size=40, unique=True), size_bytes=st.integers(1, 3 * ALIGNMENT_BYTES))
def test_ranges_fill_the_region_without_overlaps(names: list[str], size_bytes: int) -> None:
    taken: list[Span] = []
    with small_region():
        for name in names:
            try:
                span = placement.span_of(placed(name, size_bytes, taken), size_bytes)
            except NoResources:
                continue
            assert is_free(span, taken)
            taken.append(span)
    assert len(taken) <= STEPS


@given(name=names, size_bytes=st.integers(1, WHOLE), taken=st.lists(small_spans, max_size=6), data=st.data())
def test_the_order_of_what_is_taken_does_not_matter(
    name: str, size_bytes: int, taken: list[Span], data: st.DataObject
) -> None:
    def outcome(spans: list[Span]) -> int | str:
        try:
            return placed(name, size_bytes, spans)
        except NoResources as full:
            return str(full)

    assert outcome(data.draw(st.permutations(taken))) == outcome(taken)


@given(base=st.integers(0, 1 << 48), size_bytes=st.integers(-1, 1 << 48))
def test_what_is_no_place(base: int, size_bytes: int) -> None:
    inside = size_bytes > 0 and base >= REGION_START and base + size_bytes <= REGION_END
    assert is_place(base, size_bytes) == (inside and base % ALIGNMENT_BYTES == 0)


@given(name=names)
def test_an_object_alone_has_the_place_that_its_name_prefers(name: str) -> None:
    assert placed(name, 1, []) == placement.preferred(name)
    assert placed(name, WHOLE, []) == REGION_START


def test_names_spread() -> None:
    assert len({placement.preferred(f"bm/{number}") for number in range(1000)}) > 980


def test_the_place_of_a_name_is_the_same_in_every_release() -> None:
    """A store of another version may take over while members have the object mapped."""
    assert placement.preferred("bm/0") == 0x3C0A_8000_0000
