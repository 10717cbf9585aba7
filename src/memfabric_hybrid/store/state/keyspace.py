"""The keys and values of the store, sorted for prefix reads, with one growing revision. Pure."""

from __future__ import annotations

from bisect import bisect_left

import msgspec

from memfabric_hybrid.errors import NoResources
from memfabric_hybrid.store.limits import MAX_PREFIX_BYTES, shown


class Entry(msgspec.Struct):
    """`owner`: the session of an ephemeral key. `claim`: the group and rank that this key stands for (`ranks.py`)."""

    value: bytes
    owner: bytes | None = None
    claim: tuple[str, int] | None = None


class Keyspace:
    """Revision 0 is the empty store; every change takes the next number."""

    def __init__(self) -> None:
        self.revision = 0
        self._entries: dict[str, Entry] = {}
        self._sorted: list[str] = []

    def get(self, key: str) -> Entry | None:
        return self._entries.get(key)

    def put(self, key: str, entry: Entry) -> None:
        if key not in self._entries:
            self._sorted.insert(bisect_left(self._sorted, key), key)
        self._entries[key] = entry
        self.revision += 1

    def remove(self, key: str) -> Entry | None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            del self._sorted[bisect_left(self._sorted, key)]
            self.revision += 1
        return entry

    def under(self, prefix: str) -> dict[str, bytes]:
        """All keys that start with the prefix, in order; NoResources when they do not fit into one answer."""
        found: dict[str, bytes] = {}
        size_bytes = 0
        for index in range(bisect_left(self._sorted, prefix), len(self._sorted)):
            key = self._sorted[index]
            if not key.startswith(prefix):
                break
            found[key] = value = self._entries[key].value
            size_bytes += len(value) + 4 * len(key)
            if size_bytes > MAX_PREFIX_BYTES:
                raise NoResources(
                    f"prefix {shown(prefix)} holds more than {MAX_PREFIX_BYTES} bytes, too much for one answer; "
                    "read narrower prefixes"
                )
        return found
