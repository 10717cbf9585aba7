"""Watches, while ranks come together, whose process is a member of the cluster.

A rank that dies meanwhile may have shown itself to nobody yet, so that no neighbour can miss it. The store can: it
knows every member's claim of its rank from the moment it has one.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.membership.member import RANKS_KEY, Member
from memfabric_hybrid.store import Watch, WatchUpdate

GONE = "its process died, left the cluster or did not answer the store within its heartbeat time-out"


class CreateMonitor:
    """While the block runs, `on_gone(rank)` is called for every rank that was a member and is not any more.

    Ranks that were no members when the block began are waited for like everybody; it is their departure that counts.
    """

    def __init__(self, member: Member, rank_size: int, on_gone: Callable[[int], None], deadline: Deadline) -> None:
        self._member = member
        self._rank_size = rank_size
        self._on_gone = on_gone  # on the store's event thread; must not block
        self._deadline = deadline
        self._incarnation = ""
        self._claims: dict[int, bytes] = {}
        self._watch: Watch | None = None

    def __enter__(self) -> CreateMonitor:
        prefix = RANKS_KEY.format(kind=self._member.entry.kind)
        self._watch = self._member.store.watch(f"{prefix}/", self._on_update, deadline=self._deadline)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watch is not None:
            self._watch.close()

    def _on_update(self, update: WatchUpdate) -> None:
        names = ((key.rpartition("/")[2], claim) for key, claim in update.entries.items())
        seen = {int(name): claim for name, claim in names if name.isdecimal()}
        if update.snapshot:
            same_store = update.incarnation == self._incarnation  # one that was restarted hears from members anew
            absent = dict.fromkeys(self._claims) if same_store else {}
            self._incarnation = update.incarnation
            if not same_store:
                self._claims.clear()
            seen = {**absent, **seen}
        for rank, claim in seen.items():
            before = self._claims.pop(rank, None)
            if claim is not None:
                self._claims[rank] = claim
            if before is not None and before != claim and rank < self._rank_size:
                self._on_gone(rank)
