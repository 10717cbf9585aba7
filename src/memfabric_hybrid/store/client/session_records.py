"""What this participant owns in the store, as it would tell a store that has forgotten it. Pure; not thread-safe."""

from __future__ import annotations

from collections.abc import Iterable

from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.limits import rank_key

_ALWAYS_BOUND = frozenset((m.ClaimRank, m.ReleaseRank, m.HoldRange, m.ReleaseRange, m.StartWatch))
_BOUND_BY_KEY = frozenset((m.Set, m.CompareAndSet, m.Delete))
GRANTING = frozenset((m.ClaimRank, m.HoldRange, m.Set, m.CompareAndSet))  # of these, those that give the session more


class SessionRecords:
    def __init__(self) -> None:
        self._ephemerals: dict[str, bytes] = {}
        self._claims: dict[str, m.RestoredClaim] = {}  # by the key of the rank
        self._ranges: dict[str, m.RestoredRange] = {}

    def __str__(self) -> str:
        """What there is, as a line of the log names it: "rank 3 of bm/ranks, 2 keys and 1 range"."""
        ranks = [f"rank {claim.rank} of {claim.group}" for claim in self._claims.values()]
        counts = [(len(self._ephemerals), "key"), (len(self._ranges), "range")]
        parts = ranks + [f"{count} {name}{'s' if count > 1 else ''}" for count, name in counts if count]
        return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]])) or "nothing"

    def concern(self, request: m.Request) -> bool:
        """The request creates, changes or removes something that belongs to the session."""
        if type(request) in _BOUND_BY_KEY:
            key = request.key  # type: ignore[union-attr]
            return key in self._ephemerals or key in self._claims or getattr(request, "ephemeral", False)
        return type(request) in _ALWAYS_BOUND

    def claim_of(self, key: str) -> m.RestoredClaim | None:
        """The rank of ours that the key is."""
        return self._claims.get(key)

    def owned_bytes(self, without: str) -> int:
        """What the ephemeral keys and ranks take, as the server counts it, one of them left out."""
        claims = {key: claim.value for key, claim in self._claims.items()}
        owned = {**self._ephemerals, **claims}
        return sum(len(value) + 4 * len(key) + 64 for key, value in owned.items() if key != without)

    def give_back(self, request: m.Request) -> bool:
        """Forgets what the request releases; True if that was ours."""
        if isinstance(request, m.ReleaseRank):
            return self._gone(rank_key(request.group, request.rank))
        if isinstance(request, m.Delete):
            return self._gone(request.key)
        return isinstance(request, m.ReleaseRange) and self._ranges.pop(request.name, None) is not None

    def record(self, request: m.Request, reply: m.ServerMessage) -> None:
        """The store has done what the request says."""
        won = not isinstance(reply, m.Swapped) or reply.won
        if isinstance(request, (m.Set, m.CompareAndSet)) and won:
            self._written(request.key, request.value, request.ephemeral)
        elif isinstance(request, m.ClaimRank) and isinstance(reply, m.Number):
            claim = m.RestoredClaim(request.group, reply.value, request.capacity, request.value, request.claim)
            self._claims[rank_key(request.group, reply.value)] = claim
        elif isinstance(request, m.HoldRange) and isinstance(reply, m.Number):
            self._ranges[request.name] = m.RestoredRange(request.name, reply.value, request.size_bytes)

    def forget(self, refusals: Iterable[m.Refusal]) -> None:
        """What the store would not take back belongs to somebody else now."""
        for refusal in refusals:
            if refusal.kind == "range":
                self._ranges.pop(refusal.name, None)
            elif refusal.kind in ("key", "rank"):
                self._gone(refusal.name)

    def restore_message(self, known_revision: int, watches: dict[int, str]) -> m.Restore:
        claims, ranges = tuple(self._claims.values()), tuple(self._ranges.values())
        return m.Restore(known_revision, dict(self._ephemerals), claims, ranges, watches)

    def _written(self, key: str, value: bytes, ephemeral: bool) -> None:
        claim = self._claims.get(key)
        if claim is not None:
            self._claims[key] = m.RestoredClaim(claim.group, claim.rank, claim.capacity, value, claim.claim)
        elif ephemeral:
            self._ephemerals[key] = value
        else:
            self._ephemerals.pop(key, None)

    def _gone(self, key: str) -> bool:
        ephemeral, claim = self._ephemerals.pop(key, None), self._claims.pop(key, None)
        return ephemeral is not None or claim is not None
