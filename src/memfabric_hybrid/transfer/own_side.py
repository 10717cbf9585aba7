"""This process's side of a submitted transfer: a buffer and an address, or addresses and lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, TypeAlias

from memfabric_hybrid.api import arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    # One, or many.
    Pieces: TypeAlias = SupportsIndex | Sequence[SupportsIndex] | npt.NDArray[np.integer[Any]] | memoryview


class OwnSide(NamedTuple):
    """The pieces as the core takes them, and what must stay alive meanwhile."""

    pieces: tuple[Any, Any, Any]
    kept: object = None

    @classmethod
    def of(
        cls,
        name: str,
        buffer: Any,
        address: Any,
        buffers: Any,
        peer_buffers: Any,
        lengths: Any,
        *,
        written_by: str = "",
    ) -> OwnSide:
        """`name` is the buffer's; what is given by place comes as `buffer` and `address`, whichever it is."""
        if (buffer is not None and buffers is not None) or (address is not None and peer_buffers is not None):
            raise TypeError(f"pass {name} and address, or buffers, peer_buffers and lengths, not some of each")
        own, there = (buffer if buffers is None else buffers), (address if peer_buffers is None else peer_buffers)
        if lengths is None:
            start, size_bytes, kept = arguments.extent(name, own, written_by=written_by)
            return cls(([start], [arguments.u64("address", there)], [size_bytes]), kept)
        if hasattr(lengths, "__len__"):
            return cls((own, there, lengths))
        return cls(([own], [there], [arguments.u64("lengths", lengths)]))
