"""One accepted connection of the store: bytes to messages, messages to the state machine. On the loop's thread."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, cast

from memfabric_hybrid import clock, logs
from memfabric_hybrid.errors import Code
from memfabric_hybrid.machine import file_descriptors
from memfabric_hybrid.store.frames import HEADER, HEADER_BYTES, VERSION, FrameError, FrameReader
from memfabric_hybrid.store.limits import MAX_GREETING_FRAME_BYTES, MAX_REQUEST_FRAME_BYTES, MIB
from memfabric_hybrid.store.local_socket import check_own_user
from memfabric_hybrid.store.messages import Refused, decode_request, framed
from memfabric_hybrid.store.state.effects import ConnectionId

if TYPE_CHECKING:
    from memfabric_hybrid.store.server.server import StoreServer

TLS_HANDSHAKE = b"\x16\x03"  # how a TLS client begins; the header of a frame as long as this is refused anyway
WANTS_TLS = "it wants TLS, and this store speaks none; call set_conf_store_tls for both or for neither"
MAX_BACKLOG_BYTES = 64 * MIB  # unread pushes of one connection; a reader slower than that is dropped
MAX_UNREAD_BYTES = MIB  # unread answers of one connection when it makes its next request

_log = logs.get(__name__)


class Peer(asyncio.Protocol):
    """One accepted connection."""

    __slots__ = ("number", "reader", "server", "transport")

    def __init__(self, server: StoreServer, number: ConnectionId) -> None:
        self.server = server
        self.number = number
        self.reader = FrameReader(MAX_GREETING_FRAME_BYTES)
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)  # set before anything else is called

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        connection = self.transport.get_extra_info("socket")
        if connection.fileno() < file_descriptors.LOWEST_OWN:
            self.server.move(self.transport, connection.fileno())
            return
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(connection)
        self.server.add(self)
        self.server.state.connected(self.number, clock.now(), is_local=connection.family == socket.AF_UNIX)
        if connection.family == socket.AF_UNIX and self.server.state.gate.local_key:
            self._check_local(connection)
        self.server.check_crowd(self)

    def turn_away(self, why: str) -> None:
        """It failed before it could greet, and has been told: not by a message of ours."""
        self.server.carry_out(self.server.state.turn_away(self.number, why))

    def _check_local(self, connection: socket.socket) -> None:
        try:
            check_own_user(connection)
        except OSError as error:
            self.server.carry_out(self.server.state.refuse(self.number, str(error)))

    def data_received(self, data: bytes) -> None:
        # Few functions for the usual frame, on purpose: see `StoreClient.gather`.
        server, reader, now = self.server, self.reader, clock.now()
        state = server.state
        try:
            size_bytes, version = HEADER.unpack_from(data) if len(data) > HEADER_BYTES and not reader.buffer else (0, 0)
            if version == VERSION and size_bytes == len(data) - HEADER_BYTES <= reader.limit_bytes:
                payloads = [data[HEADER_BYTES:]]
            else:
                payloads = reader.feed(data)
                server.count_incomplete(self, is_new=bool(payloads))
                if not payloads:
                    state.heard(self.number, now)
            for payload in payloads:
                if self.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
                    self._check_unread()
                message = decode_request(payload)
                effects = state.message(self.number, message, now)
                if effects:  # all but the last member of a rendezvous cause none
                    server.carry_out(effects)
                if reader.limit_bytes < MAX_REQUEST_FRAME_BYTES and state.knows(self.number):
                    reader.limit_bytes = MAX_REQUEST_FRAME_BYTES
        except FrameError as error:
            self._misunderstood(error)
        except Exception:
            self._fail()
        if server.tables.watches.pending or server.tables.next_deadline.at < server.tick_at:
            server.after_events()

    def _misunderstood(self, error: FrameError) -> None:
        server = self.server
        if self.reader.limit_bytes < MAX_REQUEST_FRAME_BYTES and self.reader.buffer.startswith(TLS_HANDSHAKE):
            server.carry_out(server.state.refuse(self.number, WANTS_TLS))
        else:
            server.carry_out(server.state.expel(self.number, str(error)))

    @property
    def name(self) -> str:
        """Where it comes from."""
        address = self.transport.get_extra_info("peername")
        if isinstance(address, tuple):
            return f"{address[0]}:{address[1]}"
        is_local = self.transport.get_extra_info("socket").family == socket.AF_UNIX
        return "the local socket" if is_local else "an address that is gone already"

    def _fail(self) -> None:
        _log.exception("store: a request of connection %d failed unexpectedly; the connection is closed", self.number)
        sentence = "the store failed unexpectedly on this request; its log says why"
        self.transport.write(framed(Refused(Code.ERROR, sentence)))
        self.transport.close()

    def _check_unread(self) -> None:
        """Nobody asks again before the answer is read; who does could make us buffer without end."""
        unread_bytes = self.transport.get_write_buffer_size()
        if unread_bytes > MAX_BACKLOG_BYTES or not self.server.state.is_event_channel(self.number):
            raise FrameError(f"a request although {unread_bytes} bytes of answers are unread")

    def connection_lost(self, error: Exception | None) -> None:
        self.reader.buffer.clear()
        self.server.count_incomplete(self)
        if self.server.peers.pop(self.number, None) is not None:
            self.server.carry_out(self.server.state.disconnected(self.number))
            self.server.after_events()


def keep_alive(connection: socket.socket) -> None:
    """A host that has vanished is noticed within two minutes, though nothing is said to it."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
