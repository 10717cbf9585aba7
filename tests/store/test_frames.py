"""Frames: any cutting of a stream gives the same payloads; too large or foreign ones are refused on their header."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfabric_hybrid.store.frames import VERSION, FrameError, FrameReader, frame


@given(st.lists(st.binary(max_size=100), max_size=8), st.lists(st.integers(1, 40), min_size=1))
def test_any_cutting_gives_the_same_payloads(payloads: list[bytes], steps: list[int]) -> None:
    stream = b"".join(map(frame, payloads))
    reader = FrameReader(100)
    received: list[bytes] = []
    at = 0
    for number in range(len(stream) + 1):
        step = steps[number % len(steps)]
        received += reader.feed(stream[at : at + step])
        at += step
    assert received == payloads
    assert reader.pending_bytes == 0


@pytest.mark.parametrize("cut", [0, 4])
def test_version_is_checked(cut: int) -> None:
    stream = struct.pack(">IB", 1, VERSION + 1) + b"x"
    reader = FrameReader(100)
    assert reader.feed(stream[:cut]) == []
    with pytest.raises(FrameError, match=f"version {VERSION + 1}, expected version {VERSION}"):
        reader.feed(stream[cut:])


def test_size_is_refused_before_a_byte_of_the_payload_is_there() -> None:
    reader = FrameReader(1000)
    with pytest.raises(FrameError, match="frame of 1001 bytes, allowed are 1000"):
        reader.feed(struct.pack(">IB", 1001, VERSION))
    assert FrameReader(1000).feed(struct.pack(">IB", 1000, VERSION)) == []


def test_limit_can_be_raised_between_frames() -> None:
    reader = FrameReader(4)
    assert reader.feed(frame(b"1234")) == [b"1234"]
    reader.limit_bytes = 5
    assert reader.feed(frame(b"12345")) == [b"12345"]
