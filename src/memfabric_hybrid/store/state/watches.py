"""Who watches which prefix, and the changes that have not been told yet. Pure.

Changes gather per prefix until `drain`, so that a burst of writes becomes one push per prefix and the same bytes serve
every watcher of it. A prefix that many watch is not pushed at every turn: n members that join one after the other would
cost n² messages. After a push to n watchers the next one waits n times SPACING_S, so that all pushes together take a
small part of the store's time, however many there are; a lone change goes out at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from memfabric_hybrid.errors import NoResources
from memfabric_hybrid.store.limits import (
    MAX_MEMBERS_WATCHES_BYTES,
    MAX_OTHERS_WATCHES_BYTES,
    MAX_PUSH_BYTES,
    MAX_WATCHES,
    SMALL_WATCHES,
)
from memfabric_hybrid.store.state.next_deadline import NEVER
from memfabric_hybrid.store.state.room import Room

SPACING_S = 20e-6  # a push costs the store about a quarter of that for each watcher


class Pending(msgspec.Struct):
    """Changes under one prefix that not all of its watchers have been told."""

    due_at: float
    revision: int = 0  # of the newest
    changes: dict[str, bytes | None] = msgspec.field(default_factory=dict)


def size_bytes(prefix: str) -> int:
    """What a watch costs, roughly: its places in the tables are counted, too."""
    return 4 * len(prefix) + 256


class WatchTable:
    def __init__(self) -> None:
        self.room = Room("watches", MAX_MEMBERS_WATCHES_BYTES, MAX_OTHERS_WATCHES_BYTES)
        self._prefixes: dict[bytes, dict[int, str]] = {}  # session → watch → prefix
        self._of_members: dict[bytes, set[int]] = {}  # session → those of its watches that it began as a member
        self._watchers: dict[str, Counter[bytes]] = {}  # prefix → session → how many watches
        self._lengths: Counter[int] = Counter()  # lengths of the watched prefixes: where to cut a changed key
        self._spaced_until: dict[str, float] = {}  # prefix → when it may be pushed again
        self.pending: dict[str, Pending] = {}  # by prefix

    @property
    def due_at(self) -> float:
        """When `drain` has something to give."""
        return min((pending.due_at for pending in self.pending.values()), default=NEVER)

    def check_room(self, session: bytes, watch: int, prefix: str, *, is_member: bool) -> None:
        watches = self._prefixes.get(session, {})
        if watch in watches:
            return
        if len(watches) >= MAX_WATCHES:
            raise NoResources(f"this member watches {MAX_WATCHES} prefixes, the most it can; end some of the watches")
        if len(watches) >= SMALL_WATCHES:
            self.room.check(size_bytes(prefix), is_members=is_member)

    def start(self, session: bytes, watch: int, prefix: str, *, is_member: bool = False) -> None:
        """The same watch again is one watch."""
        self.end(session, watch)
        self._prefixes.setdefault(session, {})[watch] = prefix
        if is_member:
            self._of_members.setdefault(session, set()).add(watch)
        self.room.take(size_bytes(prefix), is_members=is_member)
        if prefix not in self._watchers:
            self._watchers[prefix] = Counter()
            self._lengths[len(prefix)] += 1
        self._watchers[prefix][session] += 1

    def end(self, session: bytes, watch: int) -> bool:
        watches = self._prefixes.get(session, {})
        prefix = watches.pop(watch, None)
        if prefix is None:
            return False
        if not watches:
            del self._prefixes[session]
        self.room.give_back(size_bytes(prefix), is_members=self._forget_member(session, watch))
        watchers = self._watchers[prefix]
        watchers[session] -= 1
        if not watchers[session]:
            del watchers[session]
        if not watchers:
            del self._watchers[prefix]
            self.pending.pop(prefix, None)
            self._spaced_until.pop(prefix, None)
            self._lengths[len(prefix)] -= 1
            if not self._lengths[len(prefix)]:
                del self._lengths[len(prefix)]
        return True

    def _forget_member(self, session: bytes, watch: int) -> bool:
        """Whether the watch was begun by a member."""
        of_members = self._of_members.get(session, set())
        if watch not in of_members:
            return False
        of_members.remove(watch)
        if not of_members:
            del self._of_members[session]
        return True

    def end_all(self, session: bytes) -> None:
        for watch in list(self._prefixes.get(session, ())):
            self.end(session, watch)

    def of(self, session: bytes) -> dict[int, str]:
        return self._prefixes.get(session, {})

    def note(self, key: str, value: bytes | None, revision: int) -> None:
        """A key changed (None: it is gone)."""
        for length in self._lengths:
            prefix = key[:length]
            if prefix in self._watchers:
                pending = self.pending.get(prefix)
                if pending is None:
                    pending = self.pending[prefix] = Pending(self._spaced_until.get(prefix, 0.0))
                pending.changes[key] = value
                pending.revision = revision

    def drain(self, now: float) -> Iterator[tuple[str, list[bytes], int, dict[str, bytes | None]]]:
        """(prefix, sessions, revision, changes) of what is due, each small enough for one push."""
        due = [prefix for prefix, pending in self.pending.items() if pending.due_at <= now]
        for prefix in due:
            pending = self.pending.pop(prefix)
            sessions = list(self._watchers[prefix])
            self._spaced_until[prefix] = now + len(sessions) * SPACING_S
            for part in _parts(pending.changes):
                yield prefix, sessions, pending.revision, part

    def untold(self, session: bytes) -> Iterator[tuple[str, int, dict[str, bytes | None]]]:
        """(prefix, revision, changes) of what that session watches and may not have been told. It stays pending."""
        if self.pending:
            for prefix in dict.fromkeys(self._prefixes.get(session, {}).values()):
                pending = self.pending.get(prefix)
                if pending is not None:
                    for part in _parts(pending.changes):
                        yield prefix, pending.revision, part


def _parts(changes: dict[str, bytes | None]) -> Iterator[dict[str, bytes | None]]:
    part: dict[str, bytes | None] = {}
    size_bytes = 0
    for key, value in changes.items():
        part[key] = value
        size_bytes += len(key) + len(value or b"")
        if size_bytes >= MAX_PUSH_BYTES:
            yield part
            part, size_bytes = {}, 0
    if part:
        yield part
