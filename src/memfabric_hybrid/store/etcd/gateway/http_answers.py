"""HTTP/1.1 answers out of received bytes, whole ones and those that never end. Pure.

Only what etcd's gateway says: a Content-Length or chunks. The standard library's parser would bring its mail package
along, and cannot stop in the middle of a stream.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_HEAD_BYTES = 64 * 1024


class NotHttp(Exception):
    """What came is no HTTP answer; the text says what it is."""


class Piece(NamedTuple):
    """Of one answer's body; `is_last`: the answer is complete."""

    status: int
    data: bytes
    is_last: bool


class AnswerReader:
    """Feed it what arrives, in pieces of any size; answers come out in order."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._status = 0  # of the answer whose body is being read; 0: its head comes next
        self._left = 0  # bytes of the body, or of the chunk
        self._chunked = False
        self._in_trailer = False

    def feed(self, received: bytes) -> list[Piece]:
        self._buffer += received
        pieces: list[Piece] = []
        while (piece := self._next()) is not None:
            if piece.data or piece.is_last:
                pieces.append(piece)
        return pieces

    def _next(self) -> Piece | None:
        """None: not enough has come. Pieces without data only mean that something was understood."""
        if not self._status:
            return self._head()
        if not self._chunked:
            return self._body()
        if self._in_trailer:
            return self._trailer()
        if self._left:
            return self._chunk()
        return self._chunk_head()

    def _head(self) -> Piece | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD_BYTES or not b"HTTP/1.".startswith(self._buffer[:7]):
                raise NotHttp(f"it answered {bytes(self._buffer[:80])!r}")
            return None
        first, *lines = self._take(end + 4)[:-4].split(b"\r\n")
        words = first.split(b" ", 2)
        if not first.startswith(b"HTTP/1.") or len(words) < 2 or not words[1].isdigit():
            raise NotHttp(f"it answered {first[:80]!r}")
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        self._chunked = b"chunked" in fields.get(b"transfer-encoding", b"").lower()
        length = fields.get(b"content-length", b"0")
        if not length.isdigit():
            raise NotHttp(f"it answered with the length {length[:20]!r}")
        self._status, self._left, self._in_trailer = int(words[1]), int(length), False
        if not self._chunked and not self._left:
            return self._last(b"")
        return Piece(self._status, b"", False)

    def _body(self) -> Piece | None:
        return self._last(self._take(self._left)) if len(self._buffer) >= self._left else None

    def _chunk_head(self) -> Piece | None:
        line = self._line()
        if line is None:
            return None
        try:
            size_bytes = int(line.partition(b";")[0], 16)
        except ValueError:
            raise NotHttp(f"it sent a chunk of size {line[:20]!r}") from None
        if size_bytes:
            self._left = size_bytes + 2  # and the line end
        else:
            self._in_trailer = True
        return Piece(self._status, b"", False)

    def _chunk(self) -> Piece | None:
        if len(self._buffer) < self._left:
            return None
        data = self._take(self._left)[:-2]
        self._left = 0
        return Piece(self._status, data, False)

    def _trailer(self) -> Piece | None:
        line = self._line()
        if line is None:
            return None
        return self._last(b"") if not line else Piece(self._status, b"", False)

    def _last(self, data: bytes) -> Piece:
        status, self._status, self._left = self._status, 0, 0
        return Piece(status, data, True)

    def _line(self) -> bytes | None:
        end = self._buffer.find(b"\r\n")
        return None if end < 0 else self._take(end + 2)[:-2]

    def _take(self, size_bytes: int) -> bytes:
        taken = bytes(self._buffer[:size_bytes])
        del self._buffer[:size_bytes]
        return taken
