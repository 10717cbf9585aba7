"""What an object of Share Memory is made of, from the moment all ranks are there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from memfabric_hybrid import _native
from memfabric_hybrid.address_space.pool import Pool
from memfabric_hybrid.shm.departures import Departures
from memfabric_hybrid.shm.inter_host_exchange import InterHostExchange

if TYPE_CHECKING:
    from memfabric_hybrid.shm.runtime import Runtime


class Foundation(msgspec.Struct, frozen=True):
    """What a ShareMemory stands on; it owns all of it from its own creation on."""

    runtime: Runtime
    object_id: int
    pool: Pool
    space: _native.Space
    page_fd: int  # our control page, shown to neighbours again when the store was away
    members: list[int]  # the ranks of this host
    inter_host: InterHostExchange | None  # None: there is one host only
    departures: Departures
