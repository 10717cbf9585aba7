"""The native side of a collective says and hears what the messages mean, whatever the values."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfabric_hybrid._native import _gather
from memfabric_hybrid.errors import Code
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.frames import HEADER_BYTES, frame
from memfabric_hybrid.store.limits import MAX_GATHER_BYTES, MAX_KEY_BYTES, MAX_RANKS
from support.alarms import left_by_alarm

PATIENCE_S = 30.0
NUMBERS = st.one_of(
    st.integers(0, 300), st.integers(0, (1 << 63) - 1), st.sampled_from([127, 128, 65535, 65536, 1 << 32])
)
DATA = st.one_of(st.binary(max_size=40), st.sampled_from([bytes(255), bytes(256), bytes(65535), bytes(65536)]))


class Line:
    """A pair of sockets: the store's end is read and written by the test."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 10_000))
        self.theirs.settimeout(PATIENCE_S)

    def gather(self, request: m.Gather, answer: bytes, timeout_s: float = PATIENCE_S) -> object:
        self.theirs.sendall(answer)
        return _gather(
            self.ours.fileno(),
            request.call,
            request.group,
            request.round,
            request.rank,
            request.size,
            request.data,
            time.monotonic() + timeout_s,
            0.0,
        )

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line()
    yield line
    line.close()


REQUEST = m.Gather(1, "g", 0, 0, 2, b"", 1.0)


@given(
    call=NUMBERS,
    group=st.one_of(
        st.text(st.characters(max_codepoint=127), min_size=1, max_size=40),
        st.sampled_from(["g" * 31, "g" * 32, "g" * 256, "g" * MAX_KEY_BYTES]),
    ),
    round=NUMBERS,
    place=st.integers(1, MAX_RANKS).flatmap(lambda size: st.tuples(st.integers(0, size - 1), st.just(size))),
    data=DATA,
    timeout_s=st.floats(1, 1e9),
)
def test_the_store_hears_the_request(
    call: int, group: str, round: int, place: tuple[int, int], data: bytes, timeout_s: float
) -> None:
    rank, size = place
    line = Line()
    try:
        request = m.Gather(call, group, round, rank, size, data, timeout_s)
        assert line.gather(request, m.framed(m.Arrived(size)), timeout_s) is None
        heard = line.theirs.recv(1 << 20, socket.MSG_DONTWAIT)
        said = m.decode_request(heard[HEADER_BYTES:])
        assert isinstance(said, m.Gather)
        assert timeout_s - PATIENCE_S < said.timeout_s <= timeout_s
        said.timeout_s = timeout_s
        assert said == request
        assert len(heard) == len(m.framed(request))
    finally:
        line.close()


@given(parts=st.lists(DATA, min_size=1, max_size=40))
def test_the_caller_gets_the_parts(parts: list[bytes]) -> None:
    line = Line()
    try:
        answer = m.framed(m.Gathered(parts))
        line.theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * len(answer))
        assert line.gather(m.Gather(1, "g", 0, 0, len(parts), b"", 1.0), answer) == parts
    finally:
        line.close()


def test_the_largest_group(line: Line) -> None:
    parts = [bytes([rank % 256]) * (rank % 60) for rank in range(MAX_RANKS)]
    assert line.gather(m.Gather(1, "g", 0, 0, MAX_RANKS, b"", 1.0), m.framed(m.Gathered(parts))) == parts


@pytest.mark.parametrize(
    "payload",
    [
        m.encode(m.Refused(Code.TIMEOUT, "too few")),
        m.encode(m.Arrived(3)),
        m.encode(m.Gathered([b"a"])),
        m.encode(m.Gathered([b"a", b"b"])) + b"\0",
        m.encode(m.Gathered([b"a", b"b"]))[:-1],
        b"\xc1",
        b"",
    ],
)
def test_every_other_answer_is_left_to_the_messages(line: Line, payload: bytes) -> None:
    assert line.gather(REQUEST, frame(payload)) == payload


def test_a_store_that_hangs_up(line: Line) -> None:
    line.theirs.close()
    with pytest.raises(ConnectionError, match=r"Broken pipe|the store closed the connection"):
        _gather(line.ours.fileno(), 1, "g", 0, 0, 2, b"", time.monotonic() + PATIENCE_S, 0.5)


@pytest.mark.parametrize(
    ("said", "reason"),
    [(b"SSH-2.0-OpenSSH", "not an answer of a store"), (b"\xff\xff\xff\xff\x01", "4294967295 bytes is announced")],
)
def test_a_store_that_speaks_another_language(line: Line, said: bytes, reason: str) -> None:
    with pytest.raises(ConnectionError, match=reason):
        line.gather(REQUEST, said)


def test_a_store_that_is_silent(line: Line) -> None:
    with pytest.raises(TimeoutError):
        line.gather(REQUEST, b"\0\0", timeout_s=0.03)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("call", -1),
        ("group", ""),
        ("group", "g" * (MAX_KEY_BYTES + 1)),
        ("group", "grüße"),
        ("round", -1),
        ("round", 1 << 63),
        ("rank", 2),
        ("rank", -1),
        ("size", 0),
        ("size", MAX_RANKS + 1),
        ("data", bytes(MAX_GATHER_BYTES + 1)),
        ("data", bytearray(3)),
    ],
)
def test_unusual_values_are_left_to_the_messages(line: Line, field: str, value: object) -> None:
    request = msgspec.structs.replace(REQUEST, **{field: value})
    assert line.gather(request, b"") is False
    line.theirs.setblocking(False)
    with pytest.raises(BlockingIOError):
        line.theirs.recv(1)


def test_a_moment_that_has_passed_is_left_to_the_messages(line: Line) -> None:
    assert line.gather(REQUEST, b"", timeout_s=-1.0) is False


def test_a_signal_is_handled_while_waiting(line: Line) -> None:
    def interrupt(*_: object) -> None:
        raise InterruptedError("a signal came")

    with left_by_alarm(InterruptedError, interrupt, after_s=0.05):
        line.gather(REQUEST, b"")
