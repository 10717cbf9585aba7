"""Request connections of one client: opened on demand, one request at a time each, kept for the next caller.

As many as there are threads inside a call; a blocking wait in one thread never delays another. No lock: every step is
one operation on a deque or a set.
"""

from __future__ import annotations

from collections import deque

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.store.client.connection import Connection
from memfabric_hybrid.store.client.dialer import Dialer
from memfabric_hybrid.store.messages import REQUESTS

MAX_IDLE = 8


class ConnectionPool:
    """`idle` is taken from by the client's hot path directly; everybody else calls methods."""

    def __init__(self, dialer: Dialer) -> None:
        self._dialer = dialer
        self.idle: deque[Connection] = deque()
        self._open: set[Connection] = set()  # idle ones and those in use
        self._closed = False
        self._oldest = 0  # the number of the first one that has told the store what was given up

    def open(self, deadline: Deadline) -> Connection:
        """A new one, in use."""
        connection = self._dialer.dial(REQUESTS, deadline)
        self._open.add(connection)
        if self._closed or connection.url != self._dialer.url:
            connection.abort()  # the abort of the others may have come before this one was known
        return connection

    def take_idle(self) -> Connection | None:
        """The one used last: it is the warmest."""
        try:
            return self.idle.pop()
        except IndexError:
            return None

    def take(self, deadline: Deadline) -> Connection:
        """An idle one, or a new one."""
        return self.take_idle() or self.open(deadline)

    def take_at_once(self, deadline: Deadline) -> Connection:
        """As `take`, but one attempt and no hook. ConnectionLost or AnswerLate when the store is away."""
        connection = self.take_idle()
        if connection is None:
            connection = self._dialer.attempt(REQUESTS, deadline.at, with_hook=False)
            self._open.add(connection)
        return connection

    def give_back(self, connection: Connection) -> None:
        """After a complete exchange."""
        if self._closed or connection.number < self._oldest:
            self.discard(connection)
            return
        self.idle.append(connection)
        while len(self.idle) > MAX_IDLE:  # looked at after adding: of several threads the last one sees all
            try:
                coldest = self.idle.popleft()
            except IndexError:  # another thread took the last one
                return
            self.discard(coldest)

    def give_up(self, connection: Connection) -> None:
        """After an exchange that was not completed: whatever is asked for next, the store first hears of that."""
        self._oldest = self._dialer.give_up(connection)
        self.discard(connection)
        self.drop_idle()

    def discard(self, connection: Connection) -> None:
        """Nobody needs it any more."""
        self._open.discard(connection)
        connection.close()

    def drop_idle(self) -> None:
        """Those that nobody uses: each call opens a new one."""
        while (connection := self.take_idle()) is not None:
            self.discard(connection)

    def abort_elsewhere(self) -> None:
        """Ends the calls under way on connections that do not lead to where the dialer points now.

        They get ConnectionLost, and their owners close the connections.
        """
        self.drop_idle()
        for connection in self._open.copy():
            if connection.url != self._dialer.url:
                connection.abort()

    def close(self) -> None:
        """For good: the dialer is closed already. Ends all calls under way."""
        self._closed = True
        self.drop_idle()
        for connection in self._open.copy():
            connection.abort()

    def abandon_after_fork(self) -> None:
        """In a forked child: close our copies, without a word."""
        for connection in self._open:
            connection.close()
        self._closed = True
        self.idle.clear()
        self._open.clear()
