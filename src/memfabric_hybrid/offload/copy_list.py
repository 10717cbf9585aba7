"""What `sparse_copy` is to copy: sources, targets and lengths, read from where the program has put them.

Each of them is an address of 64-bit numbers, or an array or CPU tensor of integers that knows its own width and length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, TypeAlias

from memfabric_hybrid import _native
from memfabric_hybrid.api import arguments
from memfabric_hybrid.errors import InvalidParam

if TYPE_CHECKING:
    import ctypes

    import numpy as np
    from numpy.typing import NDArray

Numbers: TypeAlias = object  # an address, or whatever has integers
LEAST_WIDTH_BYTES = 4  # packed numbers in `bytes` are no numbers of 8 bits


class CopyList(NamedTuple):
    """Without the pieces of length 0, which stand for nothing to copy."""

    sources: NDArray[np.uint64]
    targets: NDArray[np.uint64]
    lengths: NDArray[np.uint64]


def read(sources: Numbers, targets: Numbers, lengths: Numbers, count: Numbers) -> CopyList:
    """InvalidParam names what cannot be read, or the first number that is none of memory."""
    pieces = int(_numbers("size_ptr", count, 1)[0])
    if pieces > _native.MAX_BATCH_PIECES:
        raise InvalidParam(f"size_ptr says {pieces} pieces, expected 0..{_native.MAX_BATCH_PIECES}")
    listed = [
        _numbers(name, given, pieces)
        for name, given in (("src_ptrs", sources), ("dst_ptrs", targets), ("len_ptrs", lengths))
    ]
    wanted = listed[2] != 0
    return CopyList(*(listed if wanted.all() else (numbers[wanted] for numbers in listed)))


def _numbers(name: str, given: Numbers, count: int) -> NDArray[np.uint64]:
    """The first `count` of them, in memory of our own."""
    import numpy as np  # here: importing it takes longer than all of ours

    found = _array(name, given, count)
    if found.dtype.kind not in "iu":
        raise TypeError(f"{name} has numbers of type {found.dtype}, expected integers of 32 or 64 bits")
    if found.itemsize < LEAST_WIDTH_BYTES:
        raise InvalidParam(f"{name} has numbers of type {found.dtype}, expected integers of 32 or 64 bits")
    if found.size < count:
        raise InvalidParam(f"{name} has {found.size} numbers, expected {count}, as many as size_ptr says")
    first = found.reshape(-1)[:count]
    negative = np.flatnonzero(first < 0)
    if negative.size:
        raise InvalidParam(f"{name}[{negative[0]}] is {first[negative[0]]}, expected 0 or more")
    return first.astype(np.uint64)


def _array(name: str, given: Numbers, count: int) -> NDArray[Any]:
    """On the program's own memory."""
    import numpy as np

    device = getattr(given, "device", None)
    if str(getattr(device, "type", device)) not in ("None", "cpu"):
        raise InvalidParam(f"{name} is on {device}, expected an array or tensor in host memory")
    if hasattr(given, "data_ptr") or isinstance(given, np.ndarray):
        return np.asarray(given)
    if isinstance(given, SupportsIndex):
        return np.asarray(_at_address(name, arguments.u64(name, given), count))
    try:
        return np.asarray(memoryview(given))  # type: ignore[arg-type]
    except TypeError:
        kind = type(given).__name__
        raise TypeError(f"{name} must be an address, or an array or tensor of integers, not {kind}") from None


def _at_address(name: str, address: int, count: int) -> ctypes.Array[ctypes.c_uint64]:
    import ctypes

    numbers = ctypes.c_uint64 * count
    if count == 0:
        return numbers()
    if address < _native.LOWEST_ADDRESS or address + ctypes.sizeof(numbers) > _native.ADDRESS_LIMIT:
        raise InvalidParam(f"{name} is {address:#x}, where no {count} numbers can be: pass the address of an array")
    return numbers.from_address(address)
