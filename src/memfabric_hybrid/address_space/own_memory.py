"""Our own part of one object: the segments in our slots, mapped in our range."""

from __future__ import annotations

from memfabric_hybrid import _native
from memfabric_hybrid.address_space import segments
from memfabric_hybrid.address_space.layout import Layout, Tier
from memfabric_hybrid.address_space.messages import SegmentFact
from memfabric_hybrid.address_space.segments import Placement, Segment
from memfabric_hybrid.errors import InvalidParam


class OwnMemory:
    """Owns the segments. `extend` and `close` by one thread at a time; readers see a segment when it is whole."""

    def __init__(self, title: str, rank: int, layout: Layout, space: _native.Space, mapped: list[Segment]) -> None:
        self._title = title
        self._rank = rank
        self._layout = layout
        self._space = space
        self._segments = tuple(mapped)

    def size_bytes(self, tier: Tier) -> int:
        return self._space._allocated(self._rank, int(tier))

    def shown(self) -> tuple[tuple[SegmentFact, ...], list[int]]:
        """Our segments and a descriptor for each, which stays ours."""
        mine = self._segments  # read once: another thread may extend
        facts = tuple(SegmentFact(int(s.tier), s.slot_offset, s.size_bytes, s.adopted) for s in mine)
        return facts, [s.fd for s in mine]

    def extend(self, tier: Tier, size_bytes: int, placement: Placement) -> None:
        """Adds memory behind what we have."""
        used = self.size_bytes(tier)
        limit = self._layout.max_bytes(tier)
        if used + size_bytes > limit:
            raise InvalidParam(
                f"{self._title}: {size_bytes} bytes more {tier.name} on top of {used} is beyond the limit of "
                f"{limit} (max_{tier.name.lower()}_size)"
            )
        segments.check_room(len(self._segments))
        segment = segments.create(tier, used, size_bytes, placement)
        try:
            self._space._attach(self._rank, int(tier), segment.fd, 0, used, size_bytes)
        except BaseException:
            segment.close()
            raise
        self._segments = (*self._segments, segment)

    def close(self) -> None:
        """The bytes live on where somebody maps them; idempotent."""
        mine, self._segments = self._segments, ()
        for segment in mine:
            segment.close()
