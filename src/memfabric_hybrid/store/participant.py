"""A participant's calls as messages, and replies as results. Shared by every Store that talks to a `StoreState`."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TypeVar

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import FabricError, TimedOut, failure_of
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.interface import LookAround, Snapshot, Store
from memfabric_hybrid.store.limits import (
    check_capacity,
    check_counter,
    check_excluded,
    check_gather,
    check_key,
    check_prefix,
    check_rank_value,
    check_value,
    rank_key,
)

LOOK_AROUND_S = 0.2  # how often a gather that waits for others looks around
LAST_LOOK_S = 0.2  # for the question whether they have met, when there is no reason to wait any longer
_Answer = TypeVar("_Answer", bound=m.ServerMessage)


class Participant(Store):
    """Subclasses carry the message to a state machine and bring the answer back."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)  # names of claims, calls and watches within this participant

    @abstractmethod
    def _ask(self, request: m.Request, deadline: Deadline, incarnation: str | None = None) -> m.ServerMessage:
        """The reply; a refusal is raised as its exception. Sets the time-out of a request that has one.

        With an `incarnation` only that life of the store is asked: OtherIncarnation.
        """

    def set(self, key: str, value: bytes, *, deadline: Deadline, ephemeral: bool = False) -> int:
        check_key(key)
        check_value(key, value)
        return _expect(self._ask(m.Set(key, value, ephemeral), deadline), m.Done).revision

    def get(self, key: str, *, deadline: Deadline) -> bytes | None:
        check_key(key)
        return _expect(self._ask(m.Get(key), deadline), m.Value).value

    def wait(self, key: str, *, deadline: Deadline) -> bytes:
        check_key(key)
        value = _expect(self._ask(m.Wait(key, 0.0), deadline), m.Value).value
        if value is None:
            raise FabricError(f"the store answered a wait for key {key!r} with nothing; it is not a store of this kind")
        return value

    def delete(self, key: str, *, deadline: Deadline) -> bool:
        check_key(key)
        return _expect(self._ask(m.Delete(key), deadline), m.Flag).value

    def add(self, key: str, delta: int, *, deadline: Deadline) -> int:
        check_key(key)
        check_counter(key, delta, "delta")
        return _expect(self._ask(m.Add(key, delta), deadline), m.Number).value

    def compare_and_set(
        self,
        key: str,
        expected: bytes | None,
        value: bytes,
        *,
        deadline: Deadline,
        ephemeral: bool = False,
        incarnation: str | None = None,
    ) -> tuple[bool, bytes | None]:
        check_key(key)
        check_value(key, value)
        request = m.CompareAndSet(key, expected, value, ephemeral)
        reply = _expect(self._ask(request, deadline, incarnation), m.Swapped)
        return reply.won, reply.value

    def append(self, key: str, suffix: bytes, *, deadline: Deadline) -> int:
        check_key(key)
        check_value(key, suffix)
        return _expect(self._ask(m.Append(key, suffix), deadline), m.Number).value

    def prefix(self, prefix: str, *, deadline: Deadline) -> Snapshot:
        check_prefix(prefix)
        reply = _expect(self._ask(m.ReadPrefix(prefix), deadline), m.Entries)
        return Snapshot(reply.revision, reply.entries)

    def claim_rank(
        self,
        group: str,
        capacity: int,
        value: bytes,
        *,
        wanted: int | None = None,
        excluded: Collection[int] = (),
        deadline: Deadline,
    ) -> int:
        check_capacity(group, capacity)
        check_key(rank_key(group, capacity - 1), "rank key")
        check_rank_value(group, value)
        check_excluded(group, excluded)
        request = m.ClaimRank(next(self._numbers), group, capacity, value, wanted, tuple(excluded))
        return _expect(self._ask(request, deadline), m.Number).value

    def free_ranks(self, group: str, capacity: int, most: int, *, deadline: Deadline) -> Sequence[int]:
        check_capacity(group, capacity)
        check_key(rank_key(group, capacity - 1), "rank key")
        return _expect(self._ask(m.FreeRanks(group, capacity, most), deadline), m.Ranks).ranks

    def release_rank(self, group: str, rank: int, *, deadline: Deadline) -> None:
        _expect(self._ask(m.ReleaseRank(group, rank), deadline), m.Done)

    def hold_range(self, name: str, size_bytes: int, *, asked: str = "", deadline: Deadline) -> int:
        check_key(name, "range name")
        return _expect(self._ask(m.HoldRange(name, size_bytes, asked), deadline), m.Number).value

    def release_range(self, name: str, *, deadline: Deadline) -> None:
        _expect(self._ask(m.ReleaseRange(name), deadline), m.Done)

    def gather(
        self,
        group: str,
        round: int,
        rank: int,
        size: int,
        data: bytes,
        *,
        deadline: Deadline,
        look_around: LookAround | None = None,
    ) -> list[bytes]:
        """One request however often we look around: a store that was busy meanwhile knows it again."""
        check_gather(group, rank, size, data)
        request = m.Gather(next(self._numbers), group, round, rank, size, data, 0.0)
        if look_around is None:
            return _gathered_parts(self._ask(request, deadline), size)
        asked = False
        while True:
            try:
                known = look_around()
            except FabricError:
                if asked:  # those who have met since count on us, and the answer may have been on its way
                    with suppress(FabricError):
                        return _gathered_parts(self._ask(request, Deadline(LAST_LOOK_S)), size)
                raise
            if known is not None:
                return known
            asked = True
            remaining_s = deadline.remaining_s()  # not in too small pieces: the last one says who is missing
            patience = Deadline(LOOK_AROUND_S if remaining_s > 1.5 * LOOK_AROUND_S else remaining_s)
            try:
                return _gathered_parts(self._ask(request, patience), size)
            except TimedOut:
                if deadline.expired:
                    raise


def _gathered_parts(reply: m.ServerMessage, size: int) -> list[bytes]:
    """The result of a gather; a refusal is raised."""
    if type(reply) is m.Arrived:
        return [b""] * size
    if type(reply) is m.Refused:
        raise failure_of(reply.code, reply.sentence)
    return _expect(reply, m.Gathered).parts


def _expect(reply: m.ServerMessage, kind: type[_Answer]) -> _Answer:
    if not isinstance(reply, kind):
        raise FabricError(f"the store answered {type(reply).__name__} where {kind.__name__} belongs")
    return reply
