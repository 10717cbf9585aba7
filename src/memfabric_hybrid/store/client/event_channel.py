"""The event channel of a client: the connection that keeps its session alive, and the thread that reads its pushes.

The thread opens the channel, hands over (tells the store what this participant owns), and delivers pushes; it
reconnects until the client closes. After the hand-over only the native heartbeat writes on the socket; it needs no GIL,
so a long C call in this process is not taken for death. What callers have to know of it is its `state`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from memfabric_hybrid import _native, clock, logs
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.machine import callbacks
from memfabric_hybrid.machine.service_thread import ServiceThread
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.client.beat_supply import LOOK_S, BeatSupply, FedHeartbeat
from memfabric_hybrid.store.client.connection import AnswerLate, Connection, ConnectionLost
from memfabric_hybrid.store.client.dialer import Dialer, pauses_s
from memfabric_hybrid.store.client.left_behind import LeftBehind
from memfabric_hybrid.store.client.loss_log import LossLog
from memfabric_hybrid.store.client.session_state import SessionState
from memfabric_hybrid.store.client.watch_callbacks import WatchCallbacks
from memfabric_hybrid.store.interface import SessionCallback
from memfabric_hybrid.store.session_events import (
    SessionConnected,
    SessionEvent,
    SessionFailed,
    SessionLost,
    SessionRestored,
)

HANDOVER_TIMEOUT_S = 10.0  # for one attempt to connect, greet and restore; an etcd has as long
BEATS_PER_TIMEOUT = 5
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
        self.state = SessionState(dialer)
        self._dialer = dialer
        self._interval_ms = max(1, int(heartbeat_timeout_s * 1000 / BEATS_PER_TIMEOUT))
        self._heartbeat_factory = heartbeat_factory
        self._on_session = on_session
        self._losses = LossLog(_log)
        self._left_behind = LeftBehind(heartbeat_timeout_s)
        # Guarded by the state's lock:
        self._thread: ServiceThread | None = None
        self._connection: Connection | None = None
        self._heartbeat: RunningHeartbeat | None = None  # kept nowhere else: letting go of it closes its descriptors
        self._beats: BeatSupply | None = None  # of a TLS connection
        self._known_revision = 0
        self._oldest = 0  # the number of the first connection on which all that is ours can be told

    # --- called by the threads of the program -----------------------------------------------------------------------

    def ready(self, deadline: Deadline) -> int:
        """Waits until the store knows our session; the generation. TimedOut names the store and the last error."""
        return self.state.wait(deadline, self._start)

    def _start(self) -> None:
        if self._thread is None:
            thread = ServiceThread(f"events of {self._dialer.url}", self._run, self._fail)
            thread.start()
            self._thread = thread

    def renew(self, generation: int | None = None) -> None:
        """Reconnect; with a generation only if that is still the present one."""
        with self.state.changed:
            if self._connection is not None and generation in (None, self.state.generation):
                self.state.is_ready = False
                self._connection.abort()

    def hand_over_again(self) -> None:
        """The store may think otherwise of what is ours: it is told again, on a connection that is opened from now on.

        The one in use stays open until then: the store takes who closes its channel for gone. For the same reason a
        hand-over under way goes on, and another one follows it.
        """
        with self.state.changed:
            self._oldest = self._dialer.new_number()
            if self._connection is not None and self.state.is_ready:
                self.state.is_ready = False
                self._connection.fall_silent()

    def follow(self) -> None:
        """The dialer points elsewhere: connect there, unless the thread has done so by itself."""
        with self.state.changed:
            if self._connection is not None and self._connection.url != self._dialer.url:
                self.state.is_ready = False
                self._connection.fall_silent()

    def saw_revision(self, revision: int) -> None:
        self._known_revision = max(self._known_revision, revision)

    def retire(self) -> None:
        """Do not reconnect any more: the end of the session is wanted."""
        self.state.retired = True

    def give_up(self) -> None:
        """The dialer is closed already: nobody waits for us any more, and the thread does not dial again."""
        self.watch_callbacks.give_up()
        self.state.wake()

    def close(self, deadline: Deadline) -> None:
        """The dialer is closed already. Joins the thread, unless called by itself."""
        self.give_up()
        with self.state.changed:
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
        self.state.abandon_after_fork()
        self.watch_callbacks.abandon_after_fork()
        self._thread = None
        if self._connection is not None:
            self._connection.close()
        self._left_behind.close()

    # --- on the event thread ----------------------------------------------------------------------------------------

    def _fail(self, reason: str) -> None:
        """Without the thread nobody hears of deaths: the store must not take us for a member who does."""
        connection = self._connection
        self.state.failed(reason)
        self.watch_callbacks.give_up()
        if connection is not None:
            self._let_go(connection)
        self._report(SessionFailed(reason))

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            self._left_behind.close()

    def _serve(self) -> None:
        pauses = pauses_s()
        while not self.state.retired and not self._dialer.closing.is_set():
            self._left_behind.close_if_due()
            try:
                connection, event = self._hand_over()
                self._start_heartbeat(connection)
            except Exception as error:
                self._failed(error)
                self._dialer.closing.wait(next(pauses))
                continue
            pauses = pauses_s()
            self._dialer.returning = False
            self._left_behind.replaced_at(connection.url)
            _native._pause_point("store.hand_over.accepted")
            self._report(event)  # whoever waits for the store knows what it has lost there before it goes on
            self._losses.back(connection.url, self._is_served(connection, event))
            reason = self._deliver_until_lost(connection)
            moved = connection.url != self._dialer.url
            if connection.is_silent and not moved:
                reason = "what this process owns there has to be told again"
            self._let_go(connection, keep=moved or connection.is_silent)
            if not self.state.retired:
                self._losses.lost(connection.url, reason)
                self._dialer.returning = True
                self._report(SessionLost(reason))

    def _hand_over(self) -> tuple[Connection, SessionEvent]:
        """A connection on which the store has accepted everything we own."""
        self.state.attempt()
        _native._pause_point("store.before_hand_over")
        until = clock.now() + HANDOVER_TIMEOUT_S
        connection = self._dialer.attempt(m.EVENTS, until)
        _native._pause_point("store.hand_over.greeted")
        state = self.state
        with state.changed:
            if state.retired:
                connection.close()
                raise ConnectionLost("the client is closed")
            if connection.url != self._dialer.url:  # `follow` came before we had the connection
                connection.close()
                raise ConnectionLost(f"the store has moved to {self._dialer.url}")
            self._connection = connection
            restore = state.hand_over(self._known_revision, self.watch_callbacks.prefixes())
        if not state.was_ready and restore == NOTHING:
            state.was_ready = True
            return connection, SessionConnected(connection.incarnation)
        try:
            connection.send(m.framed(restore), until)
            reply = connection.receive(until)
            while isinstance(reply, (m.WatchSnapshot, m.Changed)):  # for the channel before; there will be snapshots
                reply = connection.receive(until)
            if type(reply) is not m.Restored:
                raise ConnectionLost(f"the store answered Restore with {reply}")
        except (ConnectionLost, AnswerLate):
            self._let_go(connection)
            raise
        state.was_ready = True
        self.saw_revision(reply.revision)
        return connection, SessionRestored(connection.incarnation, reply.refused)

    def _is_served(self, connection: Connection, event: SessionEvent) -> str:
        with self.state.changed:
            owned = self.state.is_served(event)
            if connection.number < self._oldest:  # something was given up while we handed over
                self.state.is_ready = False
                connection.fall_silent()
            return owned

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
                push = self._receive(connection)
                if not isinstance(push, (m.WatchSnapshot, m.Changed)):
                    return f"the store sent {type(push).__name__} on the event channel"
                self.saw_revision(push.revision)
                self.watch_callbacks.deliver(push, connection.incarnation)
        except ConnectionLost as lost:
            return str(lost)

    def _receive(self, connection: Connection) -> m.ServerMessage:
        """The next push, whenever it comes, and what has to be done meanwhile."""
        while True:
            until = self._left_behind.until
            if self._beats is not None and self._heartbeat is not None:
                self._beats.refill(self._heartbeat)
                until = min(until, clock.now() + LOOK_S)
            try:
                return connection.receive(until)
            except AnswerLate:  # no push for a while, which is as it should be
                self._left_behind.close_if_due()

    def _failed(self, error: Exception) -> None:
        self._dialer.lost()
        self._losses.still_lost(self._dialer.url, error)
        self.state.attempt_failed(error, self._dialer.refusal(error))

    def _let_go(self, connection: Connection, *, keep: bool = False) -> None:
        with self.state.changed:
            self.state.is_ready = False
            self._connection = None
        self._dialer.lost()
        heartbeat, self._heartbeat = self._heartbeat, None
        if heartbeat is not None:
            heartbeat.stop()
        if keep:
            self._left_behind.keep(connection, has_moved=connection.url != self._dialer.url)
        else:
            connection.close()

    def _report(self, event: SessionEvent) -> None:
        if self._on_session is not None:
            callbacks.run(f"the session callback for {event}", self._on_session, event)
