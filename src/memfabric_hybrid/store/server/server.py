"""The store server: one thread, one event loop, the pure state machine behind asyncio protocols.

All state is touched by the loop's thread only. The hot path is `Peer.data_received` → `StoreState.message` →
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
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from memfabric_hybrid import clock, logs
from memfabric_hybrid.api.failure_log import RateLimit
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import NotConnected, RepeatInvoke
from memfabric_hybrid.machine import file_descriptors
from memfabric_hybrid.machine.service_thread import ServiceThread
from memfabric_hybrid.store.limits import MAX_GROUP_RANKS, MAX_REQUEST_FRAME_BYTES, MIB
from memfabric_hybrid.store.local_socket import listen_local
from memfabric_hybrid.store.messages import framed
from memfabric_hybrid.store.proofs import NONCE_BYTES
from memfabric_hybrid.store.protection import protection as protections
from memfabric_hybrid.store.protection.protection import Protection, ProtectionSource
from memfabric_hybrid.store.server.incomplete import IncompleteFrames, Leaving
from memfabric_hybrid.store.server.listeners import listen, serve_other_hosts
from memfabric_hybrid.store.server.peer import MAX_BACKLOG_BYTES, Peer
from memfabric_hybrid.store.server.unread import LARGE_BYTES, UnreadMessages
from memfabric_hybrid.store.state.effects import Close, ConnectionId, Effect, Send
from memfabric_hybrid.store.state.gate import Gate
from memfabric_hybrid.store.state.machine import StoreState
from memfabric_hybrid.store.state.next_deadline import NEVER
from memfabric_hybrid.store.state.status import status_of
from memfabric_hybrid.store.url import StoreUrl, parse_url

if TYPE_CHECKING:
    from memfabric_hybrid.store.server.tls_peer import TlsPeer

_uvloop_error: ImportError | None = None
try:
    import uvloop
except ImportError as error:
    _uvloop_error = error

LOCAL_KEY_BYTES = 32
STRANGERS_ALLOWED = 512  # connections that have not greeted yet, at least
MAX_CONNECTIONS = 2 * MAX_GROUP_RANKS  # a member has one for events and, now and then, others for its calls
MAX_UNREAD_BYTES = 512 * MIB  # of large answers and pushes, of all connections together
TICK_S = 0.1
STOP_S = 5.0  # for the loop to end; it is never busy for long
CLOSE_GRACE_S = 5.0  # for the last words to a connection that is being closed
FIRST_PEERS = 32  # connections for which no limit of descriptors needs to be raised

_log = logs.get(__name__)


class StoreServer:
    """`start()` returns when the address is bound and served; `stop()` when everything has ended.

    With `first` only that session is served until `admit_all`; all others wait for an answer to their Hello.
    """

    def __init__(
        self,
        url: StoreUrl | str,
        *,
        has_local_socket: bool = True,
        first: bytes | None = None,
        protection: ProtectionSource = protections.configured,
    ) -> None:
        self._has_local_socket = has_local_socket  # for clients of this host
        self.url = parse_url(url) if isinstance(url, str) else url
        self._protection = protection()  # for its life; certificates may be renewed inside
        self.state = StoreState(secrets.token_hex(8), first, _gate(self._protection))
        self.tables = self.state.tables
        self.peers: dict[ConnectionId, Peer] = {}
        self._allow_more_at = FIRST_PEERS
        self._numbers = itertools.count(1)
        self._listeners: list[socket.socket] = []
        self._loop: asyncio.AbstractEventLoop = cast(asyncio.AbstractEventLoop, None)  # set by start()
        self._thread: ServiceThread | None = None
        self._started_at = clock.now()
        self.failure: str | None = None  # why it serves nobody any more
        self._timer: asyncio.TimerHandle | None = None
        self.tick_at = 0.0  # when the next tick is due
        self._push_at = NEVER  # when pushes are due next
        self._push_timer: asyncio.Handle | None = None
        self._most = min(MAX_CONNECTIONS, file_descriptors.most_allowed())
        self._incomplete = IncompleteFrames(self.state.is_of_member)
        self._unread = UnreadMessages(shares=_uvloop_error is None and self._protection.tls is None)
        self._refusals = RateLimit()  # of lines in the log
        self.lingering: set[TlsPeer] = set()  # closed; their last words are on the way
        self._moving: set[asyncio.Task[Any]] = set()

    def add(self, peer: Peer) -> None:
        """On the loop. Room for more is made before it is needed."""
        self.peers[peer.number] = peer
        if len(self.peers) >= self._allow_more_at:
            self._allow_more_at *= 2
            file_descriptors.allow_enough(self._allow_more_at)

    def check_crowd(self, peer: Peer) -> None:
        """Somebody has come. Descriptors are kept for members: when they become few, others go."""
        if len(self.peers) > STRANGERS_ALLOWED:
            self.carry_out(self.state.trim_strangers(max(STRANGERS_ALLOWED, self._most // 4)))
        if len(self.peers) > self._most:
            self.carry_out(self.state.make_room(peer.number))

    def count_incomplete(self, peer: Peer, *, is_new: bool = False) -> None:
        """Frames that are not complete yet hold memory, which all connections together may have so much of."""
        self._incomplete.count(peer.number, len(peer.reader.buffer), clock.now(), is_new=is_new)
        while (leaving := self._incomplete.surplus()) is not None:
            self._expel(leaving)

    def _expel(self, leaving: Leaving) -> None:
        """Its memory is let go at once, whether or not it reads what it is told."""
        peer = self.peers[leaving.connection]
        peer.reader.buffer.clear()
        self._incomplete.count(peer.number, 0, clock.now(), is_new=True)
        self.carry_out(self.state.expel(*leaving))

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
        uptime_s = round(clock.now() - self._started_at, 3)
        return {"url": str(self.url), "uptime_s": uptime_s, **status_of(self.state)}

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
            await self._loop.create_unix_server(self._new_local_peer, sock=listener)
            if listener.family == socket.AF_UNIX
            else await self._loop.create_server(self._new_peer, sock=listener)
            for listener in self._listeners
        ]

    def _admit_all(self) -> None:
        for number in self.state.held_hellos:
            self.peers[number].reader.limit_bytes = MAX_REQUEST_FRAME_BYTES
        self.carry_out(self.state.admit_all(clock.now()))

    def _new_peer(self) -> asyncio.Protocol:
        peer = Peer(self, next(self._numbers))
        if self._protection.tls is None:
            return peer
        from memfabric_hybrid.store.server.tls_peer import TlsPeer  # here: most stores do not load it

        return TlsPeer(peer, self._protection.tls)

    def call_later(self, delay_s: float, action: Callable[[], object]) -> None:
        self._loop.call_later(delay_s, action)

    def _new_local_peer(self) -> Peer:
        return Peer(self, next(self._numbers))

    def move(self, accepted: asyncio.Transport, number: int) -> None:
        """A new connection whose number is not ours to keep: the program has closed that stream."""
        is_local = accepted.get_extra_info("socket").family == socket.AF_UNIX
        moved = socket.socket(fileno=file_descriptors.duplicate(number))
        accepted.abort()  # nothing was read from it
        if _uvloop_error is None:
            self._loop.call_soon(os.close, number)  # after the abort; uvloop itself never closes 0 to 2
        new_peer = self._new_local_peer if is_local else self._new_peer
        task = self._loop.create_task(self._loop.connect_accepted_socket(new_peer, moved))
        self._moving.add(task)  # the loop itself keeps no task
        task.add_done_callback(self._moving.discard)

    async def _shut_down(self, acceptors: list[asyncio.AbstractServer]) -> None:
        for acceptor in acceptors:
            acceptor.close()
        peers, self.peers = self.peers, {}  # nobody is left to be told, and the aborts are no events for the state
        for peer in peers.values():
            peer.transport.abort()
        for ending in list(self.lingering):
            ending.abort()
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
                if len(data) > LARGE_BYTES:
                    self._unread.add(len(data), effect.connections)
                    self._limit_unread()
            elif type(effect) is Close:
                self._close(effect)

    def _limit_unread(self) -> None:
        """Whoever asks for much and does not read it holds memory; of those who do, the slowest go."""
        while (held_bytes := self._unread.held_bytes(self._unread_bytes)) > MAX_UNREAD_BYTES:
            slowest = self._unread.slowest(self._unread_bytes, self.state.is_of_member)
            _log.warning(
                "store: answers of %d bytes are unread, allowed are %d; connection %d is dropped, which has %d of them",
                held_bytes, MAX_UNREAD_BYTES, slowest, self._unread_bytes(slowest),
            )  # fmt: skip
            self._unread.forget(slowest)
            self.peers[slowest].transport.abort()

    def _unread_bytes(self, number: ConnectionId) -> int:
        peer = self.peers.get(number)
        return 0 if peer is None else peer.transport.get_write_buffer_size()

    def after_events(self) -> None:
        """Pushes wait for the end of this turn of the loop: what comes in together goes out together."""
        if self.tables.watches.pending:
            self._schedule_push(self.state.next_push)
        if self.tables.next_deadline.at < self.tick_at:
            self._arm(self.tables.next_deadline.at)

    def _schedule_push(self, at: float) -> None:
        if at >= self._push_at:
            return
        if self._push_timer is not None:
            self._push_timer.cancel()
        delay_s = at - clock.now()
        self._push_at = at
        self._push_timer = (
            self._loop.call_later(delay_s, self._push) if delay_s > 0 else self._loop.call_soon(self._push)
        )

    def _push(self) -> None:
        self._push_at, self._push_timer = NEVER, None
        for effect in self.state.changes(clock.now()):
            if type(effect) is Send:
                self._drop_slow(effect.connections)
            self.carry_out((effect,))
        self.after_events()

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
        if effect.not_admitted:
            self._report(peer, effect.reason)
        else:
            _log.info("store: connection %d is closed: %s", effect.connection, effect.reason)
        peer.transport.close()  # sends what is buffered first
        if peer.transport.get_write_buffer_size():
            self._loop.call_later(CLOSE_GRACE_S, peer.transport.abort)

    def _report(self, peer: Peer, reason: str) -> None:
        """Somebody whom the store does not admit; those who try again and again do not fill the log."""
        left_out = self._refusals.admit("refusals")
        if left_out is not None:
            more = f" ({left_out} more since the last line)" if left_out else ""
            _log.warning("store %s: somebody at %s is not admitted: %s%s", self.url, peer.name, reason, more)

    def _tick(self) -> None:
        for leaving in self._incomplete.late(clock.now()):
            self._expel(leaving)
        self.carry_out(self.state.tick(clock.now()))
        self._arm(clock.now() + TICK_S)
        self.after_events()

    def _arm(self, at: float) -> None:
        """The next tick; sooner than TICK_S when something that waits ends sooner."""
        if self._timer is not None:
            self._timer.cancel()
        self.tick_at = at
        self._timer = self._loop.call_later(max(0.0, at - clock.now()), self._tick)


def _gate(protection: Protection) -> Gate:
    local_key = secrets.token_bytes(LOCAL_KEY_BYTES) if protection.is_on else b""
    return Gate(protection.token, local_key, lambda: secrets.token_bytes(NONCE_BYTES))


def _log_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Through our log, which never raises into the loop; asyncio's own does when standard error is closed."""
    _log.error("store: %s", context.get("message"), exc_info=context.get("exception"))


def _new_loop() -> asyncio.AbstractEventLoop:
    if _uvloop_error is not None:
        _log.warning("store: uvloop cannot be imported (%s); the plain asyncio loop serves, more slowly", _uvloop_error)
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
