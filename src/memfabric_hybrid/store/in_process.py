"""The store without sockets: several participants of one process on one state machine. The twin of server and client.

For tests and for programs that are their own cluster. Same `StoreState`, same messages, same refusals; time-outs come
from whoever waits, and nobody dies of silence: a participant ends by `close()` or, for tests of crashes, `vanish()`.
The store is never away, so sessions are never lost and restored; it has no address and cannot move.
"""

from __future__ import annotations

import itertools
import queue
import secrets
import threading
from contextlib import suppress

from memfabric_hybrid import clock, logs
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import InvalidParam, NotConnected, NotStarted, TimedOut, failure_of
from memfabric_hybrid.machine import callbacks
from memfabric_hybrid.machine.service_thread import THREAD_ENDS_S, ServiceThread
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.client.watch_callbacks import WatchCallbacks, WatchRegistration
from memfabric_hybrid.store.interface import FAREWELL_S, OtherIncarnation, SessionCallback, Watch, WatchCallback
from memfabric_hybrid.store.limits import MAX_TIMEOUT_S, SESSION_ID_BYTES, check_prefix
from memfabric_hybrid.store.participant import Participant
from memfabric_hybrid.store.session_events import SessionConnected, SessionEvent, SessionFailed
from memfabric_hybrid.store.state.effects import ConnectionId, Effect, Send
from memfabric_hybrid.store.state.machine import StoreState
from memfabric_hybrid.store.state.next_deadline import NEVER
from memfabric_hybrid.store.url import StoreUrl

TICK_S = 0.001  # pause between looks at the clock when a deadline has just passed

_log = logs.get(__name__)
Inbox = queue.SimpleQueue["m.ServerMessage | None"]  # None: the connection was closed


class InProcessServer:
    """One state machine behind one lock."""

    def __init__(self) -> None:
        self.state = StoreState(secrets.token_hex(8))
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._inboxes: dict[ConnectionId, Inbox] = {}

    def connect(self, inbox: Inbox, hello: m.Hello) -> ConnectionId:
        with self._lock:
            number = next(self._numbers)
            self._inboxes[number] = inbox
            self.state.connected(number, clock.now())
            self._carry_out(self.state.message(number, hello, clock.now()))
        return number

    def say(self, connection: ConnectionId, message: m.Request) -> None:
        with self._lock:
            self._carry_out(self.state.message(connection, message, clock.now()))

    def disconnect(self, connection: ConnectionId) -> None:
        with self._lock:
            self._carry_out(self.state.disconnected(connection))
            inbox = self._inboxes.pop(connection, None)
        if inbox is not None:
            inbox.put(None)

    def tick(self) -> None:
        with self._lock:
            self._carry_out(self.state.tick(clock.now()))

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in [*effects, *self.state.changes(NEVER)]:
            if type(effect) is Send:
                for connection in effect.connections:
                    inbox = self._inboxes.get(connection)
                    if inbox is not None:
                        inbox.put(effect.message)
            else:
                inbox = self._inboxes.pop(effect.connection, None)  # type: ignore[union-attr]
                if inbox is not None:
                    inbox.put(None)


