"""Messages: every kind survives the wire, everything else is a FrameError."""

from __future__ import annotations

import typing

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.frames import HEADER_BYTES, FrameError

VALUES = {
    bytes: b"\x00data",
    str: "schlüssel",
    int: 7,
    float: 2.5,
    bool: True,
    bytes | None: None,
    int | None: 3,
    tuple[int, ...]: (1, 2),
    list[bytes]: [b"", b"x"],
    dict[str, bytes]: {"k": b"v"},
    dict[str, bytes | None]: {"k": b"v", "gone": None},
    dict[int, str]: {1: "p/"},
    tuple[m.RestoredClaim, ...]: (m.RestoredClaim("g", 1, 2, b"v", 3),),
    tuple[m.RestoredRange, ...]: (m.RestoredRange("r", 0x1000_0000_0000, 5),),
    tuple[m.Refusal, ...]: (m.Refusal("key", "k", -2006, "taken"),),
}


def example(kind: type[msgspec.Struct]) -> typing.Any:
    return kind(*(VALUES[hint] for hint in typing.get_type_hints(kind).values()))


REQUESTS = typing.get_args(m.Request)
ANSWERS = typing.get_args(m.ServerMessage)


@pytest.mark.parametrize("kind", REQUESTS)
def test_requests_survive_the_wire(kind: type[msgspec.Struct]) -> None:
    message = example(kind)
    assert m.decode_request(m.framed(message)[HEADER_BYTES:]) == message


@pytest.mark.parametrize("kind", ANSWERS)
def test_answers_survive_the_wire(kind: type[msgspec.Struct]) -> None:
    message = example(kind)
    assert m.decode_server_message(m.framed(message)[HEADER_BYTES:]) == message


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_is_no_request(kind: type[msgspec.Struct]) -> None:
    with pytest.raises(FrameError, match="is not a request"):
        m.decode_request(m.framed(example(kind))[HEADER_BYTES:])


NOT_REQUESTS = [
    b"",
    b"\xc0",
    b"\x91\x01",  # a Hello without anything
    b"\x91\xcc\xfe",  # unknown tag
    msgspec.msgpack.encode([5, 5]),  # a Get whose key is a number
    msgspec.msgpack.encode([5, "k", "more"]),
    msgspec.msgpack.encode([5, "k"]) + b"\xc0",
    b"\x92\x05\xa1\xff",  # key that is no UTF-8
    b"\x91" * 100_000,  # deeper than any stack
    msgspec.msgpack.encode([5, "key"])[:-1],
]


@pytest.mark.parametrize("payload", NOT_REQUESTS, ids=range(len(NOT_REQUESTS)))
def test_anything_else_is_refused(payload: bytes) -> None:
    with pytest.raises(FrameError, match=f"a frame of {len(payload)} bytes is not a request"):
        m.decode_request(payload)
    with pytest.raises(FrameError, match=f"a frame of {len(payload)} bytes is not an answer"):
        m.decode_server_message(payload)


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(payload: bytes) -> None:
    for decode in (m.decode_request, m.decode_server_message):
        try:
            decode(payload)
        except FrameError:
            continue


def test_frequent_messages_are_small() -> None:
    assert len(m.HEARTBEAT_FRAME) == HEADER_BYTES + 2
    assert len(m.framed(m.Arrived(256))) <= HEADER_BYTES + 6
