"""The session of a participant: its lease, the thread that follows etcd's events, and what it does when etcd is lost.

The thread opens the channel, hands over (takes the lease and writes what this participant owns, if etcd may lack it),
and delivers events; it goes on with the next endpoint, or with the same one when that is back, until the participant
closes. What callers have to know of it is its `state`. An endpoint that is lost while another one serves is no event
for the program: the lease lives on, and the events continue where they stopped.
"""

from __future__ import annotations

import os

from memfabric_hybrid import _native, clock, logs
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import FabricError, Misuse, NotConnected, failure_of
from memfabric_hybrid.machine import callbacks, file_descriptors
from memfabric_hybrid.machine.service_thread import ServiceThread
from memfabric_hybrid.store.client.connection import AnswerLate, ConnectionLost
from memfabric_hybrid.store.client.dialer import pauses_s
from memfabric_hybrid.store.client.event_channel import HANDOVER_TIMEOUT_S, HeartbeatFactory
from memfabric_hybrid.store.client.loss_log import LossLog
from memfabric_hybrid.store.client.session_state import SessionState
from memfabric_hybrid.store.client.watch_callbacks import WatchCallbacks
from memfabric_hybrid.store.etcd import incarnation, lease
from memfabric_hybrid.store.etcd.channel import Channel
from memfabric_hybrid.store.etcd.delivery import Delivery
from memfabric_hybrid.store.etcd.feed import Feed
from memfabric_hybrid.store.etcd.gateway.complaints import Compacted
from memfabric_hybrid.store.etcd.restoring import restore
from memfabric_hybrid.store.etcd.scope import Scope
from memfabric_hybrid.store.interface import SessionCallback
from memfabric_hybrid.store.session_events import (
    SessionConnected,
    SessionEvent,
    SessionFailed,
    SessionLost,
    SessionRestored,
)

FAIL_OVER_S = 2.0  # in which other endpoints take over, after an election if need be, and nobody is told

_log = logs.get(__name__)


