"""The store over tcp: requests on blocking connections of the calling thread, events on a channel of their own.

A lost store is looked for again until the request's deadline. What was sent and not answered is sent again only where
doing it twice is the same as doing it once; otherwise the caller learns that the outcome is unknown.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator

from memfabric_hybrid import _native, clock, logs, settings
from memfabric_hybrid._native import Heartbeat
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import (
    FabricError,
    NoResources,
    NotConnected,
    NotExist,
    NotStarted,
    TimedOut,
    Unreachable,
    failure_of,
)
from memfabric_hybrid.machine.service_thread import THREAD_ENDS_S
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store import store_users
from memfabric_hybrid.store.client.connection import AnswerLate, ConnectionLost, NeverLeft
from memfabric_hybrid.store.client.connection_pool import ConnectionPool
from memfabric_hybrid.store.client.dialer import Dialer, pauses_s
from memfabric_hybrid.store.client.event_channel import EventChannel, HeartbeatFactory
from memfabric_hybrid.store.client.session_records import GRANTING
from memfabric_hybrid.store.client.watch_callbacks import WatchRegistration
from memfabric_hybrid.store.interface import (
    FAREWELL_S,
    MOMENT_S,
    OtherIncarnation,
    SessionCallback,
    Watch,
    WatchCallback,
)
from memfabric_hybrid.store.limits import (
    SESSION_ID_BYTES,
    check_prefix,
    shown,
)
from memfabric_hybrid.store.participant import Participant
from memfabric_hybrid.store.protection import protection as protections
from memfabric_hybrid.store.protection.protection import ProtectionSource
from memfabric_hybrid.store.url import StoreUrl, parse_url

ANSWER_GRACE_S = 0.5  # the store itself answers TIMEOUT, and says what is missing: give that answer time to arrive

_log = logs.get(__name__)
_NOT_REPEATABLE = frozenset((m.Add, m.Append, m.CompareAndSet))


class StoreClient(Participant):
    """Connects on first use. `on_session` and watch callbacks run on the event thread, `before_reconnect` on any."""

    def __init__(
        self,
        url: StoreUrl | str,
        *,
        on_session: SessionCallback | None = None,
        before_reconnect: Callable[[], object] | None = None,
        session: bytes | None = None,
        heartbeat_timeout_s: float | None = None,
        heartbeat_factory: HeartbeatFactory = Heartbeat,
        protection: ProtectionSource = protections.configured,
    ) -> None:
        super().__init__()
        parsed = parse_url(url) if isinstance(url, str) else url
        timeout_s = settings.heartbeat_timeout_s() if heartbeat_timeout_s is None else heartbeat_timeout_s
        own = session or secrets.token_bytes(SESSION_ID_BYTES)
        self._dialer = Dialer(parsed, own, timeout_s, before_reconnect, protection)
        self._pool = ConnectionPool(self._dialer)
        self._channel = EventChannel(self._dialer, timeout_s, heartbeat_factory, on_session)
        self._closed = False
        self._farewell: Deadline | None = None

    @property
    def url(self) -> StoreUrl:
        return self._dialer.url

    def peer_name(self, *, deadline: Deadline) -> str:
        """Its address and port, as this machine reaches it."""
        connection = self._pool.take(deadline)
        name = connection.peer_name
        self._pool.give_back(connection)
        return name

    def watch(self, prefix: str, callback: WatchCallback, *, deadline: Deadline) -> Watch:
        check_prefix(prefix)
        number = next(self._numbers)
        registration = WatchRegistration(prefix, callback)
        self._channel.ready(deadline)
        self._channel.watch_callbacks.add(number, registration)
        try:
            self._ask(m.StartWatch(number, prefix), deadline)
            if not registration.has_snapshot.wait(deadline.remaining_s()):
                raise TimedOut(f"store {self.url}: no snapshot of prefix {prefix!r} within {deadline.timeout_s:g} s")
            if registration.given_up:
                self._channel.state.check_serving()
        except BaseException:
            self._channel.watch_callbacks.remove(number)
            raise
        return _ClientWatch(self, number)

    def end_watch(self, number: int) -> None:
        """Best effort towards the store: a store that cannot be told has forgotten the watch, or will."""
        self._channel.watch_callbacks.remove(number)
        self._tell(m.EndWatch(number))

    def update_url(self, url: StoreUrl) -> None:
        if url == self.url:
            return
        moved_from = self.url
        self._dialer.point_at(url)
        _log.info("store %s has moved to %s", moved_from, url)
        _native._pause_point("store.update_url.pointed")
        # From here on other threads may have come to the new place by themselves: what leads there stays.
        self._dialer.abort_elsewhere()
        self._pool.abort_elsewhere()
        self._channel.follow()

    def give_up(self) -> None:
        self._dialer.close()
        self._pool.close()
        self._channel.give_up()

    def hurry(self, farewell: Deadline) -> None:
        self._farewell = farewell

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        store_users.leave(self)
        self._channel.retire()
        self._tell(m.Goodbye())
        self._dialer.close()
        self._pool.close()
        self._channel.close(Deadline(max(THREAD_ENDS_S, self._last_words().remaining_s())))

    def abandon_after_fork(self) -> None:
        """Closes our copies of the sockets; the parent goes on with its own."""
        self._dialer.abandon_after_fork()
        self._pool.abandon_after_fork()
        self._channel.abandon_after_fork()

    def _ask(self, request: m.Request, deadline: Deadline, incarnation: str | None = None) -> m.ServerMessage:
        if not self._channel.state.records.concern(request):
            reply = self._exchange(request, deadline, incarnation)
            if type(reply) is not m.NoSession:  # which a restarted store says that wants to know who we are first
                return reply
        held = self._channel.state.give_back(request)
        while True:
            generation = self._channel.ready(deadline)
            try:
                reply = self._exchange(request, deadline, incarnation, is_grant=type(request) in GRANTING)
            except NotExist:
                if not held:
                    raise
                reply = m.Done(0)  # released by a repetition of this request, or lost with the store: gone, as wanted
            except BaseException as failure:
                if not _is_outcome(failure):  # it may or may not be done: the store is told what is ours
                    self._channel.hand_over_again()
                raise
            if type(reply) is m.NoSession:
                self._channel.renew(generation)
            elif self._channel.state.record(generation, request, reply):
                return reply

    def _exchange(
        self, request: m.Request, deadline: Deadline, incarnation: str | None = None, *, is_grant: bool = False
    ) -> m.ServerMessage:
        """One request, one reply, over as many connections as it takes; a refusal is raised.

        `is_grant`: the answer gives the session something, so it counts only while the store has not ended that.
        """
        pool = self._pool
        pauses: Iterator[float] | None = None
        while True:
            connection = pool.take(deadline)
            if incarnation not in (None, connection.incarnation):
                pool.give_back(connection)
                raise OtherIncarnation(
                    f"store {self.url} was restarted: it is {connection.incarnation} now, not {incarnation}"
                )
            now, until = clock.now(), deadline.at
            if type(request) is m.Gather or type(request) is m.Wait:
                request.timeout_s = until - now if until > now else 0.0
                until += ANSWER_GRACE_S
            try:
                if type(request) in _NOT_REPEATABLE:
                    connection.prove()
                reply = connection.exchange(m.encode(request), until, now)
                if is_grant:  # an answer may lie here for long: whoever was silent meanwhile owns nothing any more
                    _native._pause_point("store.answered")
                    connection.check_open()
            except BaseException as error:
                pool.give_up(connection)
                self._raise_unless_repeatable(error, request, deadline)
            else:
                pool.give_back(connection)
                if type(reply) is m.Refused:
                    raise failure_of(reply.code, reply.sentence)
                return reply
            pauses = pauses or pauses_s()
            if self._dialer.closing.wait(min(next(pauses), deadline.remaining_s())):
                raise NotStarted(f"the client of store {self.url} is closed")

    def _raise_unless_repeatable(self, error: BaseException, request: m.Request, deadline: Deadline) -> None:
        """Returns if the request may be repeated on another connection; otherwise raises what the caller must know."""
        if isinstance(error, AnswerLate):
            raise TimedOut(
                f"store {self.url} did not answer {_named(request)} within {deadline.timeout_s:g} s; "
                "it may still be carried out"
            ) from None
        if not isinstance(error, ConnectionLost):
            raise error
        if type(request) in _NOT_REPEATABLE and not isinstance(error, NeverLeft):
            raise NotConnected(
                f"store {self.url} was lost ({error}) after {_named(request)} was sent: "
                "it may or may not have been carried out; read the key before trying again"
            ) from None
        self._dialer.lost()

    def _tell(self, request: m.Request) -> None:
        """Say it if the store is there, and do not mind if it is not."""
        if not self._channel.state.is_ready:
            return
        deadline = self._last_words()
        try:
            connection = self._pool.take_at_once(deadline)
            try:
                connection.exchange(m.encode(request), deadline.at, clock.now())
            finally:
                self._pool.discard(connection)
        except (ConnectionLost, AnswerLate, NoResources) as error:
            _log.info("store %s was not told %s: %s", self.url, _named(request), error)

    def _last_words(self) -> Deadline:
        farewell = self._farewell
        return Deadline(FAREWELL_S) if farewell is None else farewell.extended(MOMENT_S)


class _ClientWatch(Watch):
    def __init__(self, client: StoreClient, number: int) -> None:
        self._client = client
        self._number = number
        self._closed = False

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._client.end_watch(self._number)


def _is_outcome(failure: BaseException) -> bool:
    """The store has refused, or was not even asked."""
    return isinstance(failure, OtherIncarnation) or (
        isinstance(failure, FabricError) and not isinstance(failure, Unreachable)
    )


def _named(request: m.Request) -> str:
    """The request as a sentence names it: its kind and its key, name or group, never its data."""
    for field in ("key", "prefix", "name", "group"):
        subject = getattr(request, field, None)
        if subject is not None:
            return f"{type(request).__name__} of {shown(subject)}"
    return type(request).__name__
