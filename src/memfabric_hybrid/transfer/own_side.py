"""This process's side of a submitted transfer: a buffer and an address, or addresses and lengths."""

from __future__ import annotations

from typing import Any, NamedTuple

from memfabric_hybrid.api import arguments


class OwnSide(NamedTuple):
    """The pieces as the core takes them, and what must stay alive meanwhile."""

    pieces: tuple[Any, Any, Any]
    kept: object = None

    @classmethod
    def of(cls, buffers: Any, peer_buffers: Any, lengths: Any, *, written_by: str = "") -> OwnSide:
        if lengths is None:
            start, size_bytes, kept = arguments.extent("buffers", buffers, written_by=written_by)
            return cls(([start], [peer_buffers], [size_bytes]), kept)
        if hasattr(lengths, "__len__"):
            return cls((buffers, peer_buffers, lengths))
        return cls(([buffers], [peer_buffers], [arguments.u64("lengths", lengths)]))
