"""One rendezvous as one of its ranks sees it: arrivals and claims come and go, in etcd's order. Pure.

The round is complete at the first revision at which all ranks are there. Everybody who follows the revisions in order
finds the same one, whatever is deleted afterwards, and so nobody has to be told.
"""

from __future__ import annotations

import msgspec

from memfabric_hybrid.errors import FabricError, NotConnected, TimedOut
from memfabric_hybrid.store.state import rendezvous


class Arrival(msgspec.Struct, array_like=True, frozen=True):
    """What a rank writes down. `gave_up`: it was here and is not any more, but nobody should look for it."""

    size: int
    call: int  # the client's own name for the call
    gave_up: bool
    data: bytes


_decode = msgspec.msgpack.Decoder(Arrival).decode


def decode(value: bytes | None) -> Arrival | None:
    return None if value is None else _decode(value)


class Round:
    def __init__(self, group: str, number: int, size: int) -> None:
        self.size = size
        self.lost: int | None = None  # a rank that is not here, and whose claim has ended: do not wait any longer
        self.is_complete = False
        self.parts: list[bytes] = []  # all of them, once it is complete
        self._name = (group, number)
        self._here: dict[int, bytes] = {}
        self._gave_up: set[int] = set()
        self._claimed: set[int] = set()
        self._unclaimed: set[int] = set()  # whose claim has ended since they arrived

    def start(self, arrivals: dict[int, Arrival], claimed: set[int]) -> None:
        """Everything at one revision; also in the middle, when what happened meanwhile cannot be told."""
        ended = (self._claimed - claimed) | (self._unclaimed - claimed)
        self._here.clear()
        self._gave_up.clear()
        self._claimed = set(claimed)
        for rank, arrival in arrivals.items():
            self.changed(rank, arrival)
        for rank in ended:
            self.claim_ended(rank)

    def changed(self, rank: int, arrival: Arrival | None) -> None:
        """None: it is gone. One that counts on another size is not of this round."""
        if arrival is not None and arrival.size != self.size:
            return
        self._here.pop(rank, None)
        self._gave_up.discard(rank)
        if rank in self._unclaimed and (arrival is None or arrival.gave_up):
            self.claim_ended(rank)
        if arrival is None or not 0 <= rank < self.size:
            return
        if arrival.gave_up:
            self._gave_up.add(rank)
            return
        self._here[rank] = arrival.data
        if len(self._here) == self.size and not self.is_complete:
            self.is_complete = True
            self.parts = [self._here[place] for place in range(self.size)]

    def claimed(self, rank: int) -> None:
        self._claimed.add(rank)
        self._unclaimed.discard(rank)

    def claim_ended(self, rank: int) -> None:
        self._claimed.discard(rank)
        if rank in self._here:
            self._unclaimed.add(rank)
        elif rank < self.size and self.lost is None:
            self.lost = rank

    def failure(self, timeout_s: float) -> FabricError:
        """Why it is over for who has withdrawn."""
        if self.lost is not None:
            return NotConnected(rendezvous.lost(self._name, self.lost))
        missing = [rank for rank in range(self.size) if rank not in self._here and rank not in self._gave_up]
        return TimedOut(rendezvous.too_late(self._name, self.size, missing, self._gave_up, timeout_s))
