"""How arrays lie in memory, decided when a kernel is compiled: Numba knows it from their types.

The functions without a body exist inside kernels only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import literal_unroll, types
from numba.core.errors import TypingError
from numba.extending import overload, register_jitable


def count_of(shape: Any, most: int) -> int:
    """How many elements that shape has; -1 if one side is negative or they are more than `most`."""
    raise NotImplementedError


def bytes_of(array: Any) -> int:
    """How many bytes its elements have. Refuses to compile for what is no array."""
    raise NotImplementedError


def packed(source: Any) -> Any:
    """The array itself if it lies in memory as a block in C order, else such a copy of it."""
    raise NotImplementedError


def packed_alike(target: Any) -> Any:
    """The array itself if it can be filled as a block in C order, else a new one of its shape."""
    raise NotImplementedError


def unpack(target: Any, block: Any) -> None:
    """Fills the array from the block that `packed_alike` gave for it."""
    raise NotImplementedError


def require_block(array: Any) -> None:
    """Refuses to compile for an array whose bytes do not lie one after the other."""
    raise NotImplementedError


def _layout(array: Any) -> str:
    """C, F, or A for anything else."""
    if not isinstance(array, types.Array):
        raise TypingError(f"memfabric_hybrid.device moves numpy arrays, not {array}")
    return str(array.layout)


@register_jitable
def _times(count: int, side: int, most: int) -> int:
    if count < 0 or side < 0:
        return -1
    return count * side if side == 0 or count <= most // side else -1


@overload(count_of, strict=False)  # strict would compare annotations, too
def _count_of(shape: Any, most: Any) -> Any:
    if isinstance(shape, types.Integer):
        return lambda shape, most: _times(1, np.int64(shape), most)
    if not isinstance(shape, types.BaseTuple):
        raise TypingError(f"the shape of an array is an integer or a tuple of integers, not {shape}")

    def count_all(shape: Any, most: int) -> int:
        count = 1
        for side in literal_unroll(shape):
            count = _times(count, np.int64(side), most)
        return count

    return count_all


@overload(bytes_of, strict=False)  # strict would compare annotations, too
def _bytes_of(array: Any) -> Any:
    _layout(array)
    return lambda array: array.size * array.itemsize


@overload(packed, strict=False)  # strict would compare annotations, too
def _packed(source: Any) -> Any:
    if _layout(source) == "C":
        return lambda source: source
    return lambda source: np.ascontiguousarray(source)


@overload(packed_alike, strict=False)  # strict would compare annotations, too
def _packed_alike(target: Any) -> Any:
    layout = _layout(target)
    if not target.mutable:
        raise TypingError("device.get fills its array, and this one is read-only")
    if layout == "C":
        return lambda target: target
    return lambda target: np.empty(target.shape, target.dtype)


@overload(unpack, strict=False)  # strict would compare annotations, too
def _unpack(target: Any, block: Any) -> Any:
    if _layout(target) == "C":
        return lambda target, block: None

    def spread(target: Any, block: Any) -> None:
        target[...] = block

    return spread


@overload(require_block, strict=False)  # strict would compare annotations, too
def _require_block(array: Any) -> Any:
    if _layout(array) == "A":
        raise TypingError(
            f"copy_ub2gm and copy_gm2ub move a block of bytes, which {array} is not: "
            "use device.put or device.get, or np.ascontiguousarray"
        )
    return lambda array: None
