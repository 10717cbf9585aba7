"""Groups of ranks and who claimed which. Pure; the claim's key and value live in the keyspace, not here."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import msgspec

from memfabric_hybrid.errors import Duplicated, InvalidParam, NoResources
from memfabric_hybrid.store.limits import check_capacity, shown


class Claim(NamedTuple):
    """`number` is the client's own name for the claim: a repeated request is recognised by it."""

    session: bytes
    number: int


class Group(msgspec.Struct):
    """Exists while somebody holds a rank of it; the first claim decides the capacity."""

    capacity: int
    claims: dict[int, Claim] = msgspec.field(default_factory=dict)
    members: dict[bytes, int] = msgspec.field(default_factory=dict)  # session → how many ranks it has


class RankTable:
    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}

    def claimed(self) -> dict[str, tuple[int, list[int]]]:
        """Of every group that somebody is in: its capacity, and the ranks that are taken."""
        return {name: (group.capacity, sorted(group.claims)) for name, group in self._groups.items()}

    def holder(self, group: str, rank: int) -> Claim | None:
        found = self._groups.get(group)
        return found.claims.get(rank) if found else None

    def is_member(self, group: str, session: bytes) -> bool:
        """Whether the session holds any rank of it."""
        found = self._groups.get(group)
        return found is not None and session in found.members

    def has(self, group: str, claim: Claim) -> bool:
        """Whether this very claim was granted before."""
        found = self._groups.get(group)
        return found is not None and claim in found.claims.values()

    def find(
        self, name: str, capacity: int, claim: Claim, wanted: int | None = None, excluded: Collection[int] = ()
    ) -> int:
        """The rank that `take` may take; the same claim again finds the same rank. Changes nothing."""
        check_capacity(name, capacity)
        if wanted is not None and not 0 <= wanted < capacity:
            raise InvalidParam(f"wanted rank {wanted} of group {shown(name)} is outside 0 to {capacity - 1}")
        group = self._groups.get(name) or Group(capacity)
        if group.capacity != capacity:
            raise InvalidParam(
                f"the members of {shown(name.removesuffix('/ranks'))} have a world size of {group.capacity}, this one "
                f"says {capacity}; all must pass the same"
            )
        for rank, holder in group.claims.items():
            if holder == claim:
                return rank
        if wanted is None:
            return _lowest_free(name, group, excluded)
        if wanted in group.claims:
            raise Duplicated(f"rank {wanted} of {shown(name.removesuffix('/ranks'))} is taken by another member")
        return wanted

    def take(self, name: str, capacity: int, rank: int, claim: Claim) -> None:
        group = self._groups.setdefault(name, Group(capacity))
        if group.claims.get(rank) != claim:  # a claim may be repeated
            group.claims[rank] = claim
            group.members[claim.session] = group.members.get(claim.session, 0) + 1

    def release(self, name: str, rank: int) -> None:
        group = self._groups[name]
        session = group.claims.pop(rank).session
        group.members[session] -= 1
        if not group.members[session]:
            del group.members[session]
        if not group.claims:
            del self._groups[name]


def _lowest_free(name: str, group: Group, excluded: Collection[int]) -> int:
    barred = set(excluded)
    for rank in range(group.capacity):
        if rank not in group.claims and rank not in barred:
            return rank
    raise NoResources(
        f"all ranks of group {shown(name)} are taken: capacity {group.capacity}, {len(group.claims)} claimed, "
        f"{len(barred)} excluded by the caller; raise the world size or let members leave first"
    )
