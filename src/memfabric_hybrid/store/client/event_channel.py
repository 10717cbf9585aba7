"""The event channel of a client: the connection that keeps its session alive, and the thread that reads its pushes.

The thread opens the channel, hands over (tells the store what this participant owns), and delivers pushes; it
reconnects until the client closes. After the hand-over only the native heartbeat writes on the socket; it needs no GIL,
so a long C call in this process is not taken for death. Every hand-over has a number, the generation: what a caller did
under an older one may have missed the hand-over and must be repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from memfabric_hybrid import _native, clock, logs
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import FabricError, NotConnected, NotStarted
from memfabric_hybrid.machine import callbacks
from memfabric_hybrid.machine.service_thread import ServiceThread
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.client.beat_supply import LOOK_S, BeatSupply, FedHeartbeat
from memfabric_hybrid.store.client.connection import FOREVER, AnswerLate, Connection, ConnectionLost
from memfabric_hybrid.store.client.dialer import Dialer, pauses_s
from memfabric_hybrid.store.client.session_records import SessionRecords
from memfabric_hybrid.store.client.watch_callbacks import WatchCallbacks
from memfabric_hybrid.store.interface import SessionCallback
from memfabric_hybrid.store.session_events import (
    SessionConnected,
    SessionEvent,
    SessionFailed,
    SessionLost,
    SessionRestored,
)

HANDOVER_TIMEOUT_S = 10.0  # for one attempt to connect, greet and restore
BEATS_PER_TIMEOUT = 5
QUIET_LOSS_S = 1.0  # a store that moves to another member, or ends a moment before us, is no reason to warn
NOTHING = m.Restore(0, {}, (), (), {})

_log = logs.get(__name__)


class RunningHeartbeat(FedHeartbeat, Protocol):
    def stop(self) -> None: ...


HeartbeatFactory = Callable[..., RunningHeartbeat]  # as `_native.Heartbeat`


class EventChannel:
    """The thread starts with the first `ready`. Should it ever fail, so does every later `ready`."""

    def __init__(
        self,
        dialer: Dialer,
        heartbeat_timeout_s: float,
        heartbeat_factory: HeartbeatFactory,
        on_session: SessionCallback | None,
    ) -> None:
        self.watch_callbacks = WatchCallbacks()
        self.records = SessionRecords()
        self._dialer = dialer
        self._interval_ms = max(1, int(heartbeat_timeout_s * 1000 / BEATS_PER_TIMEOUT))
        self._heartbeat_factory = heartbeat_factory
        self._on_session = on_session
        self._changed = threading.Condition()  # guards everything below, and changes of the records
        self._thread: ServiceThread | None = None
        self._connection: Connection | None = None
        self._heartbeat: RunningHeartbeat | None = None  # kept nowhere else: letting go of it closes its descriptors
        self._beats: BeatSupply | None = None  # of a TLS connection
        self._generation = 0
        self._is_ready = False
        self._was_ready = False
        self._retired = False
        self._known_revision = 0
        self._attempts = 0  # since the store was there last, the one under way included
        self._last_error = ""  # as text: an exception would keep frames alive
        self._lost_at: float | None = None  # until the loss was reported
        self._refusal: FabricError | None = None  # why further attempts are of no use to who waits; without frames
        self._failure: str | None = None  # why the thread is not there any more

    # --- called by the threads of the program -----------------------------------------------------------------------

    def ready(self, deadline: Deadline) -> int:
        """Waits until the store knows our session; the generation. TimedOut names the store and the last error."""
        with self._changed:
            if self._thread is None and not self._dialer.closing.is_set():
                thread = ServiceThread(f"events of {self._dialer.url}", self._run, self._fail)
                thread.start()
                self._thread = thread
            self._changed.wait_for(
                lambda: self._is_ready or self._failure or self._refusal or self._dialer.closing.is_set(),
                deadline.remaining_s(),
            )
            self.check_serving()
            if self._refusal is not None and not self._is_ready:
                refusal, self._refusal = self._refusal, None  # whoever comes next waits for the next attempt
                raise refusal
            if not self._is_ready:
                raise self._dialer.unreachable(deadline, self._attempts, self._last_error)
            return self._generation

    def check_serving(self) -> None:
        """NotStarted or NotConnected once no push will come any more."""
        if self._dialer.closing.is_set():
            raise NotStarted(f"the client of store {self._dialer.url} is closed")
        if self._failure is not None:
            raise NotConnected(f"store {self._dialer.url}: {self._failure}; uninitialise and initialise again")

    def record(self, generation: int, request: m.Request, reply: m.ServerMessage) -> bool:
        """Remember what was done. False: a hand-over came between that may have missed it; do it again."""
        with self._changed:
            if generation != self._generation:
                return False
            self.records.record(request, reply)
            return True

    def give_back(self, request: m.Request) -> bool:
        """If the request releases something of ours: do not restore it any more, even if the store cannot be told."""
        with self._changed:
            return self.records.give_back(request)

    @property
    def is_ready(self) -> bool:
        return self._is_ready

    def renew(self, generation: int | None = None) -> None:
        """Reconnect; with a generation only if that is still the present one."""
        with self._changed:
            if self._connection is not None and generation in (None, self._generation):
                self._is_ready = False
                self._connection.abort()

    def follow(self) -> None:
        """The dialer points elsewhere: reconnect there, unless the thread has done so by itself."""
        with self._changed:
            if self._connection is not None and self._connection.url != self._dialer.url:
                self._is_ready = False
                self._connection.abort()

    def saw_revision(self, revision: int) -> None:
        self._known_revision = max(self._known_revision, revision)

    def retire(self) -> None:
        """Do not reconnect any more: the end of the session is wanted."""
        self._retired = True

    def give_up(self) -> None:
        """The dialer is closed already: nobody waits for us any more, and the thread does not dial again."""
        self.watch_callbacks.give_up()
        with self._changed:
            self._changed.notify_all()

    def close(self, deadline: Deadline) -> None:
        """The dialer is closed already. Joins the thread, unless called by itself."""
        self.give_up()
        with self._changed:
            thread = self._thread
            if self._connection is not None:
                self._connection.abort()
        if thread is not None and not thread.join(deadline) and not thread.is_current:
            _log.warning(
                "store %s: the event thread is busy, in a callback or with finding the host; it is left behind",
                self._dialer.url,
            )

    def abandon_after_fork(self) -> None:
        """In a forked child: there is no thread here; close our copies of the socket; the heartbeat has one."""
        self._heartbeat = None
        self._changed = threading.Condition()
        self.watch_callbacks.abandon_after_fork()
        self._thread = None
        if self._connection is not None:
            self._connection.close()

    # --- on the event thread ----------------------------------------------------------------------------------------

    def _fail(self, reason: str) -> None:
        """Without the thread nobody hears of deaths: the store must not take us for a member who does."""
        connection = self._connection
        with self._changed:
            self._failure = reason
            self._retired = True
            self._changed.notify_all()
        self.watch_callbacks.give_up()
        if connection is not None:
            self._let_go(connection)
        self._report(SessionFailed(reason))

    def _run(self) -> None:
        pauses = pauses_s()
        while not self._retired and not self._dialer.closing.is_set():
            try:
                connection, event = self._hand_over()
                self._start_heartbeat(connection)
            except Exception as error:
                self._failed(error)
                self._dialer.closing.wait(next(pauses))
                continue
            pauses = pauses_s()
            self._dialer.returning = False
            self._lost_at = None
            with self._changed:
                self._is_ready = True
                self._attempts, self._last_error, self._refusal = 0, "", None
                self._changed.notify_all()
            self._report(event)
            reason = self._deliver_until_lost(connection)
            self._let_go(connection)
            if not self._retired:
                _log.info("store %s is lost: %s; reconnecting", self._dialer.url, reason)
                self._dialer.returning = True
                self._lost_at = clock.now()
                self._report(SessionLost(reason))

    def _hand_over(self) -> tuple[Connection, SessionEvent]:
        """A connection on which the store has accepted everything we own."""
        with self._changed:
            self._attempts += 1
        _native._pause_point("store.before_hand_over")
        until = clock.now() + HANDOVER_TIMEOUT_S
        connection = self._dialer.attempt(m.EVENTS, until)
        _native._pause_point("store.hand_over.greeted")
        with self._changed:
            if self._retired:
                connection.close()
                raise ConnectionLost("the client is closed")
            if connection.url != self._dialer.url:  # `follow` came before we had the connection
                connection.close()
                raise ConnectionLost(f"the store has moved to {self._dialer.url}")
            self._connection = connection
            self._generation += 1
            restore = self.records.restore_message(self._known_revision, self.watch_callbacks.prefixes())
        if not self._was_ready and restore == NOTHING:
            self._was_ready = True
            return connection, SessionConnected(connection.incarnation)
        try:
            connection.send(m.framed(restore), until)
            reply = connection.receive(until)
            if type(reply) is not m.Restored:
                raise ConnectionLost(f"the store answered Restore with {reply}")
        except (ConnectionLost, AnswerLate):
            self._let_go(connection)
            raise
        with self._changed:
            self.records.forget(reply.refused)
        self._was_ready = True
        self.saw_revision(reply.revision)
        return connection, SessionRestored(connection.incarnation, reply.refused)

    def _start_heartbeat(self, connection: Connection) -> None:
        try:
            if connection.tls is None:
                self._beats = None
                self._heartbeat = self._heartbeat_factory(connection.fd, m.HEARTBEAT_FRAME, self._interval_ms)
            else:
                self._beats = beats = BeatSupply(connection.tls, self._interval_ms)
                self._heartbeat = self._heartbeat_factory(
                    connection.fd, beats.first, self._interval_ms, beats.beat_bytes
                )
        except Exception:
            self._let_go(connection)
            raise

    def _deliver_until_lost(self, connection: Connection) -> str:
        try:
            if self._beats is None:
                connection.wait_as_long_as_it_takes()
            while True:
                push = connection.receive(FOREVER) if self._beats is None else self._receive_and_refill(connection)
                if not isinstance(push, (m.WatchSnapshot, m.Changed)):
                    return f"the store sent {type(push).__name__} on the event channel"
                self.saw_revision(push.revision)
                self.watch_callbacks.deliver(push, connection.incarnation)
        except ConnectionLost as lost:
            return str(lost)

    def _receive_and_refill(self, connection: Connection) -> m.ServerMessage:
        while True:
            if self._beats is not None and self._heartbeat is not None:
                self._beats.refill(self._heartbeat)
            try:
                return connection.receive(clock.now() + LOOK_S)
            except AnswerLate:  # no push for a while, which is as it should be
                continue

    def _failed(self, error: Exception) -> None:
        self._dialer.lost()
        if self._lost_at is not None and clock.now() - self._lost_at > QUIET_LOSS_S:
            self._lost_at = None
            _log.warning(
                "store %s is lost for %g s (%s); copies go on, control calls wait until it is back",
                self._dialer.url,
                QUIET_LOSS_S,
                error,
            )
        with self._changed:
            self._last_error = str(error)
            if not self._was_ready:
                self._refusal = self._dialer.refusal(error)
                self._changed.notify_all()

    def _let_go(self, connection: Connection) -> None:
        with self._changed:
            self._is_ready = False
            self._connection = None
        self._dialer.lost()
        heartbeat, self._heartbeat = self._heartbeat, None
        if heartbeat is not None:
            heartbeat.stop()
        connection.close()

    def _report(self, event: SessionEvent) -> None:
        if self._on_session is not None:
            callbacks.run(f"the session callback for {event}", self._on_session, event)
