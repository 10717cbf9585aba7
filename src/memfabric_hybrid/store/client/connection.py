"""A blocking connection to the store, used by one thread at a time: the thread that needs the answer reads it itself.

The socket stays in blocking mode with a kernel time-out (SO_RCVTIMEO): one system call to send, one to receive, where
a Python socket time-out would add a poll to each.
"""

from __future__ import annotations

import contextlib
import math
import socket
import struct
from collections import deque

from memfabric_hybrid import clock
from memfabric_hybrid.machine import signal_handlers
from memfabric_hybrid.store.client.tls_socket import TlsSocket
from memfabric_hybrid.store.frames import HEADER, HEADER_BYTES, VERSION, FrameError, FrameReader
from memfabric_hybrid.store.limits import KIB, MAX_REPLY_FRAME_BYTES, MIB
from memfabric_hybrid.store.messages import DECODE_ERRORS, ServerMessage, decode_answer, decode_server_message
from memfabric_hybrid.store.protection.tls_failure import TlsFailure
from memfabric_hybrid.store.url import StoreUrl

FOREVER = math.inf
LONGEST_WAIT_S = 1.0  # of one system call; a longer wait is several, so that the time-out is rarely set anew
SHORTEST_WAIT_S = 0.001
RECEIVE_BYTES = 64 * KIB
CLOSED, UNASKED = "the store closed the connection", "the store sent what nobody asked for"
SHOWN_BYTES = 80  # of what somebody says who is no store


class ConnectionLost(Exception):
    """The connection is over; the text says why."""


class NoStore(ConnectionLost):
    """What answered is no store; the text says what it said."""


class NotAdmitted(ConnectionLost):
    """The store does not trust us, or we do not trust it: token or certificates do not fit. Again is no use."""


class NeverLeft(ConnectionLost):
    """Lost before the whole message was sent."""


class AnswerLate(Exception):
    """The moment passed. The connection must be closed: the answer may still come."""


def _lost(error: OSError) -> BaseException:
    if isinstance(error, TlsFailure):
        return NotAdmitted(str(error))
    return error if signal_handlers.raised(error) else ConnectionLost(str(error))


def _never_left(error: OSError) -> BaseException:
    return error if signal_handlers.raised(error) else NeverLeft(str(error))


def shown_answer(answer: bytes) -> str:
    """Its first line, as far as people can read it."""
    return repr(answer[:SHOWN_BYTES].partition(b"\n")[0].rstrip().decode(errors="replace"))


