"""TLS between a connection of the store and its `Peer`, which takes this for its transport. On the loop's thread.

Until the handshake is over nothing reaches the peer, and its time counts as that of any stranger. Who fails it is told
why in TLS's own words (an alert), and gets the time to read them: a connection that is closed while something unread is
in it is reset, and the alert with it. A client without TLS is told in the store's language.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from memfabric_hybrid.errors import Code
from memfabric_hybrid.store.messages import Refused, framed
from memfabric_hybrid.store.protection.tls_failure import TlsFailure
from memfabric_hybrid.store.protection.tls_identity import TlsIdentity
from memfabric_hybrid.store.protection.tls_stream import HANDSHAKE, TlsStream
from memfabric_hybrid.store.server.peer import Peer

LINGER_S = 1.0  # for the last words to arrive
NO_TLS = "it does not speak TLS, and this store does; call set_conf_store_tls for both or for neither"


class TlsPeer(asyncio.Protocol):
    """The methods in the middle are those of a transport that a `Peer` and the server use."""

    def __init__(self, peer: Peer, identity: TlsIdentity) -> None:
        self._peer = peer
        self._stream = TlsStream(identity.contexts().server, server_side=True)
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)  # set before anything else is called
        self._heard = False  # its first bytes
        self._is_over = False  # nothing that comes counts any more

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._peer.connection_made(cast(asyncio.Transport, self))

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        if not self._heard and data[0] != HANDSHAKE:
            sentence = f"the store does not admit this process: {NO_TLS}"
            self._transport.write(framed(Refused(Code.NOT_CONNECTED, sentence)))
            self._peer.turn_away(NO_TLS)
            return
        self._heard = True
        try:
            plain = self._stream.feed(data)
        except TlsFailure as failure:
            self._peer.turn_away(str(failure))
            return
        self._flush()
        if plain:
            self._peer.data_received(plain)
        if self._stream.is_closed and not self._is_over:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_over = True
        self._peer.server.lingering.discard(self)
        self._peer.connection_lost(error)

    # --- as a transport ---------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if self._stream.is_established and not self._is_over:
            self._stream.write(data)
            self._flush()

    def close(self) -> None:
        """Sends what is buffered, says that this is the end, and waits for the other end to have read it."""
        if self._is_over:
            return
        self._is_over = True
        self._flush()
        server = self._peer.server
        if self._transport.is_closing():
            return
        self._transport.write_eof()
        server.lingering.add(self)
        server.call_later(LINGER_S, self._transport.abort)

    def abort(self) -> None:
        self._is_over = True
        self._transport.abort()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def _flush(self) -> None:
        data = self._stream.outgoing()
        if data:
            self._transport.write(data)
