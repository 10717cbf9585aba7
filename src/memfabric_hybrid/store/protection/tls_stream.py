"""TLS on bytes: what came in goes into `feed`, what has to go out comes from `outgoing`. No sockets, no waiting.

One thread at a time. Both ends of the store use it: the client around a blocking socket, the server on its loop.
"""

from __future__ import annotations

import ssl

from memfabric_hybrid.store.protection.tls_failure import TlsFailure
from memfabric_hybrid.store.protection.tls_reasons import reason

READ_BYTES = 256 * 1024
HANDSHAKE, ALERT = 0x16, 0x15  # the first byte of what a TLS peer says first; a frame of ours begins with 0


class TlsStream:
    """After a TlsFailure `outgoing` may have a last word for the other end."""

    def __init__(self, context: ssl.SSLContext, *, server_side: bool) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        self.is_established = False
        self.is_closed = False  # by the other end, in order

    def start(self) -> None:
        """For the client: its first words are `outgoing` then."""
        self._shake_hands()

    def feed(self, data: bytes) -> bytes:
        """What the other end says by this, decrypted; b"" also while the handshake is under way. TlsFailure."""
        self._incoming.write(data)
        if not self.is_established and not self._shake_hands():
            return b""
        parts: list[bytes] = []
        while not self.is_closed:
            try:
                part = self._tls.read(READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                part = b""
            except ssl.SSLError as error:
                raise TlsFailure(reason(error)) from None
            if part:
                parts.append(part)
            else:
                self.is_closed = True
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, data: bytes | memoryview) -> None:
        """Only when established."""
        self._tls.write(data)

    def outgoing(self) -> bytes:
        return self._outgoing.read()

    def _shake_hands(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise TlsFailure(reason(error)) from None
        self.is_established = True
        return True
