"""The exchange of descriptors between the processes of one host, and the quickest news of a death.

Every process listens at a name of its own and keeps a link to each neighbour it has asked something. The kernel closes
a dead process's sockets, so a broken link *is* the death notice: no store, no time-out needed.

Threads: `ask` runs on the caller's thread, one at a time; everything that comes in is handled on the exchange's own
thread, which never waits for a peer. `request_tick` may be called from any thread.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from memfabric_hybrid import clock, file_descriptors, logs, signal_handlers
from memfabric_hybrid.address_space import packets
from memfabric_hybrid.address_space.messages import (
    MAX_PACKET,
    Answer,
    Nonsense,
    NotHere,
    Refuse,
    Request,
    decode_answer,
    decode_request,
    encode,
)
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import Code, resource_failure
from memfabric_hybrid.file_descriptors import above_standard_streams, open_socket
from memfabric_hybrid.peer_credentials import check_user
from memfabric_hybrid.service_thread import ServiceThread

log = logs.get(__name__)
TICK_S = 0.2
JUDGED_WITHIN_S = 5.0  # how long the store may take to show whoever speaks to us
MOST_DEFERRED = 1024  # requests that wait for that
PATIENCE_S = 0.1  # how often a waiting `ask` looks whether the one it waits for is still expected
_sequence = struct.Struct("!Q")  # precedes every packet; an answer repeats the number of its request

# The request and its descriptors, which stay the exchange's; the answer and its descriptors, which become it. None: ask
# again when more is known of the sender. Any answer but Refuse and NotHere says that the sender has proved who it is.
Handler = Callable[[Request, Sequence[int]], tuple[Answer, Sequence[int]] | None]


class Neighbour(msgspec.Struct, frozen=True):
    """Another process of this host: which life of it, and where it listens."""

    rank: int
    instance: int
    exchange_name: str


class Reply(msgspec.Struct, frozen=True):
    """A neighbour's answer. Owns its descriptors: whoever gets it calls `close()`."""

    answer: Answer
    fds: tuple[int, ...]

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)


class _Connection(msgspec.Struct):
    sock: socket.socket
    instance: int | None  # of the other side; None until it has proved who it is
    outgoing: bool
    deferred: _Deferred | None = None
    is_new: bool = True  # outgoing: nothing was ever agreed on it


class _Deferred(msgspec.Struct):
    """A request that cannot be decided yet: the store has not shown its sender here. Owns the packet's descriptors."""

    packet: packets.Packet
    request: Request
    until: float