class InProcessStore(Participant):
    """One participant. Its session and its event thread start with the first call."""

    def __init__(self, server: InProcessServer, *, on_session: SessionCallback | None = None) -> None:
        super().__init__()
        self._server = server
        self._on_session = on_session
        self._session = secrets.token_bytes(SESSION_ID_BYTES)
        self._watch_callbacks = WatchCallbacks()
        self._lock = threading.Lock()
        self._closed = False
        self._failure: str | None = None  # why the event thread is not there any more
        self._farewell: Deadline | None = None
        self._asking: set[ConnectionId] = set()  # connections of calls under way
        self._channel: ConnectionId | None = None
        self._thread: ServiceThread | None = None

    def watch(self, prefix: str, callback: WatchCallback, *, deadline: Deadline) -> Watch:
        check_prefix(prefix)
        number = next(self._numbers)
        registration = WatchRegistration(prefix, callback)
        self._watch_callbacks.add(number, registration)
        try:
            self._ask(m.StartWatch(number, prefix), deadline)
            if not registration.has_snapshot.wait(deadline.remaining_s()):
                raise TimedOut(f"no snapshot of prefix {prefix!r} within {deadline.timeout_s:g} s")
            if registration.given_up:
                self._check_serving()
        except BaseException:
            self._watch_callbacks.remove(number)
            raise
        return _InProcessWatch(self, number)

    def end_watch(self, number: int) -> None:
        self._watch_callbacks.remove(number)
        with suppress(NotStarted, NotConnected):
            self._ask(m.EndWatch(number), Deadline(0))

    def peer_name(self, *, deadline: Deadline) -> str:
        """After its incarnation: it has only one."""
        self._check_serving()
        return f"in-process/{self._server.state.incarnation}"

    def update_url(self, url: StoreUrl) -> None:
        raise InvalidParam(f"store URL {url}: a store inside this process has no address and cannot move")

    def give_up(self) -> None:
        with self._lock:
            self._closed = True
            asking = list(self._asking)
        for connection in asking:
            self._server.disconnect(connection)
        self._watch_callbacks.give_up()

    def hurry(self, farewell: Deadline) -> None:
        self._farewell = farewell

    def close(self) -> None:
        if self._channel is not None:
            with suppress(NotStarted, NotConnected):
                self._ask(m.Goodbye(), Deadline(0))
        self.vanish()

    def vanish(self) -> None:
        """End without a goodbye, as a killed process does."""
        self.give_up()
        with self._lock:
            channel, thread = self._channel, self._thread
        if channel is not None:
            self._server.disconnect(channel)
        farewell_s = FAREWELL_S if self._farewell is None else max(THREAD_ENDS_S, self._farewell.remaining_s())
        if thread is not None and not thread.join(Deadline(farewell_s)) and not thread.is_current:
            _log.warning("in-process store: the event thread is busy in a callback; it is left behind")

    def abandon_after_fork(self) -> None:
        """The server here is a copy that nobody may use: its lock may be held by a thread of the parent."""
        self._lock = threading.Lock()
        self._closed = True
        self._channel = self._thread = None
        self._asking.clear()
        self._watch_callbacks.abandon_after_fork()

    def _ask(self, request: m.Request, deadline: Deadline, incarnation: str | None = None) -> m.ServerMessage:
        if incarnation not in (None, self._server.state.incarnation):
            raise OtherIncarnation(f"this store is {self._server.state.incarnation}, not {incarnation}")
        inbox: Inbox = queue.SimpleQueue()
        connection = self._connect(inbox)
        try:
            self._receive(inbox, deadline)  # the welcome
            if isinstance(request, (m.Wait, m.Gather)):
                request.timeout_s = deadline.remaining_s()
            self._server.say(connection, request)
            reply = self._receive(inbox, deadline)
        finally:
            self._server.disconnect(connection)
            self._asking.discard(connection)
        if type(reply) is m.Refused:
            raise failure_of(reply.code, reply.sentence)
        return reply

    def _receive(self, inbox: Inbox, deadline: Deadline) -> m.ServerMessage:
        """The state machine answers everything: what waits, not later than its deadline, when it is ticked."""
        while True:
            try:
                message = inbox.get(timeout=max(TICK_S, deadline.remaining_s()))
            except queue.Empty:
                self._server.tick()
                continue
            if message is None:
                raise NotStarted("this participant of the in-process store is closed")
            return message

    def _check_serving(self) -> None:
        """NotStarted or NotConnected once no push will come any more."""
        if self._closed:
            raise NotStarted("this participant of the in-process store is closed")
        if self._failure is not None:
            raise NotConnected(f"in-process store: {self._failure}; close this participant and make another")

    def _connect(self, inbox: Inbox) -> ConnectionId:
        """For one call; the event channel is opened before the first."""
        with self._lock:
            self._check_serving()
            if self._channel is None:
                events: Inbox = queue.SimpleQueue()
                self._channel = self._server.connect(events, m.Hello(self._session, m.EVENTS, MAX_TIMEOUT_S))
                self._thread = ServiceThread("events in process", lambda: self._deliver(events), self._fail)
                self._thread.start()
            connection = self._server.connect(inbox, m.Hello(self._session, m.REQUESTS, MAX_TIMEOUT_S))
            self._asking.add(connection)
            return connection

    def _deliver(self, inbox: Inbox) -> None:
        self._report(SessionConnected(self._server.state.incarnation))
        while (message := inbox.get()) is not None:
            if isinstance(message, (m.WatchSnapshot, m.Changed)):
                self._watch_callbacks.deliver(message, self._server.state.incarnation)

    def _fail(self, reason: str) -> None:
        """Without the thread nobody hears of deaths: the store must not take us for a participant who does."""
        with self._lock:
            self._failure = reason
            channel = self._channel
        if channel is not None:
            self._server.disconnect(channel)
        self._watch_callbacks.give_up()
        self._report(SessionFailed(reason))

    def _report(self, event: SessionEvent) -> None:
        if self._on_session is not None:
            callbacks.run(f"the session callback for {event}", self._on_session, event)


class _InProcessWatch(Watch):
    def __init__(self, store: InProcessStore, number: int) -> None:
        self._store = store
        self._number = number

    def close(self) -> None:
        self._store.end_watch(self._number)
