"""Checks of argument *types* at the API boundary; wrong values are the callee's business. And buffers, as memory.

A wrong type is a programming error and raises TypeError, as it does for any built-in function; so does a number
that the documented C type of the parameter cannot hold.
"""

from __future__ import annotations

import operator
from typing import SupportsIndex

from memfabric_hybrid.errors import InvalidParam

U16_MAX = (1 << 16) - 1
U32_MAX = (1 << 32) - 1
U64_MAX = (1 << 64) - 1


def integer(name: str, value: SupportsIndex) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}") from None


def unsigned(name: str, value: SupportsIndex, limit: int) -> int:
    """`value` as an int in 0..limit."""
    number = integer(name, value)
    if not 0 <= number <= limit:
        raise TypeError(f"{name} is {number}, which does not fit into 0..{limit}")
    return number


def u16(name: str, value: SupportsIndex) -> int:
    return unsigned(name, value, U16_MAX)


def u32(name: str, value: SupportsIndex) -> int:
    return unsigned(name, value, U32_MAX)


def u64(name: str, value: SupportsIndex) -> int:
    return unsigned(name, value, U64_MAX)


def text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    return value


def function(name: str, value: object) -> None:
    if not callable(value):
        raise TypeError(f"{name} must be callable, not {type(value).__name__}")


def extent(buffer: object, *, written_by: str = "") -> tuple[int, int, object]:
    """(address, bytes, what keeps it alive) of a contiguous object with the buffer protocol, or of a torch CPU tensor.

    InvalidParam for one that is not contiguous or empty, or that is read-only (`bytes`, such an array) though somebody
    will write into it: Python relies on such memory not changing. TypeError for what is no memory at all.
    """
    if hasattr(buffer, "data_ptr"):
        return _tensor_extent(buffer)
    import ctypes  # here: most programs pass addresses

    try:
        view = memoryview(buffer)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"a {type(buffer).__name__} is neither a buffer nor a tensor") from None
    if not view.c_contiguous or view.nbytes == 0:
        raise InvalidParam(f"a buffer of {view.nbytes} bytes must be contiguous and not empty")
    if view.readonly:
        if written_by:
            raise InvalidParam(
                f"this {type(buffer).__name__} is read-only, and {written_by}; pass a writable copy of it (a "
                "bytearray, array.copy())"
            )
        import numpy as np

        return int(np.frombuffer(view.cast("B"), np.uint8).ctypes.data), view.nbytes, view
    return ctypes.addressof(ctypes.c_char.from_buffer(view)), view.nbytes, view


def _tensor_extent(tensor: object) -> tuple[int, int, object]:
    device = getattr(tensor, "device", None)
    if device is not None and str(getattr(device, "type", device)) != "cpu":
        raise InvalidParam(f"the tensor is on {device}, expected one in host memory")
    if not tensor.is_contiguous():  # type: ignore[attr-defined]
        raise InvalidParam("the tensor is not contiguous: pass tensor.contiguous(), or its storage")
    size_bytes = tensor.numel() * tensor.element_size()  # type: ignore[attr-defined]
    if size_bytes == 0:
        raise InvalidParam("the tensor is empty")
    return int(tensor.data_ptr()), int(size_bytes), tensor  # type: ignore[attr-defined]
