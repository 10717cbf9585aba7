"""Sessions: who is alive. A session lives as long as an event channel of it is open and heartbeats come in time. Pure.

A member that looks for its store may have greeted on several channels, and have given up some of them before the store
got to read that: a channel takes the place of another when something is said on it after its greeting, not before.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from memfabric_hybrid.store.state.effects import ConnectionId

# A longer gap between two ticks is the server's own fault, and everybody gets that much more time. For who has a short
# time-out half of that is long: it may have been silent for a fifth of it already, and its heartbeat is on its way.
STALL_S = 1.0
USUAL_GAP_S = 0.2  # two ticks: no stall for anybody
MAX_CHANNELS = 8  # of one session; more have been given up, however many there are


class Session(msgspec.Struct):
    """What belongs to one participant and goes with it. Watches are in `watches.py`."""

    id: bytes
    connection: ConnectionId  # the channel in use: the one that has spoken, or the newest
    heartbeat_timeout_s: float
    heard_at: float
    keys: dict[str, int] = msgspec.field(default_factory=dict)  # ephemeral key or claimed rank → its size in bytes
    key_bytes: int = 0  # sum of the sizes in `keys`
    ranges: set[str] = msgspec.field(default_factory=set)
    awaits_restore: bool = False  # it was a member of an earlier store, and is about to say with what
    has_spoken: bool = False  # on the channel in use
    channels: list[ConnectionId] = msgspec.field(default_factory=list)  # as they have greeted

    def own(self, key: str, size_bytes: int) -> None:
        self.key_bytes += size_bytes - self.keys.get(key, 0)
        self.keys[key] = size_bytes

    def disown(self, key: str) -> None:
        self.key_bytes -= self.keys.pop(key)


class SessionTable:
    def __init__(self) -> None:
        self._sessions: dict[bytes, Session] = {}
        self._by_connection: dict[ConnectionId, Session] = {}
        self._ticked_at: float | None = None

    def open(
        self, id: bytes, connection: ConnectionId, timeout_s: float, now: float, *, returning: bool = False
    ) -> ConnectionId | None:
        """A new event channel, of a living session too; the one that is to be closed because they are too many."""
        session = self._sessions.get(id)
        if session is None:
            session = self._sessions[id] = Session(id, connection, timeout_s, now, awaits_restore=returning)
        session.heartbeat_timeout_s, session.heard_at = timeout_s, now
        session.channels.append(connection)
        self._by_connection[connection] = session
        if not session.has_spoken:
            session.connection = connection
        if len(session.channels) <= MAX_CHANNELS:
            return None
        surplus = next(channel for channel in session.channels if channel != session.connection)
        self.lose(surplus)
        return surplus

    def spoke(self, session: Session, connection: ConnectionId) -> list[ConnectionId]:
        """Something was said there: it is the channel in use; those that it replaces."""
        if session.has_spoken and session.connection == connection:
            return []
        session.connection, session.has_spoken = connection, True
        earlier = session.channels[: session.channels.index(connection)]
        for channel in earlier:
            self.lose(channel)
        return earlier

    def lose(self, connection: ConnectionId) -> Session | None:
        """The channel is closed; its session, if that has no other."""
        session = self._by_connection.get(connection)
        if session is None:
            return None
        if session.channels == [connection]:
            return session
        del self._by_connection[connection]
        session.channels.remove(connection)
        if session.connection == connection:
            session.connection, session.has_spoken = session.channels[-1], False
        return None

    def get(self, id: bytes) -> Session | None:
        return self._sessions.get(id)

    def ids(self) -> list[bytes]:
        """Of all that live, the oldest first."""
        return list(self._sessions)

    def first(self, condition: Callable[[Session], bool]) -> Session | None:
        """The oldest one of which it is true."""
        return next((session for session in self._sessions.values() if condition(session)), None)

    def on(self, connection: ConnectionId) -> Session | None:
        """The session of which this connection is an event channel."""
        return self._by_connection.get(connection)

    def end(self, session: Session) -> None:
        del self._sessions[session.id]
        for channel in session.channels:
            del self._by_connection[channel]

    def silent(self, now: float) -> list[Session]:
        """Sessions that have been silent for too long; called by every tick. A stalled server accuses nobody."""
        gap_s = now - self._ticked_at if self._ticked_at is not None else 0.0
        self._ticked_at = now
        if gap_s > USUAL_GAP_S:
            for session in self._sessions.values():
                if gap_s > min(STALL_S, session.heartbeat_timeout_s / 2):
                    session.heard_at = min(now, session.heard_at + gap_s)
        return [s for s in self._sessions.values() if now - s.heard_at > s.heartbeat_timeout_s]
