"""Frames on a byte stream: 4 bytes of length (big endian, of the payload), 1 byte of version, the payload. Pure.

The limit is checked on the header, before anything is allocated or decoded; memory grows only with bytes received.
"""

from __future__ import annotations

import struct

VERSION = 2
HEADER_BYTES = 5
HEADER = struct.Struct(">IB")


class FrameError(Exception):
    """The other end does not speak our language; the connection is beyond repair."""


def frame(payload: bytes) -> bytes:
    return HEADER.pack(len(payload), VERSION) + payload


class FrameReader:
    """Cuts a stream into payloads. After a FrameError the stream must be closed.

    Hot paths look at `buffer` themselves: while it is empty, what comes in is nearly always one whole frame.
    """

    __slots__ = ("buffer", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads that are complete now. `limit_bytes` holds for every header seen in this call."""
        buffer = self.buffer
        buffer += data
        payloads = []
        start = 0
        while len(buffer) - start >= HEADER_BYTES:
            end = start + HEADER_BYTES + self._payload_bytes(buffer, start)
            if len(buffer) < end:
                break
            with memoryview(buffer) as view:
                payloads.append(bytes(view[start + HEADER_BYTES : end]))
            start = end
        if start:
            del buffer[:start]
        return payloads

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self.buffer)

    def _payload_bytes(self, data: bytes | bytearray, start: int = 0) -> int:
        size_bytes, version = HEADER.unpack_from(data, start)
        if version != VERSION:
            raise FrameError(f"frame of version {version}, expected version {VERSION}")
        if size_bytes > self.limit_bytes:
            raise FrameError(f"frame of {size_bytes} bytes, allowed are {self.limit_bytes}")
        return int(size_bytes)
