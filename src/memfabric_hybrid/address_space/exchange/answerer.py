"""Answers what neighbours ask, and sees their connections end.

A request that cannot be answered yet is *deferred*: until the store shows who asks, or its time for that is over; or
until running copies have left the memory in whose place that of the sender is to be.

Threads: the exchange's only, which waits for nobody; `has_met` and `awaits_news` are for any thread. `_lock` guards the
table of connections against readers; it is held for moments, and nothing else is locked or called under it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from enum import Enum

import msgspec

from memfabric_hybrid import clock, logs
from memfabric_hybrid._native import Endpoint, Link, Sending
from memfabric_hybrid.address_space.exchange import descriptor_shortage
from memfabric_hybrid.address_space.exchange.packet import NUMBER, Packet
from memfabric_hybrid.address_space.messages import Answer, Nonsense, NotHere, Refuse, Request, decode_request, encode
from memfabric_hybrid.errors import Code
from memfabric_hybrid.machine.peer_credentials import OtherUser, check_peer

log = logs.get(__name__)
SHOWN_WITHIN_S = 5.0  # how long the store may take to show whoever speaks to us
MOST_DEFERRED = 1024  # requests that wait for that
MOST_OTHER_USERS = 16  # connections of other users, which get one answer: why they are not let in


class Wait(Enum):
    """Ask again a moment later."""

    FOR_THE_STORE = "it has not shown the sender"
    FOR_COPIES = "they run where the sender's memory is to be"


# The request and its descriptors, which stay the exchange's; the answer and its descriptors, which become it. Any
# answer but Refuse and NotHere says that the sender has proved who it is. A sender of another user is to be refused.
Handler = Callable[[Request, Sequence[int], OtherUser | None], tuple[Answer, Sequence[int]] | Wait]


class _Asked(msgspec.Struct, eq=False):
    """A request that has no answer yet. Owns the packet's descriptors."""

    packet: Packet
    request: Request
    until: float


class _Connection(msgspec.Struct, eq=False):
    link: Link
    other_user: OtherUser | None = None  # who is not let in: the first answer says why, and ends it
    instance: int | None = None  # of the other side; None until it has proved who it is
    deferred: _Asked | None = None


