"""What one object is, as its creator decided it; for the whole life of its pool."""

from __future__ import annotations

import msgspec

from memfabric_hybrid.address_space.layout import Layout


class PoolSpec(msgspec.Struct, frozen=True):
    name: str  # in the store: "bm/7"
    title: str  # in sentences: "bm object 7"
    layout: Layout
    tag: str = ""  # ours; neighbours see it in our share
    op_type: int = 0  # likewise
    follows_all: bool = True  # hears of every rank; otherwise of its own host, and of those that it has to do with
