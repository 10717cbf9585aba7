"""Groups of ranks and who claimed which. Pure; the claim's key and value live in the keyspace, not here."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from typing import NamedTuple

import msgspec

from memfabric_hybrid.errors import Duplicated, InvalidParam, NoResources
from memfabric_hybrid.store.limits import check_capacity, check_wanted, is_kept, shown
from memfabric_hybrid.store.state.next_deadline import NEVER

SETTLE_S = 5.0  # from the claim of a rank to what its owner writes first: members do that at once
OFFER_S = 2.0  # how long a rank that somebody was told of is not the first one that others are told of


class Claim(NamedTuple):
    """`number` is the client's own name for the claim: a repeated request is recognised by it."""

    session: bytes
    number: int


class Group(msgspec.Struct):
    """Exists while somebody holds a rank of it; the first claim decides the capacity.

    Nothing here is looked through rank by rank: the ten thousandth claim costs what the first one does.
    """

    capacity: int
    claims: dict[int, Claim] = msgspec.field(default_factory=dict)
    ranks: dict[Claim, int] = msgspec.field(default_factory=dict)  # the same, by claim
    members: dict[bytes, int] = msgspec.field(default_factory=dict)  # session → how many ranks it has
    unsettled: dict[int, float] = msgspec.field(default_factory=dict)  # rank without a word of its owner → since when
    taken_below: int = 0  # every rank below this one is taken
    offers: dict[int, tuple[bytes, float]] = msgspec.field(default_factory=dict)  # rank → to whom, until when
    offered: dict[bytes, int] = msgspec.field(default_factory=dict)  # the same, by session

    def take(self, rank: int, claim: Claim, now: float) -> None:
        self.claims[rank] = claim
        self.unsettled[rank] = now
        self.ranks[claim] = rank
        self.members[claim.session] = self.members.get(claim.session, 0) + 1
        self._withdraw_offer(rank)
        while self.taken_below in self.claims:
            self.taken_below += 1

    def release(self, rank: int) -> None:
        claim = self.claims.pop(rank)
        self.unsettled.pop(rank, None)
        del self.ranks[claim]
        self.members[claim.session] -= 1
        if not self.members[claim.session]:
            del self.members[claim.session]
        self.taken_below = min(self.taken_below, rank)

    def free(self) -> Iterator[int]:
        """The free ranks, the lowest first."""
        return (rank for rank in range(self.taken_below, self.capacity) if rank not in self.claims)

    def idle(self, now: float) -> Iterator[int]:
        """Ranks whose owners have had the time to write something, and have not; the oldest first."""
        return (rank for rank, since in self.unsettled.items() if now - since >= SETTLE_S)

    def offer(self, session: bytes, now: float) -> int | None:
        """The lowest free rank that nobody else was told of just now; if there is none, the lowest.

        Nobody has a right to it: it is for those who come at the same time, who would all ask for the same one. Whoever
        has it already, and has only to be heard again by a store that was restarted, gets it.
        """
        if session in self.offered:
            self._withdraw_offer(self.offered[session])
        lowest = next(self.free(), None)
        for rank in self.free():
            until = self.offers[rank][1] if rank in self.offers else now
            if until <= now:
                self._withdraw_offer(rank)
                self.offers[rank], self.offered[session] = (session, now + OFFER_S), rank
                return rank
        return lowest

    def _withdraw_offer(self, rank: int) -> None:
        if rank in self.offers:
            del self.offered[self.offers.pop(rank)[0]]


