"""The keys and values of the store, sorted for prefix reads, with one growing revision. Pure."""

from __future__ import annotations

from bisect import bisect_left

import msgspec

from memfabric_hybrid.errors import NoResources
from memfabric_hybrid.store.limits import (
    MAX_EPHEMERALS_BYTES,
    MAX_MEMBERS_BYTES,
    MAX_PLAIN_BYTES,
    MAX_PREFIX_BYTES,
    is_kept,
    shown,
)

LIMITS = {"members'": MAX_MEMBERS_BYTES, "ephemeral": MAX_EPHEMERALS_BYTES, "plain": MAX_PLAIN_BYTES}


def size_bytes(key: str, value: bytes) -> int:
    """What an entry costs, roughly: the text and its places in the tables are counted, too."""
    return len(value) + 4 * len(key) + 64


def _kind(key: str, is_owned: bool) -> str:
    if not is_owned:
        return "plain"
    return "members'" if is_kept(key) else "ephemeral"


class Entry(msgspec.Struct):
    """`owner`: the session of an ephemeral key. `claim`: the group and rank that this key stands for (`ranks.py`)."""

    value: bytes
    owner: bytes | None = None
    claim: tuple[str, int] | None = None


class Keyspace:
    """Revision 0 is the empty store; every change takes the next number."""

    def __init__(self) -> None:
        self.revision = 0
        self.bytes_of = dict.fromkeys(LIMITS, 0)  # kind of key → what all of them cost
        self._entries: dict[str, Entry] = {}
        self._sorted: list[str] = []

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> Entry | None:
        return self._entries.get(key)

    def put(self, key: str, entry: Entry) -> None:
        before = self._entries.get(key)
        if before is None:
            self._sorted.insert(bisect_left(self._sorted, key), key)
        else:
            self._count(key, before, -1)
        self._entries[key] = entry
        self._count(key, entry, 1)
        self.revision += 1

    def remove(self, key: str) -> Entry | None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._count(key, entry, -1)
            del self._sorted[bisect_left(self._sorted, key)]
            self.revision += 1
        return entry

    def check_room(self, key: str, value: bytes, *, is_owned: bool) -> None:
        """NoResources when all keys of its kind would hold too much; what is there makes room for its successor."""
        kind = _kind(key, is_owned)
        before = self._entries.get(key)
        replaces = before is not None and _kind(key, before.owner is not None) == kind
        freed_bytes = size_bytes(key, before.value) if before is not None and replaces else 0
        total_bytes = self.bytes_of[kind] + size_bytes(key, value) - freed_bytes
        if total_bytes > LIMITS[kind]:
            raise NoResources(
                f"key {shown(key)}: all {kind} keys of this store would hold {total_bytes} bytes, allowed are "
                f"{LIMITS[kind]}; delete some"
            )

    def _count(self, key: str, entry: Entry, sign: int) -> None:
        self.bytes_of[_kind(key, entry.owner is not None)] += sign * size_bytes(key, entry.value)

    def under(self, prefix: str) -> dict[str, bytes]:
        """All keys that start with the prefix, in order; NoResources when they do not fit into one answer."""
        found: dict[str, bytes] = {}
        total_bytes = 0
        for index in range(bisect_left(self._sorted, prefix), len(self._sorted)):
            key = self._sorted[index]
            if not key.startswith(prefix):
                break
            found[key] = value = self._entries[key].value
            total_bytes += len(value) + 4 * len(key)
            if total_bytes > MAX_PREFIX_BYTES:
                raise NoResources(
                    f"prefix {shown(prefix)} holds more than {MAX_PREFIX_BYTES} bytes, too much for one answer; "
                    "read narrower prefixes"
                )
        return found
