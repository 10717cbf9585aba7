"""Checks of argument *types* at the API boundary; wrong values are the callee's business. And buffers, as memory.

A wrong type is a programming error and raises TypeError, as it does for any built-in function; so does a number
that the documented C type of the parameter cannot hold.
"""

from __future__ import annotations

import operator
import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, SupportsIndex

from memfabric_hybrid.errors import InvalidParam

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike

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


def seconds(name: str, value: object) -> float:
    """How long to wait; infinity is as long as the system can."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, not {type(value).__name__}")
    if not value >= 0:  # which a NaN is not, either
        raise InvalidParam(f"{name} is {value} s, expected 0 or more")
    return float(min(value, threading.TIMEOUT_MAX))


def numbers(name: str, value: object) -> list[int]:
    """Of u32."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be integers, not {type(value).__name__}")
    return [u32(name, each) for each in value]


def shape(name: str, value: object) -> tuple[int, ...]:
    """A number, or a list or tuple of numbers (and whatever else numpy takes for one)."""
    if isinstance(value, (str, bytes)) or not (isinstance(value, Iterable) or hasattr(value, "__index__")):
        raise TypeError(f"{name} must be an integer or a sequence of integers, not {type(value).__name__}")
    return tuple(integer(name, side) for side in (value if isinstance(value, Iterable) else (value,)))


def dtype(name: str, value: DTypeLike) -> np.dtype[Any]:
    """TypeError for what numpy does not know as one, InvalidParam for one of Python objects."""
    import numpy as np  # here: importing it takes longer than all of ours

    try:
        kind = np.dtype(value)
    except (TypeError, ValueError, SyntaxError):
        shown = repr(value) if isinstance(value, str) else type(value).__name__
        raise TypeError(f"{name} must be a numpy dtype, not {shown}") from None
    if kind.hasobject:
        raise InvalidParam(f"{name} is {kind}: Python objects mean nothing in another memory; pass one of numbers")
    return kind


def extent(name: str, buffer: object, *, written_by: str = "", any_order: bool = False) -> tuple[int, int, object]:
    """(address, bytes, what keeps it alive) of an object with the buffer protocol, a numpy array or a torch CPU tensor.

    InvalidParam for one that is not C-contiguous (`any_order`: nor F-contiguous) or empty, or that is read-only
    (`bytes`, such an array) though somebody will write into it: Python relies on such memory not changing. TypeError
    for what is no memory at all, or holds Python objects: their addresses mean nothing elsewhere.
    """
    if hasattr(buffer, "data_ptr"):
        return _tensor_extent(name, buffer)
    if getattr(getattr(buffer, "dtype", None), "hasobject", False):  # of which some have a buffer, and others none
        raise TypeError(f"{name} is an array of Python objects, which mean nothing in another memory; pass numbers")
    try:
        view = memoryview(buffer)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be a buffer or a tensor, not {type(buffer).__name__}") from None
    except (ValueError, BufferError) as reason:
        view = _view_of_dates(name, buffer, str(reason))
    if view.nbytes == 0:
        raise InvalidParam(f"{name} has 0 bytes, expected at least 1")
    if any_order and not view.c_contiguous and view.f_contiguous and hasattr(buffer, "T"):
        view = memoryview(buffer.T)
    if not view.c_contiguous:
        raise InvalidParam(
            f"{name} is a {type(buffer).__name__} of shape {view.shape} and strides {view.strides}, which is not "
            "C-contiguous: pass np.ascontiguousarray() of it, or a whole array"
        )
    if not view.readonly:
        import ctypes  # here: most programs pass addresses

        return ctypes.addressof(ctypes.c_char.from_buffer(view)), view.nbytes, view
    if written_by:
        raise InvalidParam(
            f"{name} is a {type(buffer).__name__} that is read-only, and {written_by}; pass a writable copy of it "
            "(a bytearray, array.copy())"
        )
    import numpy as np

    return int(np.frombuffer(view, np.uint8).ctypes.data), view.nbytes, view


def _view_of_dates(name: str, buffer: object, reason: str) -> memoryview:
    """numpy's dates are numbers in memory, though the buffer protocol has no format for them."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(buffer, numpy.ndarray):
        return memoryview(buffer.view(f"V{buffer.dtype.itemsize}"))
    raise InvalidParam(f"{name} is a {type(buffer).__name__} whose memory cannot be used: {reason}")


def _tensor_extent(name: str, tensor: object) -> tuple[int, int, object]:
    device = getattr(tensor, "device", None)
    if device is not None and str(getattr(device, "type", device)) != "cpu":
        raise InvalidParam(f"{name} is a tensor on {device}, expected one in host memory")
    if not tensor.is_contiguous():  # type: ignore[attr-defined]
        raise InvalidParam(f"{name} is a tensor that is not contiguous: pass tensor.contiguous(), or its storage")
    size_bytes = tensor.numel() * tensor.element_size()  # type: ignore[attr-defined]
    if size_bytes == 0:
        raise InvalidParam(f"{name} is an empty tensor")
    return int(tensor.data_ptr()), int(size_bytes), tensor  # type: ignore[attr-defined]
