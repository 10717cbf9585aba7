"""Answers what neighbours ask, and sees their connections end.

A request whose sender the store has not shown here yet is *deferred* until more is known, or its time is over.

Threads: the exchange's only, which waits for nobody; `has_met` and `awaits_news` are for any thread. `_lock` guards the
table of connections against readers; it is held for moments, and nothing else is locked or called under it.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from memfabric_hybrid import clock, logs
from memfabric_hybrid.address_space.exchange import descriptor_shortage, packets
from memfabric_hybrid.address_space.exchange.spare_descriptor import SpareDescriptor
from memfabric_hybrid.address_space.messages import (
    MAX_PACKET,
    Answer,
    Nonsense,
    NotHere,
    Refuse,
    Request,
    decode_request,
    encode,
)
from memfabric_hybrid.errors import Code, resource_failure

log = logs.get(__name__)
JUDGED_WITHIN_S = 5.0  # how long the store may take to show whoever speaks to us
MOST_DEFERRED = 1024  # requests that wait for that

# The request and its descriptors, which stay the exchange's; the answer and its descriptors, which become it. None: ask
# again when more is known of the sender. Any answer but Refuse and NotHere says that the sender has proved who it is.
Handler = Callable[[Request, Sequence[int]], tuple[Answer, Sequence[int]] | None]


class _Asked(msgspec.Struct, eq=False):
    """A request that has no answer yet. Owns the packet's descriptors."""

    packet: packets.Packet
    request: Request
    until: float


class _Connection(msgspec.Struct, eq=False):
    sock: socket.socket
    instance: int | None = None  # of the other side; None until it has proved who it is
    deferred: _Asked | None = None


class Answerer:
    """`on_lost(instance)` is called when the connection of a process ends that has proved who it is."""

    def __init__(
        self, handle: Handler, on_lost: Callable[[int], None], epoll: select.epoll, spare: SpareDescriptor
    ) -> None:
        self._handle = handle
        self._on_lost = on_lost
        self._epoll = epoll
        self._spare = spare
        self._lock = threading.Lock()
        self._connections: dict[int, _Connection] = {}  # by descriptor
        self._waiting: dict[int, _Connection] = {}  # those with a deferred request

    def add(self, sock: socket.socket) -> None:
        """Of somebody who may ask; ours from then on."""
        with self._lock:
            self._connections[sock.fileno()] = _Connection(sock)
        self._epoll.register(sock.fileno(), select.EPOLLIN | select.EPOLLRDHUP)

    def has_met(self, instance: int) -> bool:
        """Whether that process has asked us and its connection is left."""
        with self._lock:
            return any(connection.instance == instance for connection in self._connections.values())

    def serve(self, fd: int, events: int) -> bool:
        """Something has come, or the other side has hung up; False: not one of ours."""
        connection = self._connections.get(fd)
        if connection is None:
            return False
        if not (events & select.EPOLLIN and self._hear(connection)):
            self._end(connection)
        return True

    def _hear(self, connection: _Connection) -> bool:
        """Handles one packet; False when the connection is over."""
        try:
            packet = packets.receive(connection.sock, MAX_PACKET, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._forget_deferred(connection)  # whoever asks anew waits for the earlier answer no more
        try:
            if len(packet.content) <= packets.NUMBER.size:
                packet.close()
                return False
            request = decode_request(packet.content[packets.NUMBER.size :])
        except Nonsense as error:
            log.info("a neighbour's connection is over: %s", error)
            packet.close()
            return False
        return self._answer(connection, _Asked(packet, request, clock.now() + JUDGED_WITHIN_S))

    def _answer(self, connection: _Connection, asked: _Asked) -> bool:
        """Answers or defers; False when the connection is over."""
        answer_fds: Sequence[int] = ()
        deferred = False
        try:
            decided: tuple[Answer, Sequence[int]] | None
            if asked.packet.fds_lost:
                decided = descriptor_shortage.refusal("the rank that was asked"), ()
            else:
                decided = self._handle(asked.request, asked.packet.fds)
            if decided is None and clock.now() < asked.until and len(self._waiting) < MOST_DEFERRED:
                deferred = True
                connection.deferred = asked
                self._waiting[connection.sock.fileno()] = connection
                return True
            answer, answer_fds = decided or (_unknown(asked.request), ())
            if not isinstance(answer, (Refuse, NotHere)):
                connection.instance = asked.request.instance
            _send(connection.sock, asked.packet.content[: packets.NUMBER.size], answer, answer_fds)
        except OSError as error:
            log.info("a neighbour's connection is over: %s", error)
            return False
        except Exception:  # this thread has to live: who else would notice deaths?
            log.exception("a neighbour's request failed unexpectedly; its connection is ended")
            return False
        finally:
            for fd in answer_fds:
                os.close(fd)
            if not deferred:
                asked.packet.close()
        return True

    @property
    def awaits_news(self) -> bool:
        """Whether somebody waits for us to learn what the store will say about it. Any thread."""
        return bool(self._waiting)

    def look_again(self) -> bool:
        """At requests whose senders were not known; True while some are waiting."""
        for connection in list(self._waiting.values()):
            asked, connection.deferred = connection.deferred, None
            del self._waiting[connection.sock.fileno()]
            if asked is not None and not self._answer(connection, asked):
                self._end(connection)
        return bool(self._waiting)

    def _forget_deferred(self, connection: _Connection) -> None:
        asked, connection.deferred = connection.deferred, None
        if asked is not None:
            self._waiting.pop(connection.sock.fileno(), None)
            asked.packet.close()

    def _end(self, connection: _Connection) -> None:
        """The other side is gone (or talks nonsense)."""
        fd = connection.sock.fileno()
        with self._lock:
            del self._connections[fd]
        self._epoll.unregister(fd)
        self._forget_deferred(connection)
        self._spare.close_connection(connection.sock)
        if connection.instance is not None:
            self._on_lost(connection.instance)

    def hang_up_all(self) -> None:
        """Neighbours see our end instead of waiting for answers in vain; the sockets stay open."""
        for connection in self._connections.values():
            with suppress(OSError):  # the other side was faster
                connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """When nobody else uses it; without the lock: in a forked child its holder may not exist."""
        for connection in self._connections.values():
            self._forget_deferred(connection)
            connection.sock.close()
        self._connections.clear()


def _send(sock: socket.socket, head: bytes, answer: Answer, fds: Sequence[int]) -> None:
    try:
        packets.send(sock, head + encode(answer), fds, socket.MSG_DONTWAIT)
    except OSError as error:
        if error.errno != errno.ETOOMANYREFS:
            raise
        failure = resource_failure("the rank that was asked cannot show its memory", error)
        packets.send(sock, head + encode(Refuse(int(failure.code), str(failure))), (), socket.MSG_DONTWAIT)


def _unknown(request: Request) -> Refuse:
    sentence = f"the store does not show rank {request.rank} of {request.object_name!r} as the process that asked"
    return Refuse(int(Code.NOT_CONNECTED), sentence)
