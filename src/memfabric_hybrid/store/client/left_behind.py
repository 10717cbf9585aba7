"""Event channels that another one is to replace: kept open and silent, for the store takes who closes it for gone.

Participants are told of a move of the store one after the other. Those who have not heard of it yet still ask the store
at the old place, if that is still there. Silence is given one heartbeat time-out there, as long as those at the new
place wait for who is not there yet. A store at the same place, which is to be told anew what is ours, may stand still:
it keeps the channel until it has the new one. So there is one at most for each place. The event thread's only.
"""

from __future__ import annotations

from memfabric_hybrid import clock
from memfabric_hybrid.store.client.connection import FOREVER, Connection
from memfabric_hybrid.store.url import StoreUrl


class LeftBehind:
    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._kept: dict[StoreUrl, tuple[Connection, float]] = {}  # by place; until when

    @property
    def until(self) -> float:
        """When one of them is to be closed."""
        return min((until for _, until in self._kept.values()), default=FOREVER)

    def keep(self, connection: Connection, *, has_moved: bool) -> None:
        """In the place of an earlier one there."""
        self._close_at(connection.url)
        self._kept[connection.url] = connection, clock.now() + self._silence_s if has_moved else FOREVER

    def replaced_at(self, url: StoreUrl) -> None:
        """The store there has a new channel; whatever is elsewhere is at an old place."""
        self._close_at(url)
        latest = clock.now() + self._silence_s
        self._kept = {place: (connection, min(until, latest)) for place, (connection, until) in self._kept.items()}

    def close_if_due(self) -> None:
        now = clock.now()
        for place in [place for place, (_, until) in self._kept.items() if now >= until]:
            self._close_at(place)

    def close(self) -> None:
        for place in list(self._kept):
            self._close_at(place)

    def _close_at(self, place: StoreUrl) -> None:
        connection, _ = self._kept.pop(place, (None, FOREVER))
        if connection is not None:
            connection.close()
