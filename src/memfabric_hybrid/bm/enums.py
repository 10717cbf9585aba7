"""The enums of Big Memory; the numbers are the documents'."""

from __future__ import annotations

from memfabric_hybrid.address_space.layout import Tier
from memfabric_hybrid.api.public_enum import PublicEnum


class BmCopyType(PublicEnum):
    """From where to where a copy goes: L local, H local host, G global, GH global host; AUTO decides by address."""

    L2G = 0
    G2L = 1
    G2H = 2
    H2G = 3
    L2GH = 4
    GH2L = 5
    GH2H = 6
    H2GH = 7
    G2G = 8
    AUTO = 9


class BmMemType(PublicEnum):
    """Kind of memory: DEVICE types mean the HBM space, HOST types the DRAM space."""

    LOCAL_DEVICE = 0
    LOCAL_HOST = 1
    DEVICE = 2
    HOST = 3

    @property
    def tier(self) -> Tier:
        return Tier.DRAM if self in (BmMemType.LOCAL_HOST, BmMemType.HOST) else Tier.HBM


class BmGroupEvent(PublicEnum):
    """What a group-event handler is told: a rank has joined, or has left or died."""

    JOIN_EVENT = 0
    LEAVE_EVENT = 1
