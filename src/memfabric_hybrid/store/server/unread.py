"""Large messages that were sent and are not read yet: the memory they hold, and who goes when that is too much. Pure.

A loop that `shares` keeps a reference to what it could not send (uvloop does): one message to a thousand readers is
held once, as long as one of them has not read it. Otherwise every connection has a copy (asyncio's loop, and TLS).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from memfabric_hybrid.store.limits import MIB
from memfabric_hybrid.store.state.effects import ConnectionId

LARGE_BYTES = MIB  # smaller messages are not counted

UnreadBytes = Callable[[ConnectionId], int]  # what is not sent yet; 0: the connection is gone


class UnreadMessages:
    def __init__(self, *, shares: bool) -> None:
        self._shares = shares
        self._messages: list[tuple[int, set[ConnectionId]]] = []  # size, and who has not read it

    def add(self, size_bytes: int, readers: Iterable[ConnectionId]) -> None:
        self._messages.append((size_bytes, set(readers)))

    def held_bytes(self, unread_bytes: UnreadBytes) -> int:
        """Forgets who has read, too."""
        still = [
            (size_bytes, {reader for reader in readers if unread_bytes(reader) > LARGE_BYTES})
            for size_bytes, readers in self._messages
        ]
        self._messages = [(size_bytes, readers) for size_bytes, readers in still if readers]
        if self._shares:
            return sum(size_bytes for size_bytes, _ in self._messages)
        return sum(
            min(size_bytes, unread_bytes(reader)) for size_bytes, readers in self._messages for reader in readers
        )

    def forget(self, reader: ConnectionId) -> None:
        """It is being closed, and what it has not read is let go."""
        for _, readers in self._messages:
            readers.discard(reader)

    def slowest(self, unread_bytes: UnreadBytes, is_of_member: Callable[[ConnectionId], bool]) -> ConnectionId:
        """Of those who have not read; members last. There is one while anything is held."""
        readers = set[ConnectionId]().union(*(readers for _, readers in self._messages))
        return max(readers, key=lambda reader: (not is_of_member(reader), unread_bytes(reader)))
