"""A simulated participant of the store: the steps of `store/client` (client, event channel, dialer), as generators.

What it owns is kept by the real `SessionRecords`, its watches by the real `WatchCallbacks`; times are the real ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from memfabric_hybrid.errors import Code
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.client.client import ANSWER_GRACE_S
from memfabric_hybrid.store.client.dialer import pauses_s
from memfabric_hybrid.store.client.event_channel import HANDOVER_TIMEOUT_S, NOTHING
from memfabric_hybrid.store.client.session_records import SessionRecords
from memfabric_hybrid.store.client.watch_callbacks import WatchCallbacks
from memfabric_hybrid.store.interface import FAREWELL_S, WatchUpdate
from simulation.failed import Failed
from simulation.network import Connection, Late, Lost, exchange
from simulation.task import Signal, Steps, Task
from simulation.watching import Watching
from simulation.world import FOREVER

if TYPE_CHECKING:
    from simulation.process import Process
    from simulation.pulse import Pulse
    from simulation.server import Server


class Client:
    def __init__(self, process: Process, server: Server, pulse: Pulse) -> None:
        self.process = process
        self.world = process.world
        self.session = process.instance.to_bytes(16, "big")
        self.records = SessionRecords()
        self.watch_callbacks = WatchCallbacks()
        self.watches: dict[int, Watching] = {}
        self.is_ready = False
        self.changes_under_way = 0  # calls that concern what is ours
        self._server = server
        self._pulse = pulse
        self._numbers = itertools.count(1)
        self._changed = Signal()  # whether the session is ready, or a watch has a snapshot
        self._idle: list[Connection] = []
        self._thread: Task | None = None
        self._connection: Connection | None = None
        self._left_behind: Connection | None = None
        self._generation = 0
        self._was_ready = False
        self._is_retired = False
        self._is_returning = False
        self._known_revision = 0
        self._given_up: list[int] = []  # connections
        self._oldest = self._oldest_channel = 0  # connections that have told the store of those, and of what is ours

    def new_number(self) -> int:
        return next(self._numbers)

    # --- calls of the program ---------------------------------------------------------------------------------------

    def ask(self, request: m.Request, until: float) -> Steps[m.ServerMessage]:
        """The reply; Failed for a refusal, and when it comes too late."""
        if not self.records.concern(request):
            reply = yield from self._exchange(request, until)
            if type(reply) is not m.NoSession:
                return reply
        self.changes_under_way += 1
        try:
            return (yield from self._change(request, until))
        finally:
            self.changes_under_way -= 1

    def _change(self, request: m.Request, until: float) -> Steps[m.ServerMessage]:
        """What is the session's changes, as far as both know."""
        held = self.records.give_back(request)
        while True:
            generation = yield from self.ready(until)
            try:
                reply = yield from self._exchange(request, until)
            except Failed as failure:
                if not failure.attempts:
                    self.hand_over_again()
                if failure.code != Code.NOT_EXIST or not held:
                    raise
                reply = m.Done(0)
            if type(reply) is m.NoSession:
                self.renew(generation)
            elif generation == self._generation:
                self.records.record(request, reply)
                return reply

    def ready(self, until: float) -> Steps[int]:
        if self._thread is None:
            self._thread = self.process.start(self._follow())
        while not self.is_ready:
            if self.world.now >= until:
                raise Failed(Code.TIMEOUT, "the store could not be reached")
            yield from self._changed.wait(self.process.current, until)
        return self._generation

    def renew(self, generation: int) -> None:
        if self._connection is not None and generation == self._generation:
            self.is_ready = False
            self._connection.abort()

    def hand_over_again(self) -> None:
        """The store may think otherwise of what is ours. The session goes on meanwhile, if it does."""
        self._oldest_channel = self._server.new_number()
        if self._connection is not None and self.is_ready:
            self.is_ready = False
            self._connection.fall_silent()

    def watch(self, prefix: str, handle: Callable[[WatchUpdate], None], until: float) -> Steps[int]:
        number = self.new_number()
        watching = Watching(prefix, handle)
        yield from self.ready(until)
        self.watches[number] = watching
        self.watch_callbacks.add(number, watching.registration)
        try:
            yield from self.ask(m.StartWatch(number, prefix), until)
            while not watching.registration.has_snapshot.is_set():
                if self.world.now >= until:
                    raise Failed(Code.TIMEOUT, "no snapshot in time")
                yield from self._changed.wait(self.process.current, until)
        except Failed:
            self._forget_watch(number)
            raise
        return number

    def end_watch(self, number: int) -> Steps[None]:
        self._forget_watch(number)
        yield from self.tell(m.EndWatch(number))

    def _forget_watch(self, number: int) -> None:
        self.watch_callbacks.remove(number)
        self.watches.pop(number, None)

    def close(self) -> Steps[None]:
        self._is_retired = True
        yield from self.tell(m.Goodbye())
        self._drop_idle()
        self._drop_left_behind()
        if self._connection is not None:
            self._connection.close()

    def tell(self, request: m.Request) -> Steps[None]:
        """Say it if the store is there, and do not mind if it is not."""
        if not self.is_ready:
            return
        until = self.world.now + FAREWELL_S
        try:
            connection = self._idle.pop() if self._idle else (yield from self._attempt(m.REQUESTS, until))
        except (Lost, Late):
            return
        try:
            yield from exchange(connection, request, until)
        except (Lost, Late):
            self.world.note(self.process, "could not tell", request)
        connection.close()

    def _exchange(self, request: m.Request, until: float) -> Steps[m.ServerMessage]:
        pauses = pauses_s()
        for attempt in itertools.count(1):
            connection = yield from self._take(until)
            limit, message = until, request
            if isinstance(request, (m.Gather, m.Wait)):
                message = _with_timeout(request, max(0.0, until - self.world.now))
                limit += ANSWER_GRACE_S
            try:
                reply = yield from exchange(connection, message, limit)
            except Late:
                self._give_up(connection)
                raise Failed(Code.TIMEOUT, f"no answer to {type(request).__name__}") from None
            except Lost:
                self._give_up(connection)
            else:
                if connection.number < self._oldest:
                    connection.close()
                else:
                    self._idle.append(connection)
                if isinstance(reply, m.Refused):
                    raise Failed(reply.code, reply.sentence, attempt)
                return reply
            yield min(until, self.world.now + next(pauses))
        raise AssertionError("attempts never end")

    def _take(self, until: float) -> Steps[Connection]:
        if self._idle:
            return self._idle.pop()
        for pause_s in pauses_s():
            try:
                return (yield from self._attempt(m.REQUESTS, until))
            except (Lost, Late):
                if self.world.now >= until:
                    break
            yield min(until, self.world.now + pause_s)
            if self.world.now >= until:
                break
        raise Failed(Code.TIMEOUT, "the store could not be reached")

    def _give_up(self, connection: Connection) -> None:
        """As `ConnectionPool.give_up`."""
        connection.close()
        self._given_up.append(connection.number)
        self._oldest = self._server.new_number()
        self._drop_idle()

    def _drop_idle(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def _attempt(self, role: int, until: float) -> Steps[Connection]:
        """Connect and greet, once."""
        connection = Connection(self.process, self._server, role)
        yield from connection.open(until, self._is_returning)
        given_up = tuple(self._given_up)
        hello = m.Hello(
            self.session, role, self.process.heartbeat_timeout_s, self._is_returning,
            number=connection.number, given_up=given_up,
        )  # fmt: skip
        try:
            welcome = yield from exchange(connection, hello, until)
        except (Lost, Late):
            connection.close()
            raise
        if not isinstance(welcome, m.Welcome):
            connection.close()
            raise Lost
        self._given_up = [number for number in self._given_up if number not in given_up]
        return connection

    # --- the event thread -------------------------------------------------------------------------------------------

    def _follow(self) -> Steps[None]:
        pauses = pauses_s()
        while not self._is_retired:
            try:
                connection, refused = yield from self._hand_over()
            except (Lost, Late):
                yield self.world.now + next(pauses)
                continue
            self._pulse.add(connection)
            pauses = pauses_s()
            self._is_returning = False
            self._drop_left_behind()
            self.process.on_session(refused)
            self.records.forget(refused)
            if connection.number < self._oldest_channel:
                connection.fall_silent()
            else:
                self.is_ready = True
                self._changed.notify()
            try:
                while True:
                    self._take_push(connection, (yield from connection.receive(FOREVER)))
            except Lost:
                self._let_go(connection)
            if not self._is_retired:
                self._is_returning = True
                self.process.on_session_lost()

    def _hand_over(self) -> Steps[tuple[Connection, tuple[m.Refusal, ...]]]:
        until = self.world.now + HANDOVER_TIMEOUT_S
        connection = yield from self._attempt(m.EVENTS, until)
        if self._is_retired:
            connection.close()
            raise Lost
        self._connection = connection
        self._generation += 1
        restore = self.records.restore_message(self._known_revision, self.watch_callbacks.prefixes())
        if not self._was_ready and restore == NOTHING:
            self._was_ready = True
            return connection, ()
        try:
            reply = yield from exchange(connection, restore, until)
            while isinstance(reply, (m.WatchSnapshot, m.Changed)):
                reply = yield from connection.receive(until)
            if not isinstance(reply, m.Restored):
                raise Lost
        except (Lost, Late):
            self._let_go(connection)
            raise Lost from None
        if reply.revision <= restore.known_revision:
            self.world.fail(f"{self.process} had seen revision {restore.known_revision}, and is told {reply.revision}")
        self._was_ready = True
        self._known_revision = max(self._known_revision, reply.revision)
        return connection, reply.refused

    def _drop_left_behind(self) -> None:
        """As `LeftBehind`: the store has another channel."""
        if self._left_behind is not None:
            self._left_behind.close()
            self._left_behind = None

    def _let_go(self, connection: Connection) -> None:
        self.is_ready = False
        self._connection = None
        if connection.is_silent:
            self._drop_left_behind()
            self._left_behind = connection
        else:
            connection.close()

    def _take_push(self, connection: Connection, push: m.ServerMessage) -> None:
        if not isinstance(push, (m.WatchSnapshot, m.Changed)):
            self.world.fail(f"{self.process}: the store sent {push} on the event channel")
        self._known_revision = max(self._known_revision, push.revision)
        self.watch_callbacks.deliver(push, connection.incarnation)
        if type(push) is m.WatchSnapshot:
            self._changed.notify()
        for watching in list(self.watches.values()):
            while watching.updates:
                update = watching.updates.popleft()
                seen = (int(update.incarnation.split()[1]), update.revision)
                if seen < watching.seen:
                    self.world.fail(f"{self.process} sees {seen} of the store after {watching.seen}: {update}")
                watching.seen = seen
                watching.handle(update)


def _with_timeout(request: m.Gather | m.Wait, timeout_s: float) -> m.Request:
    """A copy: what was sent before may still be on its way."""
    if isinstance(request, m.Wait):
        return m.Wait(request.key, timeout_s)
    return m.Gather(request.call, request.group, request.round, request.rank, request.size, request.data, timeout_s)
