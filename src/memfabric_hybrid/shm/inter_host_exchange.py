"""Between the hosts of one object: the ranks of each host combine in shared memory, one leader per host comes here.

Leaders bring their host's data to a rendezvous of the store and take everybody's. What takes several of them and fails
half-way cannot be repeated and ends all exchanges.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from memfabric_hybrid import _native, logs
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import FabricError, InvalidParam, NotConnected, TimedOut
from memfabric_hybrid.membership.roster import Stamp
from memfabric_hybrid.shm.rendezvous_series import CheckFailedRanks, RendezvousSeries
from memfabric_hybrid.store import Store
from memfabric_hybrid.waiting_log import WaitingLog

log = logs.get(__name__)

PIECE_BYTES = _native.MAX_GATHER_BYTES - 4096  # the rest is for the words around the data


class Contribution(msgspec.Struct, frozen=True, array_like=True):
    """What one leader brings first: bytes per rank (0 = barrier), a complaint that fails the round, the first data."""

    size_bytes: int
    complaint: str
    data: bytes


_decode_contribution = msgspec.msgpack.Decoder(Contribution).decode


def group_name(object_name: str, stamps: Mapping[int, Stamp]) -> str:
    """The same on all hosts for this very creation of the object, and no other."""
    digest = hashlib.blake2b(repr(sorted(stamps.items())).encode(), digest_size=12).hexdigest()
    return f"{object_name.replace('/', '-')}-hosts/{digest}"


class InterHostExchange:
    """One object's exchanges, as the leader of this host sees them. Calls come one at a time."""

    def __init__(
        self,
        store: Store,
        object_name: str,
        stamps: Mapping[int, Stamp],
        hosts: Sequence[Sequence[int]],
        own_host: int,
        check: CheckFailedRanks,
    ) -> None:
        self.group = group_name(object_name, stamps)
        self._hosts = hosts
        self._check = check
        self._series = RendezvousSeries(store, self.group, own_host, len(hosts))
        self._over: str | None = None

    def exchange(self, size_bytes: int, complaint: str, ours: bytes, timeout_s: float) -> bytes:
        """Brings what the ranks of this host brought; everybody's bytes in order of rank."""
        if self._over is not None:
            raise NotConnected(f"the hosts have lost step with each other: {self._over}; create the object again")
        deadline = Deadline(max(0.0, timeout_s))
        own = Contribution(size_bytes, complaint, ours[:PIECE_BYTES])
        parts = [_decode_contribution(packed) for packed in self._gather(msgspec.msgpack.encode(own), deadline)]
        self._compare(parts)
        collected = [bytearray(part.data) for part in parts]
        largest = max(len(ranks) for ranks in self._hosts) * size_bytes
        try:
            for start in range(PIECE_BYTES, largest, PIECE_BYTES):
                pieces = self._gather(ours[start : start + PIECE_BYTES], deadline)
                for whole, piece in zip(collected, pieces, strict=True):
                    whole += piece
        except FabricError as failure:
            self._over = str(failure)
            raise
        return self._in_order_of_rank(size_bytes, collected)

    def _gather(self, data: bytes, deadline: Deadline) -> list[bytes]:
        waiting = WaitingLog(log, deadline.timeout_s)
        named = "; ".join(f"host {number} has ranks {list(ranks)}" for number, ranks in enumerate(self._hosts))

        def check() -> None:
            self._check()
            waiting.tell(f"not all hosts have come ({named})")

        try:
            return self._series.next(data, deadline, check)
        except TimedOut as failure:
            raise TimedOut(f"hosts did not arrive, counted as ranks here: {failure} ({named})") from failure

    def close(self) -> None:
        self._series.close()

    def _compare(self, parts: Sequence[Contribution]) -> None:
        for part in parts:
            if part.complaint:
                raise InvalidParam(part.complaint)
        for ranks, part in zip(self._hosts, parts, strict=True):
            if part.size_bytes != parts[0].size_bytes:
                first, other = (
                    "called barrier" if size == 0 else f"brought {size} bytes to an all-gather"
                    for size in (parts[0].size_bytes, part.size_bytes)
                )
                raise InvalidParam(
                    f"rank {self._hosts[0][0]} {first}, rank {ranks[0]} {other}; all ranks must do the same"
                )

    def _in_order_of_rank(self, size_bytes: int, collected: Sequence[bytearray]) -> bytes:
        whole = bytearray(size_bytes * sum(len(ranks) for ranks in self._hosts))
        for ranks, data in zip(self._hosts, collected, strict=True):
            for place, rank in enumerate(ranks):
                whole[rank * size_bytes : (rank + 1) * size_bytes] = data[place * size_bytes : (place + 1) * size_bytes]
        return bytes(whole)
