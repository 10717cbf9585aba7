"""Our own part of one object: the segments in our slots, mapped in our range.

Threads: `extend` and `close` in a turn of the pool, `duplicates` on the exchange's thread, the rest on any. `_lock`
guards the list of segments and keeps their descriptors open while they are duplicated; nothing else is locked under it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from memfabric_hybrid import _native
from memfabric_hybrid.address_space import segments
from memfabric_hybrid.address_space.layout import Tier
from memfabric_hybrid.address_space.messages import SegmentFact
from memfabric_hybrid.address_space.pool_spec import PoolSpec
from memfabric_hybrid.address_space.segments import Placement, Segment
from memfabric_hybrid.errors import InvalidParam, resource_failure
from memfabric_hybrid.machine.file_descriptors import duplicate


class OwnMemory:
    """Maps the segments, and owns them once it is made. `enclosed_fds` stay the caller's; neighbours get them, too."""

    def __init__(
        self, spec: PoolSpec, space: _native.Space, mine: Sequence[Segment], enclosed_fds: Sequence[int] = ()
    ) -> None:
        self._spec = spec
        self._space = space
        self._rank = space.local_rank
        self._enclosed_fds = enclosed_fds
        self._lock = threading.Lock()
        for segment in mine:
            space._attach(self._rank, int(segment.tier), segment.fd, 0, segment.slot_offset, segment.size_bytes)
        space._activate(self._rank)
        self._segments = tuple(mine)

    def size_bytes(self, tier: Tier) -> int:
        return self._space._allocated(self._rank, int(tier))

    def shown(self) -> tuple[tuple[SegmentFact, ...], list[int]]:
        """Our segments, a descriptor for each, and the enclosed ones behind. They stay ours: for use in a turn."""
        mine = self._segments  # read once: another thread may extend
        facts = tuple(SegmentFact(int(s.tier), s.slot_offset, s.size_bytes) for s in mine)
        return facts, [*(s.fd for s in mine), *self._enclosed_fds]

    def duplicates(self) -> tuple[tuple[SegmentFact, ...], list[int]]:
        """The same with descriptors of the caller's own, all or none: ours may be closed before they are used."""
        duplicates: list[int] = []
        with self._lock:
            facts, fds = self.shown()
            try:
                for fd in fds:
                    duplicates.append(duplicate(fd))
            except OSError as error:
                for fd in duplicates:
                    os.close(fd)
                raise resource_failure(f"rank {self._rank} has no descriptor for its answer", error) from error
        return facts, duplicates

    def extend(self, tier: Tier, size_bytes: int, placement: Placement) -> None:
        """Adds memory behind what we have."""
        used = self.size_bytes(tier)
        limit = self._spec.layout.max_bytes(tier)
        if used + size_bytes > limit:
            raise InvalidParam(
                f"{self._spec.title}: {size_bytes} bytes more {tier.name} on top of {used} is beyond the limit of "
                f"{limit} (max_{tier.name.lower()}_size)"
            )
        segments.check_room(len(self._segments))
        segment = segments.create(tier, used, size_bytes, placement)
        try:
            self._space._attach(self._rank, int(tier), segment.fd, 0, used, size_bytes)
        except BaseException:
            segment.close()
            raise
        with self._lock:
            self._segments = (*self._segments, segment)

    def close(self) -> None:
        """The bytes live on where somebody maps them; idempotent."""
        with self._lock:
            mine, self._segments, self._enclosed_fds = self._segments, (), ()
        for segment in mine:
            segment.close()