class Exchange:
    """Made with the listening socket, which it owns from then on."""

    def __init__(
        self,
        listener: socket.socket,
        handle: Handler,
        on_lost: Callable[[int], None],
        on_tick: Callable[[], bool],
        on_failure: Callable[[str], None],
    ) -> None:
        self._listener = listener
        self._handle = handle
        self._on_lost = on_lost
        self._on_tick = on_tick  # returns whether it wants to be called again
        self._on_failure = on_failure  # nobody answers neighbours or sees their deaths any more
        self._ask_lock = threading.Lock()  # one asker at a time; no outgoing socket is closed while it is held
        self._lock = threading.Lock()  # guards the two maps below
        self._connections: dict[int, _Connection] = {}  # by descriptor
        self._outgoing: dict[int, _Connection] = {}  # by the neighbour's instance
        self._broken: list[_Connection] = []  # outgoing ones whose end is known, to be closed by `_bury`
        self._asked = 0
        self._closing = False
        self._closed = False
        self._ticking = False
        self._waiting: dict[int, _Connection] = {}  # with a deferred request, by descriptor (exchange thread)
        self._spare_fd = _open_spare()  # -1: it had to make way for a connection
        self._paused = False  # nobody is let in, for want of descriptors
        self._wake_fd = file_descriptors.own(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        self._epoll = _open_epoll()
        self._epoll.register(self._wake_fd, select.EPOLLIN)
        self._epoll.register(listener.fileno(), select.EPOLLIN)
        self._thread = ServiceThread("memfabric-exchange", self._run, self._fail)
        try:
            self._thread.start()
        except BaseException:
            self.abandon_after_fork()
            raise

    # ---- asking (the caller's thread) ------------------------------------------------------------------------------

    def ask(
        self,
        neighbours: Sequence[Neighbour],
        request: Request,
        fds: Sequence[int],
        deadline: Deadline,
        expected: Callable[[Neighbour], bool],
    ) -> Mapping[Neighbour, Reply | None]:
        """Sends the request to all, then collects the answers.

        None stands for a neighbour that is dead, is not `expected` any more, or did not answer by the deadline.
        NoResources when this process cannot ask.
        """
        replies: dict[Neighbour, Reply | None] = dict.fromkeys(neighbours)
        if not neighbours:
            return replies
        if not self._ask_lock.acquire(timeout=deadline.remaining_s()):
            log.warning("neighbours were not asked within %g s: another call waits for them", deadline.timeout_s)
            return replies
        try:
            if self._closing:
                return replies
            self._asked += 1
            packet = _sequence.pack(self._asked) + encode(request)
            waiting = {}
            for neighbour in neighbours:
                connection = self._send(neighbour, packet, fds, deadline)
                if connection is not None:
                    waiting[connection.sock.fileno()] = (neighbour, connection)
            poll = select.poll()
            for fd in waiting:
                poll.register(fd, select.POLLIN)
            while waiting and not deadline.expired and not self._closing:
                for fd, _ in poll.poll(min(deadline.remaining_s(), PATIENCE_S) * 1000):
                    neighbour, connection = waiting[fd]
                    outcome = self._receive_answer(connection)
                    if outcome == "stale":
                        continue
                    poll.unregister(fd)
                    del waiting[fd]
                    if isinstance(outcome, Reply):
                        replies[neighbour] = outcome
                        if _is_short_of_descriptors(outcome.answer):
                            self._hang_up_if_new(connection)
                        connection.is_new = False
                    else:
                        self._end(connection)
                for fd, (neighbour, _) in list(waiting.items()):
                    if not expected(neighbour):
                        poll.unregister(fd)
                        del waiting[fd]
        finally:
            self._ask_lock.release()
        if self._broken:
            self.request_tick()
        return replies

    def _send(self, neighbour: Neighbour, packet: bytes, fds: Sequence[int], deadline: Deadline) -> _Connection | None:
        connection = self._outgoing.get(neighbour.instance) or self._connect(neighbour, deadline)
        if connection is None:
            return None
        try:
            connection.sock.settimeout(deadline.remaining_s() or 0.001)
            packets.send(connection.sock, packet, fds)
        except TimeoutError as error:
            signal_handlers.pass_on(error)
            log.warning("rank %d of this host reads nothing, and its queue is full; it was not asked", neighbour.rank)
            return None
        except OSError as error:
            signal_handlers.pass_on(error)
            if error.errno == errno.ETOOMANYREFS:  # no fault of the link, whose end would be taken for a death
                raise resource_failure(f"rank {neighbour.rank} of this host cannot be shown memory", error) from error
            log.info("rank %d cannot be reached on this host: %s", neighbour.rank, error)
            self._end(connection)
            return None
        return connection

    def _connect(self, neighbour: Neighbour, deadline: Deadline) -> _Connection | None:
        try:
            sock = open_socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        except OSError as error:
            raise resource_failure(f"rank {neighbour.rank} of this host cannot be asked", error) from error
        try:
            sock.settimeout(deadline.remaining_s() or 0.001)
            sock.connect("\0" + neighbour.exchange_name)
            check_user(sock)
        except OSError as error:
            sock.close()
            signal_handlers.pass_on(error)
            log.info("rank %d cannot be reached on this host: %s", neighbour.rank, error)
            return None
        connection = _Connection(sock, neighbour.instance, outgoing=True)
        with self._lock:
            self._connections[sock.fileno()] = connection
            self._outgoing[neighbour.instance] = connection
        self._epoll.register(sock.fileno(), select.EPOLLRDHUP)  # hang-up only: answers are read by the asker
        return connection

    def _receive_answer(self, connection: _Connection) -> Reply | str:
        """The reply; "stale" for the answer to an earlier, abandoned request; "lost" when the neighbour is gone."""
        try:
            packet = packets.receive(connection.sock, MAX_PACKET)
        except OSError as error:
            signal_handlers.pass_on(error)
            return "lost"
        content, reply = packet.content, None
        try:
            if len(content) > _sequence.size and _sequence.unpack_from(content)[0] == self._asked:
                answer = decode_answer(content[_sequence.size :])
                reply = Reply(_without_descriptors("this process") if packet.fds_lost else answer, tuple(packet.fds))
                return reply
            return "stale" if content else "lost"
        except Nonsense as error:
            log.warning("a neighbour sent an answer that cannot be read: %s", error)
            return "lost"
        finally:
            if reply is None:
                packet.close()

    def is_linked(self, instance: int) -> bool:
        """Whether our link to that process is whole; once it is not, `on_lost` has been or will be called."""
        with self._lock:
            return instance in self._outgoing

    def has_met(self, instance: int) -> bool:
        """Whether that process has asked us or we have asked it, in whichever direction a connection is left."""
        with self._lock:
            return any(connection.instance == instance for connection in self._connections.values())

    # ---- answering (the exchange's thread) -------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            for fd, events in self._epoll.poll(TICK_S if self._ticking else None):
                if fd == self._wake_fd:
                    os.eventfd_read(fd)
                    self._ticking = True
                elif fd == self._listener.fileno():
                    self._accept()
                else:
                    with self._lock:
                        connection = self._connections.get(fd)
                    if connection is not None:
                        self._serve(connection, events)
            if self._ticking and not self._closing:
                wanted = [self._on_tick(), self._look_again(), self._let_in_again()]
                self._ticking = any(wanted)
            self._bury()

    def _accept(self) -> None:
        try:
            sock = self._accepted()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._pause(error)
            return  # otherwise whoever connected is gone already
        try:
            check_user(sock)
        except OSError as error:
            log.warning("refused a process that connected: %s", error)
            sock.close()
            return
        with self._lock:
            self._connections[sock.fileno()] = _Connection(sock, None, outgoing=False)
        self._epoll.register(sock.fileno(), select.EPOLLIN | select.EPOLLRDHUP)

    def _accepted(self) -> socket.socket:
        sock = self._with_spare_fd(lambda: self._listener.accept()[0])
        try:
            return self._with_spare_fd(lambda: above_standard_streams(sock))
        except OSError:
            sock.close()
            raise

    def _with_spare_fd(self, make: Callable[[], socket.socket]) -> socket.socket:
        """Out of descriptors, a spare one lets one neighbour in: it gets an answer that says so."""
        try:
            return make()
        except OSError as error:
            if error.errno != errno.EMFILE or self._spare_fd < 0:
                raise
            os.close(self._spare_fd)
            self._spare_fd = -1
            self._ticking = True
            return make()

    def _pause(self, error: OSError) -> None:
        log.warning(
            "no neighbour is let in: %s; raise the limit of open files (ulimit -n, now %d)",
            error.strerror,
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        )
        self._epoll.modify(self._listener.fileno(), 0)
        self._paused = self._ticking = True

    def _let_in_again(self) -> bool:
        """True while descriptors are short."""
        if self._spare_fd < 0:
            try:
                self._spare_fd = _open_spare()
            except OSError:
                return True
        if self._paused:
            self._paused = False
            self._epoll.modify(self._listener.fileno(), select.EPOLLIN)
        return False

    def _serve(self, connection: _Connection, events: int) -> None:
        if not connection.outgoing and events & select.EPOLLIN and self._answer(connection):
            return
        self._end(connection)

    def _answer(self, connection: _Connection) -> bool:
        """Handles one packet; False when the connection is over."""
        try:
            packet = packets.receive(connection.sock, MAX_PACKET, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._forget_deferred(connection)  # whoever asks anew waits for the earlier answer no more
        try:
            if len(packet.content) <= _sequence.size:
                packet.close()
                return False
            request = decode_request(packet.content[_sequence.size :])
        except Nonsense as error:
            log.info("a neighbour's connection is over: %s", error)
            packet.close()
            return False
        return self._answer_request(connection, _Deferred(packet, request, clock.now() + JUDGED_WITHIN_S))

    def _answer_request(self, connection: _Connection, asked: _Deferred) -> bool:
        answer_fds: Sequence[int] = ()
        deferred = False
        try:
            decided: tuple[Answer, Sequence[int]] | None
            if asked.packet.fds_lost:
                decided = _without_descriptors("the rank that was asked"), ()
            else:
                decided = self._handle(asked.request, asked.packet.fds)
            if decided is None and clock.now() < asked.until and len(self._waiting) < MOST_DEFERRED:
                deferred = True
                connection.deferred = asked
                self._waiting[connection.sock.fileno()] = connection
                self._ticking = True
                return True
            answer, answer_fds = decided or (_unknown(asked.request), ())
            if not isinstance(answer, (Refuse, NotHere)):
                connection.instance = asked.request.instance
            _send_answer(connection.sock, asked.packet.content[: _sequence.size], answer, answer_fds)
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

    def _look_again(self) -> bool:
        """At requests whose senders were not known; True while some are waiting."""
        for connection in list(self._waiting.values()):
            asked, connection.deferred = connection.deferred, None
            del self._waiting[connection.sock.fileno()]
            if asked is not None and not self._answer_request(connection, asked):
                self._end(connection)
        return bool(self._waiting)

    def _forget_deferred(self, connection: _Connection) -> None:
        asked, connection.deferred = connection.deferred, None
        if asked is not None:
            self._waiting.pop(connection.sock.fileno(), None)
            asked.packet.close()

    @property
    def awaits_news(self) -> bool:
        """Whether somebody waits for us to learn what the store will say about it. Any thread."""
        return bool(self._waiting)

    # ---- ending ----------------------------------------------------------------------------------------------------

    def request_tick(self) -> None:
        """From any thread: call `on_tick` soon, and again for as long as it wants."""
        with self._lock:
            if not self._closed:  # its number may be another descriptor's by now
                os.eventfd_write(self._wake_fd, 1)

    def _end(self, connection: _Connection) -> None:
        """The other side is gone (or talks nonsense). The asker or the exchange's thread; whoever is first tells."""
        with self._lock:
            fd = connection.sock.fileno()
            if self._connections.pop(fd, None) is None:
                return
            self._epoll.unregister(fd)
            if connection.outgoing:
                self._outgoing.pop(connection.instance or 0, None)
                self._broken.append(connection)
            else:
                self._forget_deferred(connection)
                self._close_incoming(connection.sock)
        if connection.instance is not None:
            self._on_lost(connection.instance)

    def _close_incoming(self, sock: socket.socket) -> None:
        """Its number becomes the spare one, if that is missing, before anybody else in this process can get it."""
        if self._spare_fd >= 0:
            sock.close()
            return
        number = sock.detach()
        try:
            self._spare_fd = os.dup2(self._wake_fd, number, inheritable=False)
        except OSError:  # the limit has become lower than the number
            os.close(number)

    def _hang_up_if_new(self, connection: _Connection) -> None:
        """The neighbour is short of descriptors, and this one has brought nothing. Nobody takes its end for a death:
        the other side does not know who we are."""
        with self._lock:
            if connection.is_new and self._connections.pop(connection.sock.fileno(), None) is not None:
                self._epoll.unregister(connection.sock.fileno())
                self._outgoing.pop(connection.instance or 0, None)
                self._broken.append(connection)
                with suppress(OSError):  # the other side was faster
                    connection.sock.shutdown(socket.SHUT_RDWR)

    def _bury(self) -> None:
        """Closes what broke, between two rounds of events and under no asker: a number that is used again at once
        would be taken for the old connection."""
        if self._broken and self._ask_lock.acquire(blocking=False):
            while self._broken:
                self._broken.pop().sock.close()
            self._ask_lock.release()

    def _fail(self, reason: str) -> None:
        """The thread is over. Neighbours see us hang up instead of waiting for answers in vain."""
        with self._lock:
            self._closing = True
            for connection in self._connections.values():
                with suppress(OSError):  # the other side was faster
                    connection.sock.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        self._on_failure(reason)

    def close(self, deadline: Deadline) -> None:
        """Everybody sees our end. Not to be called on the exchange's own thread."""
        self._closing = True
        self.request_tick()
        # The thread never waits, and askers look at `_closing` every now and then: a late one is given that time.
        ended = self._thread.join(Deadline(max(2 * PATIENCE_S, deadline.remaining_s())))
        unused = self._ask_lock.acquire(timeout=max(2 * PATIENCE_S, deadline.remaining_s()))
        if ended and unused:
            self.abandon_after_fork()
        else:
            log.error("the exchange with the neighbours is still busy; its sockets stay until the process ends")
        if unused:
            self._ask_lock.release()

    def abandon_after_fork(self) -> None:
        """In a forked child, where the thread does not exist: let go of the parent's sockets."""
        self._closing = self._closed = True
        for connection in self._connections.values():
            self._forget_deferred(connection)
            connection.sock.close()
        for connection in self._broken:
            connection.sock.close()
        self._broken.clear()
        self._connections.clear()
        self._outgoing.clear()
        self._listener.close()
        self._epoll.close()
        os.close(self._wake_fd)
        if self._spare_fd >= 0:
            os.close(self._spare_fd)


def _send_answer(sock: socket.socket, head: bytes, answer: Answer, fds: Sequence[int]) -> None:
    try:
        packets.send(sock, head + encode(answer), fds, socket.MSG_DONTWAIT)
    except OSError as error:
        if error.errno != errno.ETOOMANYREFS:
            raise
        failure = resource_failure("the rank that was asked cannot show its memory", error)
        packets.send(sock, head + encode(Refuse(int(failure.code), str(failure))), (), socket.MSG_DONTWAIT)


def _open_spare() -> int:
    return file_descriptors.own(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


def _open_epoll() -> select.epoll:
    made = select.epoll()
    if made.fileno() >= file_descriptors.LOWEST_OWN:
        return made
    with made:
        return select.epoll.fromfd(file_descriptors.duplicate(made.fileno()))


def _without_descriptors(who: str) -> Refuse:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    sentence = f"{who} has no descriptor left for the memory that was shown; raise its limit of open files (ulimit -n"
    return Refuse(int(Code.NO_RESOURCES), f"{sentence}, now {limit})")


def _is_short_of_descriptors(answer: Answer) -> bool:
    return isinstance(answer, Refuse) and answer.code == Code.NO_RESOURCES


def _unknown(request: Request) -> Refuse:
    sentence = f"the store does not show rank {request.rank} of {request.object_name!r} as the process that asked"
    return Refuse(int(Code.NOT_CONNECTED), sentence)
