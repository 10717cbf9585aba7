"""What stands on a pool, as the pool sees it: it asks its owner one question, and tells it who comes and goes."""

from __future__ import annotations

from collections.abc import Sequence

from memfabric_hybrid.membership.roster import Joined, Left, Stamp
from memfabric_hybrid.store import Refusal
from memfabric_hybrid.transports.routes import MAPPED_MEMORY, NETWORK, Route
from memfabric_hybrid.transports.ucx_ends import UcxEnd


class PoolOwner:
    """Big Memory and Share Memory each have one; what is not overridden does nothing.

    Threads: any, often with the group's lock held, unless a method says otherwise. Nothing here may block or call the
    pool.
    """

    def route(self, tag: str, op_type: int, ucx: UcxEnd, *, same_host: bool) -> Route:
        """Which way leads to a rank that has said this about itself."""
        return Route(MAPPED_MEMORY, "both are on one host") if same_host else Route(NETWORK, "it is on another host")

    def take_enclosed(self, rank: int, fds: Sequence[int]) -> None:
        """What a neighbour encloses with its share, whenever it shows it; the descriptors stay the pool's.

        A FabricError refuses the neighbour.
        """

    def rank_gone(self, rank: int, reason: str) -> None:
        """It took part and is gone, perhaps our own."""

    def rank_back(self, rank: int, stamp: Stamp) -> None:
        """It takes part, for the first time or again."""

    def keys_refused(self, refusals: Sequence[Refusal]) -> None:
        """Keys that the store gave to others while it was away, of this object or not."""

    def group_changed(self, change: Joined | Left) -> None:
        """The same for the program's own handlers: on the notices thread, where anything may be called."""
