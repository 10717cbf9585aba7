"""The scenes: whose memory it is. The numbers are the documents'."""

from __future__ import annotations

from memfabric_hybrid.api.public_enum import PublicEnum


class Scene(PublicEnum):
    """LOCAL: this process's alone. SHARED: the ranks of a host see each other's memory."""

    LOCAL = 0
    SHARED = 1