class Answerer:
    """`on_lost(instance)` is called when the connection of a process ends that has proved who it is, `on_other_user`
    when a process of another user has connected: it may find out by itself that it is not let in, and say nothing.
    """

    def __init__(
        self,
        handle: Handler,
        on_lost: Callable[[int], None],
        on_other_user: Callable[[OtherUser], None],
        endpoint: Endpoint,
    ) -> None:
        self._handle = handle
        self._on_lost = on_lost
        self._on_other_user = on_other_user
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._connections: dict[Link, _Connection] = {}
        self._waiting: dict[Link, _Connection] = {}  # those with a deferred request

    def admit(self, link: Link) -> None:
        """Of somebody who has connected. Processes of other users are told that they are not let in."""
        if link in self._connections or link.peer is None:  # the latter: one of ours, ended a moment ago
            return
        other_user: OtherUser | None = None
        try:
            check_peer(link)
        except OtherUser as stranger:
            log.warning("refused a process that connected: %s", stranger)
            self._on_other_user(stranger)
            self._make_room_for_other_users()
            other_user = stranger
        except PermissionError:  # it has ended
            self._endpoint.drop(link)
            return
        with self._lock:
            self._connections[link] = _Connection(link, other_user)

    def _make_room_for_other_users(self) -> None:
        """They may not keep our descriptors: the oldest one goes."""
        others = [connection for connection in self._connections.values() if connection.other_user is not None]
        if len(others) >= MOST_OTHER_USERS:
            self._end(others[0])

    def has_met(self, instance: int) -> bool:
        """Whether that process has asked us and its connection is left."""
        with self._lock:
            return any(connection.instance == instance for connection in self._connections.values())

    def hear(self, link: Link, packet: Packet) -> None:
        """What arrived there, be it the end."""
        connection = self._connections.get(link)
        if connection is None:  # ended a moment ago
            packet.close()
        elif not self._take(connection, packet):
            self._end(connection)

    def _take(self, connection: _Connection, packet: Packet) -> bool:
        """Handles one packet; False when the connection is over."""
        self._forget_deferred(connection)  # whoever asks anew waits for the earlier answer no more
        if len(packet.content) <= NUMBER.size:
            packet.close()
            return False
        try:
            request = decode_request(packet.content[NUMBER.size :])
        except Nonsense as error:
            log.info("a neighbour's connection is over: %s", error)
            packet.close()
            return False
        return self._answer(connection, _Asked(packet, request, clock.now() + SHOWN_WITHIN_S))

    def _answer(self, connection: _Connection, asked: _Asked) -> bool:
        """Answers or defers; False when the connection is over."""
        answer_fds: Sequence[int] = ()
        deferred = False
        try:
            decided: tuple[Answer, Sequence[int]] | Wait
            if asked.packet.fds_lost:
                decided = descriptor_shortage.refusal("the rank that was asked"), ()
            else:
                decided = self._handle(asked.request, asked.packet.fds, connection.other_user)
            if isinstance(decided, Wait):
                patient = decided is Wait.FOR_COPIES or clock.now() < asked.until
                if patient and len(self._waiting) < MOST_DEFERRED:
                    deferred = True
                    connection.deferred = asked
                    self._waiting[connection.link] = connection
                    return True
                decided = _unknown(asked.request, connection.other_user), ()
            answer, answer_fds = decided
            if not isinstance(answer, (Refuse, NotHere)):
                connection.instance = asked.request.instance
            sent = _send(connection.link, asked.packet.content[: NUMBER.size], answer, answer_fds)
            return sent and connection.other_user is None
        except Exception:  # this thread has to live: who else would notice deaths?
            log.exception("a neighbour's request failed unexpectedly; its connection is ended")
            return False
        finally:
            for fd in answer_fds:
                os.close(fd)
            if not deferred:
                asked.packet.close()

    @property
    def awaits_news(self) -> bool:
        """Whether somebody waits for us to learn what the store will say about it. Any thread."""
        return bool(self._waiting)

    def look_again(self) -> bool:
        """At requests whose senders were not known; True while some are waiting."""
        for connection in list(self._waiting.values()):
            asked, connection.deferred = connection.deferred, None
            del self._waiting[connection.link]
            if asked is not None and not self._answer(connection, asked):
                self._end(connection)
        return bool(self._waiting)

    def _forget_deferred(self, connection: _Connection) -> None:
        asked, connection.deferred = connection.deferred, None
        if asked is not None:
            self._waiting.pop(connection.link, None)
            asked.packet.close()

    def _end(self, connection: _Connection) -> None:
        """The other side is gone (or talks nonsense)."""
        with self._lock:
            del self._connections[connection.link]
        self._forget_deferred(connection)
        self._endpoint.drop(connection.link)
        if connection.instance is not None:
            self._on_lost(connection.instance)

    def close(self) -> None:
        """When nobody else uses it; without the lock: in a forked child its holder may not exist."""
        for connection in list(self._waiting.values()):
            self._forget_deferred(connection)


def _send(link: Link, head: bytes, answer: Answer, fds: Sequence[int]) -> bool:
    """False when the link is over, or its other side does not read."""
    sent = link.send(head + encode(answer), fds)
    if sent is Sending.CROWDED:
        sent = link.send(head + encode(descriptor_shortage.crowded()), ())
    return sent is Sending.SENT


def _unknown(request: Request, other_user: OtherUser | None) -> Refuse:
    if other_user is not None:
        return Refuse(int(Code.NOT_CONNECTED), f"a rank of this host refuses: {other_user.answer}")
    sentence = f"the store does not show rank {request.rank} of {request.object_name!r} as the process that asked"
    return Refuse(int(Code.NOT_CONNECTED), sentence)
