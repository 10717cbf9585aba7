"""Requests to etcd: one at a time on each connection, at the first endpoint that serves, until the deadline.

What was sent and not answered is sent again only where doing it twice is the same as doing it once; otherwise the
caller learns that the outcome is unknown; for transactions `scope.py` decides what follows. The calling thread does all
of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

from memfabric_hybrid import clock, logs
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import NotStarted
from memfabric_hybrid.store.client.connection import AnswerLate, ConnectionLost, NeverLeft
from memfabric_hybrid.store.client.dialer import pauses_s
from memfabric_hybrid.store.etcd.gateway import api
from memfabric_hybrid.store.etcd.gateway.complaints import TokenExpired, raised_by
from memfabric_hybrid.store.etcd.gateway.connection import Endpoint, EtcdConnection
from memfabric_hybrid.store.etcd.gateway.endpoints import Endpoints
from memfabric_hybrid.waiting_log import WaitingLog

# For one request to one endpoint. What may be repeated does not wait long: a node that has just lost its leader may
# never answer, and the next request to any of them finds the new one.
ANSWER_S, UNREPEATED_ANSWER_S = 1.0, 5.0
SLOWEST_BYTES_PER_S = 1 << 20  # of a large request, to an etcd that is busy
MAX_IDLE = 8

_log = logs.get(__name__)
_Answer = TypeVar("_Answer")


class OutcomeUnknown(Exception):
    """The endpoint was lost after the request was sent: it may or may not be carried out, now or later."""


class Gateway:
    def __init__(self, endpoints: Endpoints) -> None:
        self.endpoints = endpoints
        self._idle: deque[EtcdConnection] = deque()
        self._open: set[EtcdConnection] = set()  # idle ones and those in use

    def ask(
        self,
        path: str,
        body: api.Body,
        kind: type[_Answer],
        deadline: Deadline,
        *,
        repeatable: bool = True,
        answer_s: float = ANSWER_S,
    ) -> _Answer:
        """TimedOut, NotStarted, what `complaints` makes of a refusal; OutcomeUnknown only of what is not repeatable."""
        encoded, attempts, reason = api.encode(body), 0, ""
        waiting = WaitingLog(_log, deadline.timeout_s)
        for pause_s in pauses_s():
            try:
                attempts += 1
                return self._pass(path, encoded, kind, deadline.at, repeatable, answer_s)
            except (ConnectionLost, AnswerLate) as lost:
                reason = str(lost) or reason
            waiting.tell(f"store {self.endpoints.url} is not there: {reason}")
            if self.endpoints.closing.wait(min(pause_s, deadline.remaining_s())):
                raise self.closed()
            if deadline.expired:
                break
        raise self.endpoints.unreachable(deadline.timeout_s, attempts, reason)

    def ask_once(self, path: str, body: api.Body, kind: type[_Answer], until: float) -> _Answer:
        """Every endpoint once: ConnectionLost or AnswerLate when none of them serves. For what may be done twice."""
        return self._pass(path, api.encode(body), kind, until, True, ANSWER_S)

    def closed(self) -> NotStarted:
        return NotStarted(f"the client of store {self.endpoints.url} is closed")

    def close(self) -> None:
        """Ends all calls under way; the endpoints are closed already."""
        for connection in self._open.copy():
            connection.abort()
        self.drop_idle()

    def drop_idle(self) -> None:
        while self._idle:
            self._discard_one(self._idle.pop)

    def abort_elsewhere(self) -> None:
        """Ends the calls under way that do not lead to where the endpoints are now."""
        self.drop_idle()
        for connection in self._open.copy():
            if connection.url != self.endpoints.url:
                connection.abort()

    def abort_at(self, endpoint: Endpoint) -> None:
        """That one is of no use now: calls under way there go on elsewhere."""
        for connection in self._open.copy():
            if connection.endpoint == endpoint:
                connection.abort()

    def abandon_after_fork(self) -> None:
        for connection in self._open:
            connection.close()
        self._idle.clear()
        self._open.clear()

    def _pass(
        self, path: str, body: bytes, kind: type[_Answer], until: float, repeatable: bool, answer_s: float
    ) -> _Answer:
        """At every endpoint in turn, until one serves."""
        reason: Exception = AnswerLate("no answer")
        for endpoint in self.endpoints.in_order:
            try:
                patience_s = answer_s + len(body) / SLOWEST_BYTES_PER_S
                return self._at(endpoint, path, body, kind, min(until, clock.now() + patience_s), repeatable)
            except (ConnectionLost, AnswerLate) as lost:
                reason = lost
            self.endpoints.failed(endpoint)
            if clock.now() >= until or self.endpoints.closing.is_set():
                break
        try:
            raise reason
        finally:
            del reason  # which knows this frame: the two would keep each other, and all callers' frames, alive

    def _at(
        self, endpoint: Endpoint, path: str, body: bytes, kind: type[_Answer], until: float, repeatable: bool
    ) -> _Answer:
        if self.endpoints.closing.is_set():
            raise self.closed()
        for again in (True, False):
            connection = self._take(endpoint, until)
            try:
                answer = connection.exchange(path, body, until)
            except BaseException as error:
                self._discard(connection)
                self._raise_unless_repeatable(error, repeatable)
                raise
            self._give_back(connection)
            if answer.status == 200:
                self.endpoints.served(endpoint)
                return api.decode(answer.body, kind)
            complaint = raised_by(answer.status, answer.body, f"store {self.endpoints.url}")
            if not (again and isinstance(complaint, TokenExpired)):
                self._raise_unless_repeatable(complaint, repeatable)
                raise complaint
            self.endpoints.forget_token(connection.token)
            self.drop_idle()
        raise AssertionError("the second time is the last")

    def _raise_unless_repeatable(self, error: BaseException, repeatable: bool) -> None:
        is_unknown = isinstance(error, (ConnectionLost, AnswerLate)) and not isinstance(error, NeverLeft)
        if self.endpoints.closing.is_set() and isinstance(error, (ConnectionLost, AnswerLate)):
            raise self.closed() from None
        if is_unknown and not repeatable:
            raise OutcomeUnknown(str(error)) from None

    def _take(self, endpoint: Endpoint, until: float) -> EtcdConnection:
        """One that is idle and good, or a new one."""
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread took the last one
                break
            if connection.endpoint == endpoint and connection.url == self.endpoints.url and _is_quiet(connection):
                return connection
            self._discard(connection)
        connection = self.endpoints.connect(endpoint, until)
        self._open.add(connection)
        if self.endpoints.closing.is_set():
            connection.abort()  # the abort of the others may have come before this one was known
        return connection

    def _give_back(self, connection: EtcdConnection) -> None:
        self._idle.append(connection)
        if len(self._idle) > MAX_IDLE or self.endpoints.closing.is_set():
            self._discard_one(self._idle.popleft)

    def _discard_one(self, take: Callable[[], EtcdConnection]) -> None:
        try:
            connection = take()
        except IndexError:  # another thread took the last one
            return
        self._discard(connection)

    def _discard(self, connection: EtcdConnection) -> None:
        self._open.discard(connection)
        connection.close()


def _is_quiet(connection: EtcdConnection) -> bool:
    """Nothing has come that nobody asked for, not even its end."""
    try:
        return not connection.receive_now()
    except ConnectionLost:
        return False
