"""The store server: one thread, one event loop, the pure state machine behind asyncio protocols.

All state is touched by the loop's thread only. The hot path is `_Peer.data_received` → `StoreState.message` →
`StoreServer.carry_out`: one decode per request, one encode per effect, whatever the number of receivers.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import itertools
import os
import secrets
import socket
from collections.abc import Sequence
from typing import Any, cast

from memfabric_hybrid import clock, logs
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import Code, NotConnected, RepeatInvoke
from memfabric_hybrid.machine import file_descriptors
from memfabric_hybrid.machine.service_thread import ServiceThread
from memfabric_hybrid.store.frames import HEADER, HEADER_BYTES, VERSION, FrameError, FrameReader
from memfabric_hybrid.store.limits import MAX_GREETING_FRAME_BYTES, MAX_REQUEST_FRAME_BYTES, MIB
from memfabric_hybrid.store.local_socket import listen_local
from memfabric_hybrid.store.messages import Hello, Refused, decode_request, framed
from memfabric_hybrid.store.server.listeners import listen, serve_other_hosts
from memfabric_hybrid.store.state.effects import Close, ConnectionId, Effect, Send
from memfabric_hybrid.store.state.machine import StoreState
from memfabric_hybrid.store.url import StoreUrl, parse_url

_uvloop_error: ImportError | None = None
try:
    import uvloop
except ImportError as error:
    _uvloop_error = error

TICK_S = 0.1
STOP_S = 5.0  # for the loop to end; it is never busy for long
CLOSE_GRACE_S = 5.0  # for the last words to a connection that is being closed
MAX_BACKLOG_BYTES = 64 * MIB  # unread pushes of one connection; a reader slower than that is dropped
MAX_UNREAD_BYTES = MIB  # unread answers of one connection when it makes its next request

_log = logs.get(__name__)


class _Peer(asyncio.Protocol):
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
        self.server.state.connected(self.number, clock.now())

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
                if not payloads:
                    state.heard(self.number, now)
            for payload in payloads:
                if self.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
                    self._check_unread()
                message = decode_request(payload)
                effects = state.message(self.number, message, now)
                if effects:  # all but the last member of a rendezvous cause none
                    server.carry_out(effects)
                if type(message) is Hello and state.knows(self.number):
                    reader.limit_bytes = MAX_REQUEST_FRAME_BYTES
        except FrameError as error:
            server.carry_out(state.expel(self.number, str(error)))
        except Exception:
            self._fail()
        if server.tables.watches.pending or server.tables.next_deadline.at < server.tick_at:
            server.after_events()

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
        if self.server.peers.pop(self.number, None) is not None:
            self.server.carry_out(self.server.state.disconnected(self.number))
            self.server.after_events()


FIRST_PEERS = 32  # connections for which no limit of descriptors needs to be raised


def keep_alive(connection: socket.socket) -> None:
    """A host that has vanished is noticed within two minutes, though nothing is said to it."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)


