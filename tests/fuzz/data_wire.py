"""What stands on a data connection, and a twin of the target's end of it (`native/tcp/wire.h`, `server_connection`).

The twin reads the bytes that an initiator sends as the target must: it knows which memory they may change, changes its
own copy of it, and tells every byte that has to come back.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

FRAME = struct.Struct("<IHHI")
FRAME_MAGIC, FRAME_VERSION = 0x5458464D, 4
HELLO, WELCOME, REFUSED, CONNECT, CONNECTED, ATTACH_REMOTE, ACCEPTED_REMOTE = 1, 2, 5, 8, 9, 10, 11

REQUEST = struct.Struct("<IIIIQQQQ")  # magic, operation, pieces, move, sequence, payload bytes, first piece
PIECE = struct.Struct("<QQ")
REPLY = struct.Struct("<IIIIQQQ")  # magic, verdict, piece, reserved, sequence, payload bytes, moved bytes
READ_END = struct.Struct("<II")
REQUEST_MAGIC, REPLY_MAGIC = 0x5152464D, 0x5052464D
READ, WRITE, CHECK, FENCE = 1, 2, 3, 4
DONE, NOT_EXPOSED = 0, 1
MOST_PIECES = 1000
MOST_PAYLOAD_BYTES = 2 << 20


def frame(kind: int, payload: bytes = b"") -> bytes:
    return FRAME.pack(FRAME_MAGIC, FRAME_VERSION, kind, len(payload)) + payload


def request(
    operation: int, pieces: Sequence[tuple[int, int]], payload: bytes = b"", *, move: int = 1, sequence: int = 1
) -> bytes:
    size = 0 if operation in (CHECK, FENCE) else sum(size for _, size in pieces)
    head = REQUEST.pack(REQUEST_MAGIC, operation, len(pieces), move, sequence, size, *pieces[0])
    return head + b"".join(PIECE.pack(*piece) for piece in pieces[1:]) + payload


class OutOfBounds(Exception):
    """The bytes would touch memory that is somebody else's to check: they must not be sent."""


@dataclass
class Region:
    """Memory of the target that whoever has the secret may touch; `kept_out` is a part that the fuzzer leaves alone."""

    start: int
    content: bytearray
    kept_out: range = range(0)

    def covers(self, address: int, size: int) -> bool:
        return self.start <= address and address + size <= self.start + len(self.content)


class Outcome(NamedTuple):
    """What the target says; whether it has hung up by itself; the requests that it has read, begun ones included."""

    answer: bytes
    hung_up: bool
    requests: int
    receives: bool  # it waits for the rest of a payload: what it has of it may be on its way


@dataclass
class Twin:
    """Of one exposure. One connection at a time."""

    regions: list[Region]
    _undo: list[tuple[Region, int, bytes]] = field(default_factory=list)

    def serve(self, stream: bytes) -> Outcome:
        """One connection, from its first request on. OutOfBounds: nothing has happened."""
        self._undo.clear()
        try:
            return self._serve(memoryview(stream))
        except OutOfBounds:
            for region, offset, before in reversed(self._undo):
                region.content[offset : offset + len(before)] = before
            raise

    def _serve(self, left: memoryview) -> Outcome:
        answer = bytearray()
        requests = refused_move = 0
        while len(left):
            requests += 1
            if len(left) < REQUEST.size:
                return Outcome(bytes(answer), False, requests, False)
            magic, operation, count, move, sequence, size, *first = REQUEST.unpack_from(left)
            if not _is_well_formed(magic, operation, count, size):
                return Outcome(bytes(answer), True, requests, False)
            left = left[REQUEST.size :]
            if len(left) < (count - 1) * PIECE.size:
                return Outcome(bytes(answer), False, requests, False)
            pieces = [(first[0], first[1]), *PIECE.iter_unpack(left[: (count - 1) * PIECE.size])]
            left = left[(count - 1) * PIECE.size :]
            if operation == FENCE:  # of connections that nobody has
                answer += REPLY.pack(REPLY_MAGIC, DONE, 0, 0, sequence, 0, 0)
                continue
            if not _add_up(operation, pieces, size):
                return Outcome(bytes(answer), True, requests, False)
            verdict, bad = self._judge(pieces) if move == 0 or move != refused_move else (NOT_EXPOSED, 0)
            refused_move = move if verdict != DONE else 0
            moved = 0
            if operation == WRITE:
                payload, left = left[:size], left[size:]
                if verdict == DONE:
                    self._write(pieces, payload)
                    moved = size
                if len(payload) < size:
                    return Outcome(bytes(answer), False, requests, verdict == DONE)
            follows = size if operation == READ and verdict == DONE else 0
            answer += REPLY.pack(REPLY_MAGIC, verdict, bad, 0, sequence, follows, moved)
            if follows:
                answer += b"".join(self._read(*piece) for piece in pieces) + READ_END.pack(DONE, 0)
        return Outcome(bytes(answer), False, requests, False)

    def _judge(self, pieces: Sequence[tuple[int, int]]) -> tuple[int, int]:
        for number, piece in enumerate(pieces):
            if self._region(*piece) is None:
                return NOT_EXPOSED, number
        return DONE, 0

    def _region(self, address: int, size: int) -> Region | None:
        return next((region for region in self.regions if region.covers(address, size)), None)

    def _touch(self, address: int, size: int) -> tuple[Region, int]:
        region = self._region(address, size)
        assert region is not None
        offset = address - region.start
        if max(offset, region.kept_out.start) < min(offset + size, region.kept_out.stop):
            raise OutOfBounds
        return region, offset

    def _read(self, address: int, size: int) -> bytes:
        region, offset = self._touch(address, size)
        return bytes(region.content[offset : offset + size])

    def _write(self, pieces: Sequence[tuple[int, int]], payload: memoryview) -> None:
        for address, size in pieces:
            region, offset = self._touch(address, size)
            data, payload = payload[:size], payload[size:]
            self._undo.append((region, offset, bytes(region.content[offset : offset + len(data)])))
            region.content[offset : offset + len(data)] = data


def _is_well_formed(magic: int, operation: int, count: int, size: int) -> bool:
    if magic != REQUEST_MAGIC or not 1 <= count <= MOST_PIECES:
        return False
    if operation in (CHECK, FENCE):
        return size == 0
    return operation in (READ, WRITE) and 1 <= size <= MOST_PAYLOAD_BYTES


def _add_up(operation: int, pieces: Sequence[tuple[int, int]], size: int) -> bool:
    if any(piece_size == 0 for _, piece_size in pieces):
        return False
    if operation == CHECK:
        return True
    return all(piece_size <= MOST_PAYLOAD_BYTES for _, piece_size in pieces) and sum(s for _, s in pieces) == size
