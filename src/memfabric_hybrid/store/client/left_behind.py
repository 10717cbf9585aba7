"""The event channel that another one is to replace: kept open and silent, for the store takes who closes it for gone.

Participants are told of a move of the store one after the other. Those who have not heard of it yet still ask the store
at the old place, if that is still there. Silence is given one heartbeat time-out there, as long as those at the new
place wait for who is not there yet. A store at the same place, which is to be told anew what is ours, may stand still:
it keeps the channel until it has the new one. The event thread's only.
"""

from __future__ import annotations

from memfabric_hybrid import clock
from memfabric_hybrid.store.client.connection import FOREVER, Connection
from memfabric_hybrid.store.url import StoreUrl


class LeftBehind:
    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._connection: Connection | None = None
        self.until = FOREVER  # when it is to be closed

    def keep(self, connection: Connection, *, has_moved: bool) -> None:
        """In the place of an earlier one."""
        self.close()
        self._connection = connection
        if has_moved:
            self.until = clock.now() + self._silence_s

    def replaced_at(self, url: StoreUrl) -> None:
        """The store there has a new channel."""
        if self._connection is not None and self._connection.url == url:
            self.close()

    def close_if_due(self) -> None:
        if clock.now() >= self.until:
            self.close()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self.until = FOREVER
        if connection is not None:
            connection.close()