class StoreServer:
    """`start()` returns when the address is bound and served; `stop()` when everything has ended.

    With `first` only that session is served until `admit_all`; all others wait for an answer to their Hello.
    """

    def __init__(self, url: StoreUrl | str, *, has_local_socket: bool = True, first: bytes | None = None) -> None:
        self._has_local_socket = has_local_socket  # for clients of this host
        self.url = parse_url(url) if isinstance(url, str) else url
        self.state = StoreState(secrets.token_hex(8), first)
        self.tables = self.state.tables
        self.peers: dict[ConnectionId, _Peer] = {}
        self._allow_more_at = FIRST_PEERS
        self._numbers = itertools.count(1)
        self._listeners: list[socket.socket] = []
        self._loop: asyncio.AbstractEventLoop = cast(asyncio.AbstractEventLoop, None)  # set by start()
        self._thread: ServiceThread | None = None
        self.failure: str | None = None  # why it serves nobody any more
        self._timer: asyncio.TimerHandle | None = None
        self.tick_at = 0.0  # when the next tick is due
        self._push_scheduled = False
        self._moving: set[asyncio.Task[Any]] = set()

    def add(self, peer: _Peer) -> None:
        """On the loop. Room for more is made before it is needed."""
        self.peers[peer.number] = peer
        if len(self.peers) >= self._allow_more_at:
            self._allow_more_at *= 2
            file_descriptors.allow_enough(self._allow_more_at)

    def start(self) -> None:
        """InvalidParam: not an address of this machine. ResourceInUse: taken."""
        if self._thread is not None:
            raise RepeatInvoke(f"store server {self.url} was started before")
        self._listeners = listen(self.url)
        if serve_other_hosts(self._listeners):
            self.tables.recovery.begin(clock.now())
        if self._has_local_socket:
            self._add_local_socket()
        with file_descriptors.streams_occupied():
            self._loop = _new_loop()
            self._loop.set_exception_handler(_log_failure)
            serving: concurrent.futures.Future[None] = concurrent.futures.Future()
            thread = ServiceThread(f"store {self.url}", lambda: self._run(serving), self._fail)
            try:
                thread.start()
            except BaseException:
                self._close_all()
                raise
            self._thread = thread
            serving.result()
        _log.info("store %s serves at %s", self.state.incarnation, self.url)

    def stop(self) -> None:
        """Idempotent; clients see their connections close."""
        thread, self._thread = self._thread, None
        if thread is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed already: the thread has failed
                self._loop.call_soon_threadsafe(self._loop.stop)
            if not thread.join(Deadline(STOP_S)):
                _log.error("store %s: its thread has not ended within %g s; it is left behind", self.url, STOP_S)

    def admit_all(self, session: bytes) -> None:
        """From any thread. Nothing happens unless the server waits for that session."""
        if self.state.first == session:
            with contextlib.suppress(RuntimeError):  # the loop is closed already
                self._loop.call_soon_threadsafe(self._admit_all)

    def status(self) -> dict[str, object]:
        """Who is here, as JSON can say it. From any thread; NotConnected if the server does not serve any more."""
        answer: concurrent.futures.Future[dict[str, object]] = concurrent.futures.Future()
        try:
            self._loop.call_soon_threadsafe(lambda: answer.set_result(self._status()))
            return answer.result(STOP_S)
        except (RuntimeError, concurrent.futures.TimeoutError) as failure:
            raise NotConnected(f"store {self.url} does not say who is here: {self.failure or 'it ends'}") from failure

    def _status(self) -> dict[str, object]:
        """On the loop."""
        clusters = {
            name.removesuffix("/ranks"): {"world_size": capacity, "ranks": ranks}
            for name, (capacity, ranks) in self.tables.ranks.claimed().items()
        }
        return {"url": str(self.url), "incarnation": self.state.incarnation, "clusters": clusters}

    def _add_local_socket(self) -> None:
        try:
            self._listeners.append(listen_local(self.state.incarnation))
        except OSError as error:
            _log.warning("store %s: no local socket (%s); clients of this host use its address", self.url, error)

    def abandon_after_fork(self) -> None:
        """In a forked child: let go of the descriptors, so that what the parent closes is closed.

        They are replaced, not closed: the loop's objects still remember the numbers and may close them later.
        """
        self._thread = None
        with open(os.devnull, "rb") as nothing:
            connections = [peer.transport.get_extra_info("socket") for peer in self.peers.values()]
            for owned in (*self._listeners, *connections):
                if owned.fileno() >= 0:
                    os.dup2(nothing.fileno(), owned.fileno(), inheritable=False)

    # --- on the loop's thread ---------------------------------------------------------------------------------------

    def _run(self, serving: concurrent.futures.Future[None]) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            try:
                acceptors = loop.run_until_complete(self._accept())
                self._tick()
            except BaseException as error:
                serving.set_exception(error)
                return
            serving.set_result(None)
            try:
                loop.run_forever()
            finally:
                loop.run_until_complete(self._shut_down(acceptors))
        finally:
            self._close_all()

    def _close_all(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._loop.close()

    def _fail(self, reason: str) -> None:
        """Clients see their connections close and look for a store; whoever wants one here starts another."""
        self.failure = reason

    async def _accept(self) -> list[asyncio.AbstractServer]:
        return [
            await self._loop.create_unix_server(self._new_peer, sock=listener)
            if listener.family == socket.AF_UNIX
            else await self._loop.create_server(self._new_peer, sock=listener)
            for listener in self._listeners
        ]

    def _admit_all(self) -> None:
        for number in self.state.held_hellos:
            self.peers[number].reader.limit_bytes = MAX_REQUEST_FRAME_BYTES
        self.carry_out(self.state.admit_all(clock.now()))

    def _new_peer(self) -> _Peer:
        return _Peer(self, next(self._numbers))

    def move(self, accepted: asyncio.Transport, number: int) -> None:
        """A new connection whose number is not ours to keep: the program has closed that stream."""
        moved = socket.socket(fileno=file_descriptors.duplicate(number))
        accepted.abort()  # nothing was read from it
        if _uvloop_error is None:
            self._loop.call_soon(os.close, number)  # after the abort; uvloop itself never closes 0 to 2
        task = self._loop.create_task(self._loop.connect_accepted_socket(self._new_peer, moved))
        self._moving.add(task)  # the loop itself keeps no task
        task.add_done_callback(self._moving.discard)

    async def _shut_down(self, acceptors: list[asyncio.AbstractServer]) -> None:
        for acceptor in acceptors:
            acceptor.close()
        peers, self.peers = self.peers, {}  # nobody is left to be told, and the aborts are no events for the state
        for peer in peers.values():
            peer.transport.abort()
        await asyncio.sleep(0)  # one turn of the loop, in which it closes the descriptors

    def carry_out(self, effects: Sequence[Effect]) -> None:
        """In order. Connections that are gone already are skipped."""
        for effect in effects:
            if type(effect) is Send:
                data = framed(effect.message)
                for number in effect.connections:
                    peer = self.peers.get(number)
                    if peer is not None:
                        peer.transport.write(data)
            elif type(effect) is Close:
                self._close(effect)

    def after_events(self) -> None:
        """Pushes wait for the end of this turn of the loop: what comes in together goes out together."""
        if self.tables.watches.pending and not self._push_scheduled:
            self._push_scheduled = True
            self._loop.call_soon(self._push)
        if self.tables.next_deadline.at < self.tick_at:
            self._arm(self.tables.next_deadline.at)

    def _push(self) -> None:
        self._push_scheduled = False
        for effect in self.state.changes():
            if type(effect) is Send:
                self._drop_slow(effect.connections)
            self.carry_out((effect,))

    def _drop_slow(self, numbers: Sequence[ConnectionId]) -> None:
        for number in numbers:
            peer = self.peers.get(number)
            if peer is not None and peer.transport.get_write_buffer_size() > MAX_BACKLOG_BYTES:
                _log.warning(
                    "store: connection %d has %d bytes of unread pushes, allowed are %d; it is dropped",
                    number,
                    peer.transport.get_write_buffer_size(),
                    MAX_BACKLOG_BYTES,
                )
                peer.transport.abort()

    def _close(self, effect: Close) -> None:
        peer = self.peers.pop(effect.connection, None)
        if peer is None:
            return
        _log.info("store: connection %d is closed: %s", effect.connection, effect.reason)
        peer.transport.close()  # sends what is buffered first
        if peer.transport.get_write_buffer_size():
            self._loop.call_later(CLOSE_GRACE_S, peer.transport.abort)

    def _tick(self) -> None:
        self.carry_out(self.state.tick(clock.now()))
        self._arm(clock.now() + TICK_S)
        self.after_events()

    def _arm(self, at: float) -> None:
        """The next tick; sooner than TICK_S when something that waits ends sooner."""
        if self._timer is not None:
            self._timer.cancel()
        self.tick_at = at
        self._timer = self._loop.call_later(max(0.0, at - clock.now()), self._tick)


def _log_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Through our log, which never raises into the loop; asyncio's own does when standard error is closed."""
    _log.error("store: %s", context.get("message"), exc_info=context.get("exception"))


def _new_loop() -> asyncio.AbstractEventLoop:
    if _uvloop_error is not None:
        _log.warning("store: uvloop cannot be imported (%s); the plain asyncio loop serves, more slowly", _uvloop_error)
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
