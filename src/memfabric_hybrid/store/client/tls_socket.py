"""A TLS connection that looks to `Connection` like its blocking socket. One thread at a time, but for `shutdown`."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memfabric_hybrid.store.protection.tls_stream import TlsStream

SEND_BYTES = 256 * 1024  # encrypted at a time; more would be held twice
RECEIVE_BYTES = 64 * 1024


class TlsSocket:
    """Time-outs are those of the socket below: BlockingIOError, after which the same call goes on where it was."""

    def __init__(self, connected: socket.socket, stream: TlsStream) -> None:
        """After the handshake."""
        self._socket = connected
        self._stream = stream
        self._plain = b""  # decrypted and not asked for yet
        self._unsent = b""  # encrypted
        self._accepted = 0  # how much of what the caller gave `_unsent` stands for
        self.family = connected.family
        self.fileno = connected.fileno
        self.setsockopt = connected.setsockopt
        self.setblocking = connected.setblocking
        self.shutdown = connected.shutdown
        self.close = connected.close

    def early(self, plain: bytes) -> None:
        """What came with the end of the handshake."""
        self._plain += plain

    def send(self, data: bytes | memoryview) -> int:
        """As a socket's; after BlockingIOError the same data must come again, which is not encrypted twice."""
        if not self._unsent:
            part = memoryview(data)[:SEND_BYTES]
            self._accepted = len(part)
            self._stream.write(part)
            self._unsent = self._stream.outgoing()
        while self._unsent:
            sent = self._socket.send(self._unsent)
            self._unsent = self._unsent[sent:]
        return self._accepted

    def recv(self, size_bytes: int, flags: int = 0) -> bytes:
        """As a socket's, though it may give more. With MSG_PEEK what it gives is given again."""
        while not self._plain and not self._stream.is_closed:
            received = self._socket.recv(RECEIVE_BYTES, flags & socket.MSG_DONTWAIT)
            if not received:
                return b""
            self._plain = self._stream.feed(received)
        plain = self._plain
        if not flags & socket.MSG_PEEK:
            self._plain = b""
        return plain

    def encrypted_ahead(self, data: bytes, count: int) -> bytes:
        """`data` so many times, as it will go over the wire: each as one record, all of the same size.

        Whoever sends them keeps their order and sends nothing else: TLS counts its records. See decision 0015.
        """
        for _ in range(count):
            self._stream.write(data)
        return self._stream.outgoing()
