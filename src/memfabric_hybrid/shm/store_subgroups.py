"""Subgroups of an object that spans several hosts: they meet in the store.

The rules are those of the subgroups in shared memory: which ranks a subgroup has is known once each of them has
arrived; until then any departure fails the call, afterwards only that of a member does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import InvalidParam, TimedOut
from memfabric_hybrid.shm.inter_host_exchange import gather_patiently
from memfabric_hybrid.store import Store


class Arrival(msgspec.Struct, frozen=True, array_like=True):
    """What a member says before its data: its rank in the object and how many bytes follow (0 = barrier)."""

    rank: int
    size_bytes: int


_decode_arrival = msgspec.msgpack.Decoder(Arrival).decode


class _Subgroup(msgspec.Struct):
    size: int
    rank: int
    number: int = 0  # of the next rendezvous
    members: frozenset[int] | None = None  # ranks of the object
    turn: threading.Lock = msgspec.field(default_factory=threading.Lock)


class StoreSubgroups:
    """All subgroups of one object in which this rank has a place."""

    def __init__(
        self, store: Store, group: str, object_rank: int, check: Callable[[frozenset[int] | None], None]
    ) -> None:
        self._store = store
        self._group = group
        self._object_rank = object_rank
        self._check = check
        self._lock = threading.Lock()
        self._subgroups: dict[str, _Subgroup] = {}

    def gather(self, key: str, size: int, rank: int, data: bytes, timeout_s: float) -> bytes:
        """Everybody's data in order of rank in the subgroup; b"" is a barrier."""
        with self._lock:
            subgroup = self._subgroups.setdefault(key, _Subgroup(size, rank))
        if (subgroup.size, subgroup.rank) != (size, rank):
            raise InvalidParam(
                f"in subgroup {key!r} this rank is rank_id {subgroup.rank} of {subgroup.size}, this call says "
                f"{rank} of {size}"
            )
        deadline = Deadline(timeout_s)
        if not subgroup.turn.acquire(timeout=timeout_s):
            raise TimedOut(f"subgroup {key!r}: another thread of this rank has been in it all the time")
        try:
            said = Arrival(self._object_rank, len(data))
            answers = self._meet(key, subgroup, msgspec.msgpack.encode(said), deadline)
            arrivals = [_decode_arrival(packed) for packed in answers]
            subgroup.members = frozenset(arrival.rank for arrival in arrivals)
            for place, arrival in enumerate(arrivals):
                if arrival.size_bytes != arrivals[0].size_bytes:
                    raise InvalidParam(
                        f"subgroup {key!r}: rank_id 0 brought {arrivals[0].size_bytes} bytes, rank_id {place} "
                        f"{arrival.size_bytes}; all ranks must do the same"
                    )
            return b"".join(self._meet(key, subgroup, data, deadline)) if data else b""
        finally:
            subgroup.turn.release()

    def _meet(self, key: str, subgroup: _Subgroup, data: bytes, deadline: Deadline) -> list[bytes]:
        gathered = gather_patiently(
            self._store,
            f"{self._group}/{key}",
            subgroup.number,
            (subgroup.rank, subgroup.size),
            data,
            deadline,
            lambda: self._check(subgroup.members),
        )
        subgroup.number += 1
        return gathered
