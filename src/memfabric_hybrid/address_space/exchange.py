"""The exchange of descriptors between the processes of one host, and the quickest news of a death.

Every process listens at its doorplate and keeps a link to each neighbour it has asked something. The kernel closes a
dead process's sockets, so a broken link *is* the death notice: no store, no time-out needed.

Threads: `ask` runs on the caller's thread, one at a time; everything that comes in is handled on the exchange's own
thread, which never waits for a peer. `request_tick` may be called from any thread.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from memfabric_hybrid import logs
from memfabric_hybrid.address_space import packets
from memfabric_hybrid.address_space.messages import (
    MAX_PACKET,
    Answer,
    Nonsense,
    Request,
    Withdraw,
    decode_answer,
    decode_request,
    encode,
)
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.peer_user import check_user
from memfabric_hybrid.service_thread import ServiceThread

log = logs.get(__name__)
TICK_S = 0.2
PATIENCE_S = 0.1  # how often a waiting `ask` looks whether the one it waits for is still expected
_sequence = struct.Struct("!Q")  # precedes every packet; an answer repeats the number of its request

# The request and its descriptors, which stay the exchange's; the answer and its descriptors, which become it.
Handler = Callable[[Request, Sequence[int]], tuple[Answer, Sequence[int]]]


class Neighbour(msgspec.Struct, frozen=True):
    """Another process of this host: which life of it, and where it listens."""

    rank: int
    instance: int
    doorplate: str


class Reply(msgspec.Struct, frozen=True):
    """A neighbour's answer. Owns its descriptors: whoever gets it calls `close()`."""

    answer: Answer
    fds: tuple[int, ...]

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)


class _Connection(msgspec.Struct):
    sock: socket.socket
    instance: int | None  # of the other side; None until it has said something
    outgoing: bool


class Exchange:
    """Made with the listening doorplate, which it owns from then on."""

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
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll = select.epoll()
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
                    else:
                        self._end(connection)
                for fd, (neighbour, _) in list(waiting.items()):
                    if not expected(neighbour):
                        poll.unregister(fd)
                        del waiting[fd]
            for neighbour, _ in waiting.values():
                log.warning(
                    "rank %d of this host did not answer within %g s; it will map this rank's memory when it goes on",
                    neighbour.rank,
                    deadline.timeout_s,
                )
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
            packets.send(connection.sock, packet, fds)
        except OSError as error:
            log.info("rank %d cannot be reached on this host: %s", neighbour.rank, error)
            self._end(connection)
            return None
        return connection

    def _connect(self, neighbour: Neighbour, deadline: Deadline) -> _Connection | None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            sock.settimeout(deadline.remaining_s() or 0.001)
            sock.connect("\0" + neighbour.doorplate)
            check_user(sock)
        except OSError as error:
            log.info("rank %d cannot be reached on this host: %s", neighbour.rank, error)
            sock.close()
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
            packet, fds = packets.receive(connection.sock, MAX_PACKET)
        except OSError:
            return "lost"
        reply = None
        try:
            if len(packet) > _sequence.size and _sequence.unpack_from(packet)[0] == self._asked:
                reply = Reply(decode_answer(packet[_sequence.size :]), tuple(fds))
                return reply
            return "stale" if packet else "lost"
        except Nonsense as error:
            log.warning("a neighbour sent an answer that cannot be read: %s", error)
            return "lost"
        finally:
            if reply is None:
                for fd in fds:
                    os.close(fd)

    def is_linked(self, instance: int) -> bool:
        """Whether our link to that process is whole; once it is not, `on_lost` has been or will be called."""
        with self._lock:
            return instance in self._outgoing

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
                self._ticking = self._on_tick()
            self._bury()

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return  # whoever knocked is gone already
        try:
            check_user(sock)
        except OSError as error:
            log.warning("refused a process at the door: %s", error)
            sock.close()
            return
        with self._lock:
            self._connections[sock.fileno()] = _Connection(sock, None, outgoing=False)
        self._epoll.register(sock.fileno(), select.EPOLLIN | select.EPOLLRDHUP)

    def _serve(self, connection: _Connection, events: int) -> None:
        if not connection.outgoing and events & select.EPOLLIN and self._answer(connection):
            return
        self._end(connection)

    def _answer(self, connection: _Connection) -> bool:
        """Handles one packet; False when the connection is over."""
        try:
            packet, fds = packets.receive(connection.sock, MAX_PACKET, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        answer_fds: Sequence[int] = ()
        try:
            if len(packet) <= _sequence.size:
                return False
            request = decode_request(packet[_sequence.size :])
            connection.instance = request.instance if isinstance(request, Withdraw) else request.share.instance
            answer, answer_fds = self._handle(request, fds)
            head = packet[: _sequence.size]
            packets.send(connection.sock, head + encode(answer), answer_fds, socket.MSG_DONTWAIT)
        except (OSError, Nonsense) as error:
            log.info("a neighbour's connection is over: %s", error)
            return False
        except Exception:  # this thread has to live: who else would notice deaths?
            log.exception("a neighbour's request failed unexpectedly; its connection is ended")
            return False
        finally:
            for fd in (*fds, *answer_fds):
                os.close(fd)
        return True

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
                connection.sock.close()
        if connection.instance is not None:
            self._on_lost(connection.instance)

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
            connection.sock.close()
        for connection in self._broken:
            connection.sock.close()
        self._broken.clear()
        self._connections.clear()
        self._outgoing.clear()
        self._listener.close()
        self._epoll.close()
        os.close(self._wake_fd)
