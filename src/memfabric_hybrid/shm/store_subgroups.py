"""Subgroups of an object that spans several hosts: they meet in the store.

The rules are those of the subgroups in shared memory: which ranks a subgroup has is known once each of them has
arrived; until then any departure fails the call, afterwards only that of a member does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec

from memfabric_hybrid import logs
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import FabricError, InvalidParam, NotConnected, TimedOut
from memfabric_hybrid.shm.inter_host_exchange import PIECE_BYTES
from memfabric_hybrid.shm.rendezvous_series import RendezvousSeries
from memfabric_hybrid.store import Store
from memfabric_hybrid.waiting_log import WaitingLog

log = logs.get(__name__)


class Arrival(msgspec.Struct, frozen=True, array_like=True):
    """What a member brings first: its rank in the object, how many bytes it has (0 = barrier), the first of them.

    In one step: a call that times out is made anew, from its first step on, while others may be at their second.
    """

    rank: int
    size_bytes: int
    data: bytes


_decode_arrival = msgspec.msgpack.Decoder(Arrival).decode


class _Subgroup:
    def __init__(self, size: int, rank: int, series: RendezvousSeries) -> None:
        self.size = size
        self.rank = rank
        self.series = series
        self.members: frozenset[int] | None = None  # ranks of the object
        self.turn = threading.Lock()
        self.over: str | None = None  # why its members have lost step with each other


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
            if key not in self._subgroups:
                series = RendezvousSeries(self._store, f"{self._group}/{key}", rank, size)
                self._subgroups[key] = _Subgroup(size, rank, series)
            subgroup = self._subgroups[key]
        if (subgroup.size, subgroup.rank) != (size, rank):
            raise InvalidParam(
                f"in subgroup {key!r} this rank is rank_id {subgroup.rank} of {subgroup.size}, this call says "
                f"{rank} of {size}"
            )
        deadline = Deadline(timeout_s)
        if not subgroup.turn.acquire(timeout=timeout_s):
            raise TimedOut(f"subgroup {key!r}: another thread of this rank has been in it all the time")
        try:
            if subgroup.over is not None:
                raise NotConnected(
                    f"the members of subgroup {key!r} have lost step with each other: {subgroup.over}; create the "
                    "object again"
                )
            return self._meet(key, subgroup, data, deadline)
        finally:
            subgroup.turn.release()

    def close(self) -> None:
        """Nobody calls any more, or is about to return."""
        with self._lock:
            subgroups = list(self._subgroups.values())
        for subgroup in subgroups:
            if subgroup.turn.acquire(blocking=False):
                subgroup.series.close()
                subgroup.turn.release()

    def _meet(self, key: str, subgroup: _Subgroup, data: bytes, deadline: Deadline) -> bytes:
        waiting = WaitingLog(log, deadline.timeout_s)

        def check() -> None:
            self._check(subgroup.members)
            waiting.tell(f"not all {subgroup.size} members of subgroup {key!r} have come")

        own = Arrival(self._object_rank, len(data), data[:PIECE_BYTES])
        met = subgroup.series.next(msgspec.msgpack.encode(own), deadline, check)
        arrivals = [_decode_arrival(packed) for packed in met]
        subgroup.members = frozenset(arrival.rank for arrival in arrivals)
        for place, arrival in enumerate(arrivals):
            if arrival.size_bytes != arrivals[0].size_bytes:
                raise InvalidParam(
                    f"subgroup {key!r}: rank_id 0 brought {arrivals[0].size_bytes} bytes, rank_id {place} "
                    f"{arrival.size_bytes}; all ranks must do the same"
                )
        collected = [arrival.data for arrival in arrivals]
        try:
            for start in range(PIECE_BYTES, len(data), PIECE_BYTES):
                pieces = subgroup.series.next(data[start : start + PIECE_BYTES], deadline, check)
                collected = [before + piece for before, piece in zip(collected, pieces, strict=True)]
        except FabricError as failure:
            subgroup.over = str(failure)
            raise
        return b"".join(collected)