class Session:
    """The thread starts with the first `ready`. Should it ever fail, so does every later `ready`."""

    def __init__(
        self,
        scope: Scope,
        heartbeat_timeout_s: float,
        heartbeat_factory: HeartbeatFactory,
        on_session: SessionCallback | None,
    ) -> None:
        self.watch_callbacks = WatchCallbacks()
        self.state = SessionState(scope.gateway.endpoints)
        self.feed = Feed(self.state.check_serving)
        self._delivery = Delivery(scope, self.watch_callbacks, self.feed)  # the event thread's
        self._scope = scope
        self._endpoints = scope.gateway.endpoints
        self._timeout_s = heartbeat_timeout_s
        self._heartbeat_factory = heartbeat_factory
        self._on_session = on_session
        self._losses = LossLog(_log)
        # Guarded by the state's lock:
        self._thread: ServiceThread | None = None
        self._wake_fd = -1  # an eventfd: the thread has something to do, or has to end
        self._channel: Channel | None = None
        self._new_watches: list[int] = []  # that want their first snapshot
        self._has_gap = False  # etcd cannot tell the events that follow
        self._lost_at = 0.0  # the channel, last
        self._is_lost = False  # and the program knows

    # --- called by the threads of the program -----------------------------------------------------------------------

    def ready(self, deadline: Deadline) -> int:
        """Waits until etcd has our lease and all that is ours; the generation. TimedOut names the last error."""
        return self.state.wait(deadline, self._start)

    def _start(self) -> None:
        if self._thread is not None:
            return
        wake_fd = file_descriptors.own(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        thread = ServiceThread(f"events of {self._endpoints.url}", self._run, self._fail)
        self._wake_fd = wake_fd  # the thread's from its start on
        try:
            thread.start()
        except BaseException:
            self._wake_fd = -1
            os.close(wake_fd)
            raise
        self._thread = thread

    def start_watch(self, number: int) -> None:
        """The thread brings the first snapshot."""
        with self.state.changed:
            self._new_watches.append(number)
        self._wake()

    def renew(self, generation: int | None = None) -> None:
        """Hand over again; with a generation only if that is still the present one."""
        with self.state.changed:
            if generation in (None, self.state.generation):
                self.state.is_ready = False
                if self._channel is not None:
                    self._channel.abort()
        self._wake()

    @property
    def has_begun(self) -> bool:
        return self.state.generation > 0

    def retire(self) -> None:
        """Do not reconnect any more: the end of the session is wanted."""
        self.state.retired = True

    def give_up(self) -> None:
        """The endpoints are closed already: nobody waits for us any more, and the thread does not connect again."""
        self.watch_callbacks.give_up()
        self.feed.wake()
        self.state.wake()
        self._wake()

    def close(self, deadline: Deadline) -> None:
        """The endpoints are closed already. Joins the thread, unless called by itself."""
        self.give_up()
        with self.state.changed:
            thread = self._thread
            if self._channel is not None:
                self._channel.abort()
        if thread is not None and not thread.join(deadline) and not thread.is_current:
            _log.warning(
                "store %s: the event thread is busy, in a callback or with finding the host; it is left behind",
                self._endpoints.url,
            )

    def abandon_after_fork(self) -> None:
        """In a forked child: there is no thread here; close our copies of the sockets."""
        self.state.abandon_after_fork()
        self.watch_callbacks.abandon_after_fork()
        self.feed.abandon_after_fork()
        self._thread = None
        if self._wake_fd >= 0:
            os.close(self._wake_fd)
            self._wake_fd = -1
        if self._channel is not None:
            self._channel.abandon_after_fork()
            self._channel = None

    def _wake(self) -> None:
        with self.state.changed:
            if self._wake_fd >= 0:
                os.eventfd_write(self._wake_fd, 1)

    # --- on the event thread ----------------------------------------------------------------------------------------

    def _fail(self, reason: str) -> None:
        """Without the thread nobody hears of deaths: others must not take us for a member who does."""
        self.state.failed(reason)
        self.watch_callbacks.give_up()
        self.feed.wake()
        self._let_go()
        try:
            lease.revoke(self._scope, clock.now() + HANDOVER_TIMEOUT_S)
        except (ConnectionLost, AnswerLate, FabricError) as error:
            _log.warning("store %s: our lease ends by itself: %s", self._endpoints.url, error)
        self._report(SessionFailed(reason))

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            with self.state.changed:
                os.close(self._wake_fd)
                self._wake_fd = -1

    def _serve(self) -> None:
        pauses, reason = pauses_s(), ""
        while not self.state.retired and not self._endpoints.closing.is_set():
            try:
                event = self._hand_over()
            except Exception as error:
                self._let_go()
                self._failed(error, reason)
                self._endpoints.closing.wait(next(pauses))
                continue
            pauses = pauses_s()
            self._is_lost = False
            if event is not None:
                self._report(event)  # whoever waits for the store knows what it has lost there before it goes on
            self._losses.back(self._endpoints.url, self.state.is_served(event))
            reason = self._deliver_until_lost(event is not None)
            self._lost_at = clock.now()
            endpoint = None if self._channel is None else self._channel.endpoint
            self._let_go()
            if not self.state.retired and not self._endpoints.closing.is_set():
                _log.info("store %s: %s; connecting again", self._endpoints.url, reason)
                if endpoint is not None and len(self._endpoints.url.endpoints) > 1:
                    self._endpoints.failed(endpoint)
                    self._scope.gateway.abort_at(endpoint)

    def _hand_over(self) -> SessionEvent | None:
        """The channel is open, and etcd has all that is ours. None: it never lacked anything, and no event was missed.

        In this order: what happens after the revision that is looked at first comes as an event.
        """
        state = self.state
        state.attempt()
        with state.changed:
            self._scope.rename()
        until = clock.now() + HANDOVER_TIMEOUT_S
        life, revision = incarnation.find(self._scope, self._timeout_s, until)
        is_first = not state.was_ready
        is_kept = not is_first and lease.keep(self._scope, until)
        if not is_kept:
            lease.grant(self._scope, incarnation.ttl_s(self._timeout_s), until)
        self._has_gap |= life != self._delivery.incarnation or revision < self._delivery.revision
        self._open_channel(revision, until)
        if is_kept and not self._has_gap and not self._is_lost:
            return None
        if not is_first and not self._is_lost:
            self._tell_lost("events were missed" if is_kept else "the lease was over")
        with state.changed:
            owned = state.hand_over(0, {})
        _native._pause_point("store.before_hand_over")
        still_there = lease.keys_of(self._scope, until) if is_kept else []
        refused = restore(self._scope, owned, still_there, Deadline(HANDOVER_TIMEOUT_S))
        state.was_ready = True
        self._delivery.incarnation = life
        if self._has_gap:
            self._delivery.revision = revision
        return SessionConnected(life) if is_first else SessionRestored(life, refused)

    def _open_channel(self, revision: int, until: float) -> None:
        """The events follow those that were delivered, if etcd can tell them, or else that revision."""
        if not self._has_gap:
            try:
                self._open_channel_after(self._delivery.revision, until)
                return
            except Compacted as gone:
                _log.info("store %s: %s", self._endpoints.url, gone)
                self._has_gap = True
                self._let_go()
        self._open_channel_after(revision, until)

    def _open_channel_after(self, revision: int, until: float) -> None:
        channel = Channel(self._scope, self._timeout_s, self._heartbeat_factory)
        with self.state.changed:
            if self.state.retired:
                raise ConnectionLost("the participant is closed")
            self._channel = channel
        channel.open(revision + 1, until)

    def _deliver_until_lost(self, with_snapshots: bool) -> str:
        channel = self._channel
        assert channel is not None
        try:
            if self._has_gap:
                self._has_gap = False
                self.feed.gap(self._delivery.revision)
            if with_snapshots:
                with self.state.changed:
                    self._new_watches = list(self.watch_callbacks.prefixes())
            while self.state.is_ready and not self._endpoints.closing.is_set():
                self._start_watches()
                for seen in channel.next(self._wake_fd):
                    self._delivery.deliver(seen)
                try:
                    os.eventfd_read(self._wake_fd)
                except BlockingIOError:
                    continue
            return "it is to be asked anew"
        except Compacted as gone:
            self._has_gap = True
            return str(gone)
        except (ConnectionLost, AnswerLate, FabricError) as lost:
            return str(lost) or "no answer"

    def _start_watches(self) -> None:
        with self.state.changed:
            numbers, self._new_watches = self._new_watches, []
        for number in numbers:
            self._delivery.snapshot(number, clock.now() + HANDOVER_TIMEOUT_S)

    def _failed(self, error: Exception, reason: str) -> None:
        fails_over = len(self._endpoints.url.endpoints) > 1 and clock.now() < self._lost_at + FAIL_OVER_S
        if self.state.was_ready and not self._is_lost and not fails_over:
            self._tell_lost(f"{reason or 'lost'}; {error}")
        self._losses.still_lost(self._endpoints.url, error)
        refusal = failure_of(error.code, str(error)) if isinstance(error, (Misuse, NotConnected)) else None
        self.state.attempt_failed(error, refusal)

    def _tell_lost(self, reason: str) -> None:
        self._is_lost = True
        self._losses.lost(self._endpoints.url, reason)
        self._report(SessionLost(reason))

    def _let_go(self) -> None:
        with self.state.changed:
            self.state.is_ready = False
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _report(self, event: SessionEvent) -> None:
        if self._on_session is not None:
            callbacks.run(f"the session callback for {event}", self._on_session, event)
