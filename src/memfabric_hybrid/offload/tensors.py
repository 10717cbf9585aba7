"""Tensors on our memory: each has a block of its own, which is free again when the tensor and its views are gone."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, SupportsIndex

from memfabric_hybrid import _native
from memfabric_hybrid.api import arguments
from memfabric_hybrid.errors import InvalidParam
from memfabric_hybrid.offload.host_memory import HostMemory
from memfabric_hybrid.offload.slot import start_of

if TYPE_CHECKING:
    import torch

    Sizes = SupportsIndex | Iterable[SupportsIndex]


def empty(memory: HostMemory, sizes: Sizes, dtype: torch.dtype) -> torch.Tensor:
    """Its bytes are whatever they were. Without elements it has no memory, like any such tensor."""
    import torch  # here: programs that have none need none

    shape = arguments.shape("sizes", sizes)
    if any(side < 0 for side in shape):
        raise InvalidParam(f"sizes are {list(shape)}, expected 0 or more in every dimension")
    size_bytes = math.prod(shape) * dtype.itemsize
    if size_bytes == 0:
        return torch.empty(shape, dtype=dtype)
    space = memory.slot.space
    address = memory.malloc(size_bytes, for_tensor=True)
    try:
        # The array pins the memory, also beyond the end of everything else, and the tensor's storage keeps the array.
        array = space._view(space.local_rank, _native.DRAM, address - start_of(space), size_bytes)
        weakref.finalize(array, memory.drop, address).atexit = False
    except BaseException:
        memory.drop(address)
        raise
    return torch.from_numpy(array).view(dtype).reshape(shape)
