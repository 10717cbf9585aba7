"""Frames that are not complete yet: the memory they hold, and who goes when that is too much or takes too long. Pure.

Members have a part of their own. Of the others it is the one that holds most who goes, whoever has sent last: a
stranger that lets large frames lie costs nobody else its connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from memfabric_hybrid.store.limits import MIB
from memfabric_hybrid.store.state.effects import ConnectionId

MAX_OTHERS_BYTES = 128 * MIB  # of all connections together that are no members'
MAX_BYTES = 512 * MIB  # of all
FRAME_TIMEOUT_S = 60.0  # for a frame of who is no member


class _Part(NamedTuple):
    size_bytes: int
    since: float


class Leaving(NamedTuple):
    connection: ConnectionId
    why: str


class IncompleteFrames:
    def __init__(self, is_of_member: Callable[[ConnectionId], bool]) -> None:
        self._is_of_member = is_of_member
        self._parts: dict[ConnectionId, _Part] = {}
        self.held_bytes = 0

    def count(self, connection: ConnectionId, size_bytes: int, now: float, *, is_new: bool) -> None:
        """What there is of a frame now; 0: nothing. `is_new`: it is another frame than before."""
        before = self._parts.pop(connection, None)
        self.held_bytes += size_bytes - (before.size_bytes if before else 0)
        if size_bytes:
            self._parts[connection] = _Part(size_bytes, now if before is None or is_new else before.since)

    def surplus(self) -> Leaving | None:
        """Who has to go now; ask again when it has."""
        if self.held_bytes <= MAX_OTHERS_BYTES:
            return None
        others = [connection for connection in self._parts if not self._is_of_member(connection)]
        others_bytes = sum(self._parts[connection].size_bytes for connection in others)
        if others_bytes > MAX_OTHERS_BYTES:
            return self._largest(others, others_bytes, MAX_OTHERS_BYTES)
        if self.held_bytes > MAX_BYTES:
            return self._largest(others or list(self._parts), self.held_bytes, MAX_BYTES)
        return None

    def late(self, now: float) -> list[Leaving]:
        """Those that take too long."""
        return [
            Leaving(connection, f"a frame was not complete after {FRAME_TIMEOUT_S:g} s; {part.size_bytes} bytes came")
            for connection, part in self._parts.items()
            if now - part.since > FRAME_TIMEOUT_S and not self._is_of_member(connection)
        ]

    def _largest(self, connections: list[ConnectionId], held_bytes: int, allowed_bytes: int) -> Leaving:
        largest = max(connections, key=lambda connection: self._parts[connection].size_bytes)
        return Leaving(
            largest,
            f"frames that are not complete hold {held_bytes} bytes, allowed are {allowed_bytes}, and this connection "
            f"has most of them, {self._parts[largest].size_bytes}; try again when others have sent theirs",
        )
