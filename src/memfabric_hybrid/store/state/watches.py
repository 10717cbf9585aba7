"""Who watches which prefix, and the changes that have not been told yet. Pure.

Changes gather per prefix until `drain`, so that a burst of writes becomes one push per prefix and the same bytes serve
every watcher of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from memfabric_hybrid.errors import NoResources
from memfabric_hybrid.store.limits import MAX_PUSH_BYTES, MAX_WATCHES


class WatchTable:
    def __init__(self) -> None:
        self._prefixes: dict[bytes, dict[int, str]] = {}  # session → watch → prefix
        self._watchers: dict[str, Counter[bytes]] = {}  # prefix → session → how many watches
        self._lengths: Counter[int] = Counter()  # lengths of the watched prefixes: where to cut a changed key
        self.pending: dict[str, dict[str, bytes | None]] = {}  # prefix → changes not told yet

    def check_room(self, session: bytes, watch: int) -> None:
        watches = self._prefixes.get(session, {})
        if len(watches) >= MAX_WATCHES and watch not in watches:
            raise NoResources(f"this member watches {MAX_WATCHES} prefixes, the most it can; end some of the watches")

    def start(self, session: bytes, watch: int, prefix: str) -> None:
        """The same watch again is one watch."""
        self.end(session, watch)
        self._prefixes.setdefault(session, {})[watch] = prefix
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
        watchers = self._watchers[prefix]
        watchers[session] -= 1
        if not watchers[session]:
            del watchers[session]
        if not watchers:
            del self._watchers[prefix]
            self.pending.pop(prefix, None)
            self._lengths[len(prefix)] -= 1
            if not self._lengths[len(prefix)]:
                del self._lengths[len(prefix)]
        return True

    def end_all(self, session: bytes) -> None:
        for watch in list(self._prefixes.get(session, ())):
            self.end(session, watch)

    def of(self, session: bytes) -> dict[int, str]:
        return self._prefixes.get(session, {})

    def note(self, key: str, value: bytes | None) -> None:
        """A key changed (None: it is gone)."""
        for length in self._lengths:
            prefix = key[:length]
            if prefix in self._watchers:
                self.pending.setdefault(prefix, {})[key] = value

    def drain(self) -> Iterator[tuple[str, list[bytes], dict[str, bytes | None]]]:
        """(prefix, sessions, changes), each small enough for one push."""
        pending, self.pending = self.pending, {}
        for prefix, changes in pending.items():
            sessions = list(self._watchers[prefix])
            for part in _parts(changes):
                yield prefix, sessions, part


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
