"""The store without sockets: several participants of one process on one state machine. The twin of server and client.

For tests and for programs that are their own cluster. Same `StoreState`, same messages, same refusals; time-outs come
from whoever waits, and nobody dies of silence: a participant ends by `close()` or, for tests of crashes, `vanish()`.
"""

from __future__ import annotations

import itertools
import queue
import secrets
import threading

from memfabric_hybrid import clock, logs
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import NotStarted, TimedOut, failure_of
from memfabric_hybrid.service_thread import ServiceThread
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.client.watch_callbacks import WatchCallbacks, WatchRegistration
from memfabric_hybrid.store.interface import OtherIncarnation, Watch, WatchCallback
from memfabric_hybrid.store.limits import MAX_TIMEOUT_S, SESSION_ID_BYTES, check_prefix
from memfabric_hybrid.store.participant import Participant
from memfabric_hybrid.store.state.effects import ConnectionId, Effect, Send
from memfabric_hybrid.store.state.machine import StoreState

JOIN_S = 1.0
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
        for effect in [*effects, *self.state.changes()]:
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

    def __init__(self, server: InProcessServer) -> None:
        super().__init__()
        self._server = server
        self._session = secrets.token_bytes(SESSION_ID_BYTES)
        self._watch_callbacks = WatchCallbacks()
        self._lock = threading.Lock()
        self._closed = False
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
        except BaseException:
            self._watch_callbacks.remove(number)
            raise
        return _InProcessWatch(self, number)

    def end_watch(self, number: int) -> None:
        self._watch_callbacks.remove(number)
        if not self._closed:
            self._ask(m.EndWatch(number), Deadline(0))

    def close(self) -> None:
        if not self._closed:
            self._ask(m.Goodbye(), Deadline(0))
        self.vanish()

    def vanish(self) -> None:
        """End without a goodbye, as a killed process does."""
        with self._lock:
            self._closed = True
            connections = [*self._asking, *([self._channel] if self._channel is not None else [])]
            thread = self._thread
        for connection in connections:
            self._server.disconnect(connection)
        if thread is not None and not thread.join(Deadline(JOIN_S)) and not thread.is_current:
            _log.warning("in-process store: the event thread is busy in a callback; it is left behind")

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

    def _connect(self, inbox: Inbox) -> ConnectionId:
        """For one call; the event channel is opened before the first."""
        with self._lock:
            if self._closed:
                raise NotStarted("this participant of the in-process store is closed")
            if self._channel is None:
                events: Inbox = queue.SimpleQueue()
                self._channel = self._server.connect(events, m.Hello(self._session, m.EVENTS, MAX_TIMEOUT_S))
                self._thread = ServiceThread(
                    "events in process", lambda: self._deliver(events), lambda reason: self.vanish()
                )
                self._thread.start()
            connection = self._server.connect(inbox, m.Hello(self._session, m.REQUESTS, MAX_TIMEOUT_S))
            self._asking.add(connection)
            return connection

    def _deliver(self, inbox: Inbox) -> None:
        while (message := inbox.get()) is not None:
            if isinstance(message, (m.WatchSnapshot, m.Changed)):
                self._watch_callbacks.deliver(message, self._server.state.incarnation)


class _InProcessWatch(Watch):
    def __init__(self, store: InProcessStore, number: int) -> None:
        self._store = store
        self._number = number

    def close(self) -> None:
        self._store.end_watch(self._number)