class Connection:
    __slots__ = (
        "_arrived", "_reader", "_socket", "_wait_s", "fd", "incarnation", "is_silent", "number", "peer_name", "url",
    )  # fmt: skip

    def __init__(self, connected: socket.socket | TlsSocket, peer_name: str, url: StoreUrl, number: int = 0) -> None:
        """Takes over a connected socket. `peer_name`: address and port of the store, as this machine reaches it."""
        self.number = number  # among those of its client
        self.url = url  # where it was looked for
        self.fd = connected.fileno()
        self.peer_name = peer_name
        self.incarnation = ""
        self.is_silent = False  # nothing is read any more, though it is open
        self._socket = connected
        self._reader = FrameReader(MAX_REPLY_FRAME_BYTES)
        self._arrived: deque[bytes] = deque()
        self._wait_s = -1.0
        connected.setblocking(True)

    @property
    def tls(self) -> TlsSocket | None:
        return self._socket if isinstance(self._socket, TlsSocket) else None

    def exchange(self, payload: bytes, until: float, now: float) -> ServerMessage:
        """Send a message, receive one. NeverLeft: not all of it left, so the store cannot act on it.

        In one piece, because this is every call's path: whole frames, no waiting to be limited, nothing to assemble.
        """
        if self._wait_s != LONGEST_WAIT_S or until - now < LONGEST_WAIT_S:
            self._limit_wait(until)
        data = HEADER.pack(len(payload), VERSION) + payload
        try:
            sent = self._socket.send(data)
        except BlockingIOError as error:
            signal_handlers.pass_on(error)
            sent = 0
        except OSError as error:
            raise _never_left(error) from None
        if sent != len(data):
            self.send(memoryview(data)[sent:], until)
        try:
            received = self._socket.recv(RECEIVE_BYTES)
        except BlockingIOError as error:
            signal_handlers.pass_on(error)
            self._limit_wait(until)  # first: another whole wait could be as long again as the time allowed
            return self.receive(until)
        except OSError as error:
            raise _lost(error) from None
        if len(received) > HEADER_BYTES:
            size_bytes, version = HEADER.unpack_from(received)
            if size_bytes == len(received) - HEADER_BYTES and version == VERSION:
                try:
                    return decode_answer(received[HEADER_BYTES:])
                except DECODE_ERRORS as error:
                    raise ConnectionLost(f"not an answer of a store: {error}") from None
        self._take(received)
        return self.receive(until)

    def send(self, data: bytes | memoryview, until: float) -> None:
        """NeverLeft as above."""
        while True:
            self._limit_wait(until)
            try:
                sent = self._socket.send(data)
            except BlockingIOError as error:
                signal_handlers.pass_on(error)
                continue
            except OSError as error:
                raise _never_left(error) from None
            if sent == len(data):
                return
            data = memoryview(data)[sent:]

    def receive(self, until: float) -> ServerMessage:
        """The next message; ConnectionLost also for anything that is not one."""
        while not self._arrived:
            try:
                self._take(self._socket.recv(MIB if self._reader.pending_bytes else RECEIVE_BYTES))
            except BlockingIOError as error:
                signal_handlers.pass_on(error)
                self._limit_wait(until)
            except OSError as error:
                raise _lost(error) from None
        try:
            return decode_server_message(self._arrived.popleft())
        except FrameError as error:
            raise ConnectionLost(str(error)) from None

    def receive_first(self, until: float) -> ServerMessage:
        """`receive` for what a server says first: NoStore, with its words, if that is not the language of a store."""
        self._limit_wait(until)
        while not self._arrived:
            try:
                received = self._socket.recv(RECEIVE_BYTES)
                self._take(received)
            except BlockingIOError as error:
                signal_handlers.pass_on(error)
                self._limit_wait(until)
            except OSError as error:
                raise _lost(error) from None
            except ConnectionLost as error:
                if not received:
                    raise
                raise NoStore(f"it answered {shown_answer(received)}") from error
        return self.receive(until)

    def _take(self, received: bytes) -> None:
        if not received:
            raise ConnectionLost(CLOSED)
        try:
            self._arrived += self._reader.feed(received)
        except FrameError as error:
            raise ConnectionLost(str(error)) from None

    def wait_as_long_as_it_takes(self) -> None:
        """From now on `receive` blocks until something comes."""
        self._limit_wait(FOREVER)

    def prove(self) -> None:
        """Before a message: NeverLeft if the store has closed the connection, or sent what nobody asked for."""
        try:
            self.check_open()
        except ConnectionLost as lost:
            raise NeverLeft(str(lost)) from None

    def check_open(self) -> None:
        """Between two exchanges: ConnectionLost if the store has closed it, or sent what nobody asked for."""
        try:
            unexpected = self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError as error:
            signal_handlers.pass_on(error)
            return
        except OSError as error:
            raise _lost(error) from None
        raise ConnectionLost(
            "the store sent what nobody asked for" if unexpected else "the store closed the connection"
        )

    def abort(self) -> None:
        """From any thread: whoever is inside send or receive gets ConnectionLost. The owner still closes."""
        with contextlib.suppress(OSError):  # not connected any more: nobody can be waiting
            self._socket.shutdown(socket.SHUT_RDWR)

    def fall_silent(self) -> None:
        """From any thread: whoever is inside receive gets ConnectionLost; the store notices nothing yet."""
        self.is_silent = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        self._socket.close()

    def _limit_wait(self, until: float) -> None:
        remaining_s = until - clock.now()
        if remaining_s <= 0:
            raise AnswerLate
        if until == FOREVER:
            wait_s = 0.0  # to the kernel: no limit
        else:
            wait_s = LONGEST_WAIT_S if remaining_s >= LONGEST_WAIT_S else max(remaining_s, SHORTEST_WAIT_S)
        if wait_s != self._wait_s:
            self._wait_s = wait_s
            seconds = int(wait_s)
            limit = struct.pack("ll", seconds, int((wait_s - seconds) * 1e6))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
