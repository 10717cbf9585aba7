"""HTTP answers in pieces of any size, and what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfabric_hybrid.store.etcd.gateway.http_answers import AnswerReader, NotHttp, Piece

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\n{ok}"
EMPTY = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"
CHUNKED = (
    b"HTTP/1.1 412 Precondition Failed\r\nTrailer: T\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'3\r\n{"a\r\na;x=y\r\n":"b\\nc"}\n\r\n0\r\nT: v\r\n\r\n'
)


def answers(pieces: list[Piece]) -> list[tuple[int, bytes]]:
    """Complete ones, put together."""
    found, data = [], b""
    for piece in pieces:
        data += piece.data
        if piece.is_last:
            found.append((piece.status, data))
            data = b""
    return found


@given(st.lists(st.sampled_from([WHOLE, EMPTY, CHUNKED]), max_size=4), st.data())
def test_pieces_of_any_size(said: list[bytes], data: st.DataObject) -> None:
    reader, stream, pieces = AnswerReader(), b"".join(said), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        pieces += reader.feed(stream[:size])
        stream = stream[size:]
    whole = {WHOLE: (200, b"{ok}"), EMPTY: (204, b""), CHUNKED: (412, b'{"a":"b\\nc"}\n')}
    assert answers(pieces) == [whole[each] for each in said]


def test_a_stream_gives_what_has_come() -> None:
    reader = AnswerReader()
    assert reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n") == [
        Piece(200, b"{}", False)
    ]
    assert reader.feed(b"1") == []
    assert reader.feed(b"\r\n\n\r\n") == [Piece(200, b"\n", False)]


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x01\x00\x02\x02F",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000,
    ],
    ids=range(6),
)
def test_what_is_no_answer(said: bytes) -> None:
    with pytest.raises(NotHttp, match=r"it answered|it sent a chunk"):
        AnswerReader().feed(said)
