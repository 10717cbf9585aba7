"""What the two ends of a way have of UCX, and whether they can use it together: a pure decision with its reason."""

from __future__ import annotations

import re

import msgspec

from memfabric_hybrid import settings
from memfabric_hybrid.transports import rdma_devices

# The oldest and the newest that are known to understand each other, though they are not the same.
_FIRST_ALIKE, _LAST_ALIKE = (1, 13), (1, 18)


class UcxEnd(msgspec.Struct, frozen=True, array_like=True):
    """One end: a version of UCX over these devices; or the sentence why it offers none."""

    version: str = ""
    transports: str = ""  # UCX's word: "ib" or "tcp"
    devices: str = ""
    obstacle: str = ""

    @property
    def is_rdma(self) -> bool:
        return not self.obstacle and self.transports != rdma_devices.TCP

    def __str__(self) -> str:
        if self.transports == rdma_devices.TCP:
            return f"UCX {self.version} over tcp ({self.devices}), as {settings.UCX_DEVICES.names[0]} says"
        return f"UCX {self.version} over RDMA ({self.devices})"


NOT_OFFERED = UcxEnd(obstacle="this end does not offer UCX")


def obstacle_between(own: UcxEnd, peer: UcxEnd) -> str:
    """Why UCX does not lead from one to the other; "" if it does."""
    if own.obstacle or peer.obstacle:
        return own.obstacle or f"the other end says: {peer.obstacle}"
    if own.transports != peer.transports:
        return f"here is {own}, there is {peer}: give both the same kind of device"
    if not _understand(own.version, peer.version):
        return (
            f"here is UCX {own.version}, there is UCX {peer.version}, which may not understand each other: install the "
            "same"
        )
    return ""


def _understand(one: str, other: str) -> bool:
    versions = _number(one), _number(other)
    return versions[0] == versions[1] or all(_FIRST_ALIKE <= version <= _LAST_ALIKE for version in versions)


def _number(version: str) -> tuple[int, ...]:
    """Major and minor."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))