class RankTable:
    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}

    def claimed(self) -> dict[str, tuple[int, list[int]]]:
        """Of every group that somebody is in: its capacity, and the ranks that are taken."""
        return {name: (group.capacity, sorted(group.claims)) for name, group in self._groups.items()}

    def holder(self, group: str, rank: int) -> Claim | None:
        found = self._groups.get(group)
        return found.claims.get(rank) if found else None

    def is_held_by(self, group: str, rank: int, session: bytes) -> bool:
        holder = self.holder(group, rank)
        return holder is not None and holder.session == session

    def is_member(self, group: str, session: bytes) -> bool:
        """Whether the session holds any rank of it."""
        found = self._groups.get(group)
        return found is not None and session in found.members

    def has(self, group: str, claim: Claim) -> bool:
        """Whether this very claim was granted before."""
        found = self._groups.get(group)
        return found is not None and claim in found.ranks

    def find(
        self, name: str, capacity: int, claim: Claim, wanted: int | None = None, excluded: Collection[int] = ()
    ) -> int:
        """The rank that `take` may take; the same claim again finds the same rank. Changes nothing."""
        check_capacity(name, capacity)
        check_wanted(name, capacity, wanted)
        group = self._groups.get(name) or Group(capacity)
        if group.capacity != capacity:
            raise InvalidParam(
                f"the members of {shown(name.removesuffix('/ranks'))} have a world size of {group.capacity}, this one "
                f"says {capacity}; all must pass the same"
            )
        if claim in group.ranks:
            return group.ranks[claim]
        if wanted is None:
            barred = set(excluded)
            wanted = next((rank for rank in group.free() if rank not in barred), None)
            if wanted is None:
                raise NoResources(
                    f"all ranks of group {shown(name)} are taken: capacity {group.capacity}, {len(group.claims)} "
                    f"claimed, {len(barred)} excluded by the caller{_of_silent_owners(group)}; raise the world size or "
                    "let members leave first"
                )
        elif wanted in group.claims:
            raise Duplicated(f"rank {wanted} of {shown(name.removesuffix('/ranks'))} is taken by another member")
        return wanted

    def in_the_way(
        self, name: str, capacity: int, claim: Claim, wanted: int | None, excluded: Collection[int], since: float
    ) -> list[int]:
        """Taken ranks without which the claim would be granted, of owners that have not written a word since then.

        A capacity that nobody but they have named is in the way with all of its ranks.
        """
        group = self._groups.get(name)
        if group is None or claim in group.ranks:
            return []
        if group.capacity != capacity:
            silent = [rank for rank, claimed_at in group.unsettled.items() if claimed_at <= since]
            return silent if len(silent) == len(group.claims) else []
        if wanted is not None:
            return [wanted] if group.unsettled.get(wanted, NEVER) <= since else []
        barred = set(excluded)
        if any(rank not in barred for rank in group.free()):
            return []
        silent = [rank for rank, at in group.unsettled.items() if at <= since and rank not in barred]
        return silent[:1]

    def settle(self, name: str, rank: int) -> None:
        """The owner of the rank has written what only that may write: it is a member."""
        group = self._groups.get(name)
        if group is not None:
            group.unsettled.pop(rank, None)

    def free(self, name: str, capacity: int, most: int, session: bytes = b"", now: float = -NEVER) -> tuple[int, ...]:
        """The lowest free ranks below `capacity`; before them the one that is offered to that session.

        Behind them those that would be given up for a member.
        """
        check_capacity(name, capacity)
        group = self._groups.get(name) or Group(capacity)
        first = group.offer(session, now) if session and most > 0 else None
        idle = group.idle(now) if is_kept(name) else iter(())
        rest = (rank for rank in itertools.chain(group.free(), idle) if rank < capacity and rank != first)
        return tuple(itertools.islice(rest if first is None else itertools.chain([first], rest), max(0, most)))

    def take(self, name: str, capacity: int, rank: int, claim: Claim, now: float = 0.0) -> None:
        group = self._groups.setdefault(name, Group(capacity))
        if group.claims.get(rank) != claim:  # a claim may be repeated
            group.take(rank, claim, now)

    def release(self, name: str, rank: int) -> None:
        group = self._groups[name]
        group.release(rank)
        if not group.claims:
            del self._groups[name]


def _of_silent_owners(group: Group) -> str:
    count = len(group.unsettled)
    return f", {count} by processes that have not come in yet and lose them {SETTLE_S:g} s later" if count else ""
