"""Rendezvous: all ranks of a (group, round) bring data and get everybody's. Barrier and all-gather are this. Pure.

Hot path: one dictionary look-up per arrival, one Send for the whole group when the last one comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from memfabric_hybrid.errors import Code, Duplicated, InvalidParam
from memfabric_hybrid.store.limits import (
    MAX_MEMBERS_GATHERS_BYTES,
    MAX_OTHERS_GATHERS_BYTES,
    MIB,
    SMALL_GATHER_BYTES,
    check_gather,
    check_timeout,
    is_kept,
    listed,
    shown,
)
from memfabric_hybrid.store.messages import Arrived, Gather, Gathered, Refused
from memfabric_hybrid.store.state.effects import Close, ConnectionId, Effect, Send
from memfabric_hybrid.store.state.next_deadline import NextDeadline
from memfabric_hybrid.store.state.room import Room

MAX_REMEMBERED_GROUPS = 256
MAX_REMEMBERED_BYTES = 64 * MIB

Name = tuple[str, int]  # group and round
Caller = tuple[bytes, int]  # session and its number of the call


class Arrival(msgspec.Struct, gc=False):  # a Struct, because one is made per member and round
    connection: ConnectionId
    caller: Caller
    deadline: float
    timeout_s: float
    data: bytes


class Rendezvous:
    """`gave_up`: ranks that arrived and whose deadline passed; they are not here, but nobody should look for them.
    `unclaimed`: ranks whose claim has ended since they arrived, and whose it was. They count as long as their
    connection lasts. `large_bytes`: what those bring that bring more than a little.
    """

    __slots__ = ("arrivals", "gave_up", "large_bytes", "name", "size", "unclaimed")

    def __init__(self, name: Name, size: int) -> None:
        self.name = name
        self.size = size
        self.arrivals: dict[int, Arrival] = {}
        self.gave_up: set[int] = set()
        self.unclaimed: dict[int, bytes] = {}
        self.large_bytes = 0

    def missing(self) -> list[int]:
        return [rank for rank in range(self.size) if rank not in self.arrivals and rank not in self.gave_up]


class Finished(NamedTuple):
    """The last result of a group, for a member whose connection broke before the answer reached it."""

    round: int
    callers: list[Caller]
    answer: Gathered | Arrived
    size_bytes: int


class RendezvousTable:
    """`is_held_by(group, rank, session)`: the session has claimed that rank."""

    def __init__(self, next_deadline: NextDeadline, is_held_by: Callable[[str, int, bytes], bool]) -> None:
        self._next_deadline = next_deadline
        self._is_held_by = is_held_by
        self.room = Room("gathers that are not complete", MAX_MEMBERS_GATHERS_BYTES, MAX_OTHERS_GATHERS_BYTES)
        self._open: dict[Name, Rendezvous] = {}
        self.waiting: dict[ConnectionId, tuple[Rendezvous, int]] = {}
        self._finished: dict[str, Finished] = {}
        self._finished_bytes = 0

    def arrive(self, connection: ConnectionId, session: bytes, request: Gather, now: float) -> list[Effect]:
        check_gather(request.group, request.rank, request.size, request.data)
        deadline = now + check_timeout(request.timeout_s)
        name = (request.group, request.round)
        caller = (session, request.call)
        rendezvous = self._open.get(name)
        if rendezvous is None:
            finished = self._finished.get(request.group)
            if finished is not None and finished.round == request.round and _repeats(finished, request, caller):
                return [Send((connection,), finished.answer)]
            rendezvous = Rendezvous(name, request.size)
        elif rendezvous.size != request.size:
            raise InvalidParam(
                f"gather {shown(request.group)} round {request.round}: rank {request.rank} says {request.size} ranks, "
                f"those before it said {rendezvous.size}"
            )
        effects: list[Effect] = []
        earlier = rendezvous.arrivals.get(request.rank)
        if earlier is not None and earlier.caller != caller:
            raise Duplicated(
                f"gather {shown(request.group)} round {request.round}: rank {request.rank} has arrived already"
            )
        if len(request.data) > SMALL_GATHER_BYTES:
            self._take_room(rendezvous, request, earlier)
        elif earlier is not None:
            self._give_back_room(rendezvous, earlier)
        self._open[name] = rendezvous
        if earlier is not None:
            del self.waiting[earlier.connection]
            effects.append(Close(earlier.connection, "its gather was repeated on a new connection"))
        rendezvous.gave_up.discard(request.rank)
        rendezvous.arrivals[request.rank] = Arrival(connection, caller, deadline, request.timeout_s, request.data)
        if len(rendezvous.arrivals) == rendezvous.size:
            effects.append(self._finish(rendezvous))
        else:
            self.waiting[connection] = (rendezvous, request.rank)
            if deadline < self._next_deadline.at:
                self._next_deadline.at = deadline
        return effects

    def withdraw(self, connection: ConnectionId) -> list[Effect]:
        """The connection is gone; so is its arrival."""
        found = self.waiting.pop(connection, None)
        return [] if found is None else self._forget_arrival(*found)

    def rank_gone(self, group: str, rank: int, session: bytes) -> list[Effect]:
        """The session has lost that rank: whoever waits for it will wait no longer."""
        effects: list[Effect] = []
        for rendezvous in [found for found in self._open.values() if found.name[0] == group]:
            if rank in rendezvous.arrivals:
                rendezvous.unclaimed.setdefault(rank, session)
            elif rank < rendezvous.size:
                effects.append(self._call_off(rendezvous, rank))
        return effects

    def expire(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for rendezvous in list(self._open.values()):
            late = [(rank, arrival) for rank, arrival in rendezvous.arrivals.items() if arrival.deadline <= now]
            if not late:
                continue
            refusals = [_timed_out(rendezvous, arrival.timeout_s) for _, arrival in late]
            for (rank, arrival), refusal in zip(late, refusals, strict=True):
                if self.waiting.pop(arrival.connection, None) is None:
                    continue  # told already, of one before it that is gone
                rendezvous.gave_up.add(rank)
                effects.append(Send((arrival.connection,), refusal))
                effects += self._forget_arrival(rendezvous, rank)
        return effects

    def deadlines(self) -> Iterator[float]:
        return (arrival.deadline for rendezvous in self._open.values() for arrival in rendezvous.arrivals.values())

    def _finish(self, rendezvous: Rendezvous) -> Send:
        self._drop(rendezvous)
        arrivals = [rendezvous.arrivals[rank] for rank in range(rendezvous.size)]
        parts = [arrival.data for arrival in arrivals]
        answer = Gathered(parts) if any(parts) else Arrived(rendezvous.size)
        group, round = rendezvous.name
        self._remember(group, Finished(round, [arrival.caller for arrival in arrivals], answer, sum(map(len, parts))))
        return Send([arrival.connection for arrival in arrivals], answer)

    def _take_room(self, rendezvous: Rendezvous, request: Gather, earlier: Arrival | None) -> None:
        """What arrived before is replaced."""
        is_members = is_kept(request.group)
        more_bytes = len(request.data) - (0 if earlier is None else _large_bytes(earlier))
        self.room.check(more_bytes, is_members=is_members)
        self.room.take(more_bytes, is_members=is_members)
        rendezvous.large_bytes += more_bytes

    def _give_back_room(self, rendezvous: Rendezvous, arrival: Arrival) -> None:
        large_bytes = _large_bytes(arrival)
        if large_bytes:
            rendezvous.large_bytes -= large_bytes
            self.room.give_back(large_bytes, is_members=is_kept(rendezvous.name[0]))

    def _drop(self, rendezvous: Rendezvous) -> None:
        del self._open[rendezvous.name]
        if rendezvous.large_bytes:
            self.room.give_back(rendezvous.large_bytes, is_members=is_kept(rendezvous.name[0]))
        for arrival in rendezvous.arrivals.values():
            self.waiting.pop(arrival.connection, None)

    def _forget_arrival(self, rendezvous: Rendezvous, rank: int) -> list[Effect]:
        """Those who are left wait for the rank again; but not if who had it has lost it meanwhile."""
        self._give_back_room(rendezvous, rendezvous.arrivals.pop(rank))
        owner = rendezvous.unclaimed.get(rank)
        if not rendezvous.arrivals:
            del self._open[rendezvous.name]
        elif owner is not None and not self._is_held_by(rendezvous.name[0], rank, owner):
            return [self._call_off(rendezvous, rank)]
        return []

    def _call_off(self, rendezvous: Rendezvous, rank: int) -> Send:
        self._drop(rendezvous)
        connections = [arrival.connection for arrival in rendezvous.arrivals.values()]
        return Send(connections, Refused(Code.NOT_CONNECTED, lost(rendezvous.name, rank)))

    def _remember(self, group: str, finished: Finished) -> None:
        earlier = self._finished.pop(group, None)  # popped, so that the order of the dictionary is the order of age
        self._finished_bytes += finished.size_bytes - (earlier.size_bytes if earlier else 0)
        self._finished[group] = finished
        while len(self._finished) > 1 and (
            len(self._finished) > MAX_REMEMBERED_GROUPS or self._finished_bytes > MAX_REMEMBERED_BYTES
        ):
            self._finished_bytes -= self._finished.pop(next(iter(self._finished))).size_bytes


def _large_bytes(arrival: Arrival) -> int:
    size_bytes = len(arrival.data)
    return size_bytes if size_bytes > SMALL_GATHER_BYTES else 0


def _repeats(finished: Finished, request: Gather, caller: Caller) -> bool:
    return request.size == len(finished.callers) and finished.callers[request.rank] == caller


def too_late(name: Name, size: int, missing: list[int], gave_up: set[int], timeout_s: float) -> str:
    also = f" (arrived, but gave up before: {listed(sorted(gave_up))})" if gave_up else ""
    within = f"within {timeout_s:.2f} s: {listed(missing)}{also}"
    return f"{_shown(name)}: {len(missing)} of {size} ranks did not arrive {within}"


def lost(name: Name, rank: int) -> str:
    return f"{_shown(name)}: rank {rank} left or died before all had arrived"


def _timed_out(rendezvous: Rendezvous, timeout_s: float) -> Refused:
    missing = rendezvous.missing()
    return Refused(Code.TIMEOUT, too_late(rendezvous.name, rendezvous.size, missing, rendezvous.gave_up, timeout_s))


def _shown(name: Name) -> str:
    group, round = name
    return f"gather {shown(group)} round {round}"
