"""Offload: host memory for caches, of one process or shared by the ranks of a host.

A process initialises it once, and takes memory from it:

    import memfabric_hybrid as mf
    import torch
    from memfabric_hybrid import offload

    config = offload.OffloadConfig()
    config.reserve_size = config.alloc_size = 64 << 20
    mf.check(offload.initialize(config))
    cache = offload.empty([1024, 576], dtype=torch.bfloat16)       # a tensor on this memory
    block = offload.malloc(4 << 20)                                # or its address
    mf.check(offload.free(block))
    del cache
    offload.uninitialize()

With `config.scene = offload.Scene.SHARED`, `world_size`, `rank_id` and `store_url` every rank of the host sees the
others' memory at the same addresses. It is mapped memory for transfers: peers of a `TransferEngine` that registers it
copy from and to it directly.

Functions return 0 or a negative code and never raise for bad values; `mf.check` raises it, and `mf.get_last_err_msg()`
has the sentence. `malloc` and `get_dva` return 0 when they fail; `empty` raises `mf.errors.FabricError`, which is a
RuntimeError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, SupportsIndex

from memfabric_hybrid import _native
from memfabric_hybrid.api import arguments, boundary
from memfabric_hybrid.errors import NoResources, failure_of
from memfabric_hybrid.offload import copy_list, plan, runtime, tensors
from memfabric_hybrid.offload.config import OFFLOAD_FLAG_GIANT_PAGE, OffloadConfig
from memfabric_hybrid.offload.copy_list import Numbers
from memfabric_hybrid.offload.scene import Scene

if TYPE_CHECKING:
    import torch

    from memfabric_hybrid.offload.tensors import Sizes

__all__ = [
    "LOCAL",
    "OFFLOAD_FLAG_GIANT_PAGE",
    "OFFLOAD_FLAG_URMA_POOL",
    "SHARED",
    "OffloadConfig",
    "Scene",
    "empty",
    "entry_gather",
    "free",
    "get_dva",
    "group_pack_copy",
    "initialize",
    "kv_exchange_copy",
    "malloc",
    "register_entry_table",
    "sparse_copy",
    "uninitialize",
]

LOCAL, SHARED = Scene.LOCAL, Scene.SHARED
OFFLOAD_FLAG_URMA_POOL = OFFLOAD_FLAG_GIANT_PAGE  # its older name
_AUTO = 9  # BmCopyType.AUTO: each piece has a side in this memory, whichever


def __dir__() -> list[str]:
    """What completion offers: the public names, and none of the modules they come from."""
    return [*__all__, "__doc__"]


@boundary.returns_code
def initialize(config: OffloadConfig) -> None:
    """Provides the memory that `config` describes; again while initialised: 0 and nothing happens.

    SHARED: returns when all `world_size` ranks have called it; then every rank of this host has the others' memory at
    the same addresses.

    Codes: 0; -2000 a value is outside its limits, other ranks have another `reserve_size` or `world_size`, or not
    `local_world_size` ranks are on this host; -2001 there is not so much memory; -2004 the store did not answer within
    `init_timeout`, or the last error names the ranks that did not come; -2006 the rank is in use; -2009 what has the
    store's address is no store; -2014 a rank came and is gone.
    """
    if not isinstance(config, OffloadConfig):
        raise TypeError(f"config must be an OffloadConfig, not {type(config).__name__}")
    runtime.start(plan.of(config))


def uninitialize() -> None:
    """Gives the memory back and leaves the other ranks; idempotent.

    Addresses of `malloc` mean nothing from then on. Tensors of `empty` stay valid until they are garbage.
    """
    runtime.stop()


@boundary.returns(0)
def malloc(size: SupportsIndex, flags: SupportsIndex = 0) -> int:
    """The address of `size` bytes; 0 when there are none left, and the last error has the figures.

    It is a multiple of 4096, from 2 MiB on of 2 MiB. The bytes are whatever they were. `flags` is reserved.
    """
    arguments.u64("flags", flags)
    return runtime.current().memory.malloc(arguments.u64("size", size))


@boundary.returns_code
def free(ptr: SupportsIndex, flags: SupportsIndex = 0) -> None:
    """Takes memory of `malloc` back; 0 as a `ptr` means none. Who has registered it unregisters it first.

    Codes: 0; -2007 nothing of `malloc` begins there; -2008 not initialised; -2009 it belongs to a tensor of `empty`.
    """
    arguments.u64("flags", flags)
    address = arguments.u64("ptr", ptr)
    memory = runtime.current().memory
    if address:
        memory.free(address)


@boundary.returns(0)
def get_dva(ptr: SupportsIndex) -> int:
    """The address that a device would use for `ptr`: the same. 0 if `ptr` is not in memory of `malloc` or `empty`.

    SHARED: the memory of the other ranks of this host counts as well.
    """
    address = arguments.u64("ptr", ptr)
    runtime.current().memory.check_holds(address)
    return address


@boundary.raises_saying("offload.empty failed")
def empty(sizes: Sizes, dtype: torch.dtype | None = None, pin_memory: bool = False) -> torch.Tensor:
    """A tensor of these sizes on this memory, which is free again when the tensor and its views are gone.

    Args:
        sizes: one number, or one for each dimension.
        dtype: torch.bfloat16 unless given.
        pin_memory: accepted; no device has to be told of this memory.

    Raises FabricError (a RuntimeError) "offload.empty failed: <reason>"; the last error has the reason too. ImportError
    without torch.
    """
    try:
        import torch  # here: programs that have none need none
    except ImportError as failure:
        raise ImportError("offload.empty returns a torch.Tensor: install torch, or use malloc()") from failure
    kind = torch.bfloat16 if dtype is None else dtype
    if not isinstance(kind, torch.dtype):
        raise TypeError(f"dtype must be a torch.dtype, not {type(kind).__name__}")
    return tensors.empty(runtime.current().memory, sizes, kind)


@boundary.returns_code
def sparse_copy(src_ptrs: Numbers, dst_ptrs: Numbers, len_ptrs: Numbers, size_ptr: Numbers, device: object) -> None:
    """Copies many pieces: len[i] bytes from src[i] to dst[i]. They are in place when it returns.

    One side of every piece lies in this memory, or in that of another rank; the other one may be any host memory.
    All pieces are checked before the first byte moves; pieces must not overlap those that others write.

    Args:
        src_ptrs, dst_ptrs, len_ptrs: addresses of arrays of uint64; or arrays or CPU tensors of 32-bit or 64-bit
            integers. A length of 0 means nothing to copy.
        size_ptr: the address of one uint64, the number of pieces, 0..1048576; or an array or tensor of one integer.
        device: accepted if it means the host: a number, None, or a device of the type "cpu".

    Codes: 0; -2000 a piece is not in memory, an array is too short, not of integers or not in host memory; -2002 a
    device other than the host; -2008 not initialised; -2012 a rank that was read from went away meanwhile, targets are
    undefined; -2014 the rank that owns the memory is not there.
    """
    _check_device(device)
    space = runtime.current().memory.slot.space
    pieces = copy_list.read(src_ptrs, dst_ptrs, len_ptrs, size_ptr)
    if not pieces.lengths.size:
        return
    code = space.copy_data_batch(pieces.sources, pieces.targets, pieces.lengths, pieces.lengths.size, _AUTO)
    if code != 0:
        raise failure_of(code, _native.last_error())


@boundary.returns_code
def group_pack_copy(*given: object, **named: object) -> None:
    """Needs kernels of an accelerator, of which there are none here. Codes: -2002."""
    raise _needs_kernels("group_pack_copy")


@boundary.returns_code
def kv_exchange_copy(*given: object, **named: object) -> None:
    """Needs kernels of an accelerator, of which there are none here. Codes: -2002."""
    raise _needs_kernels("kv_exchange_copy")


@boundary.returns_code
def entry_gather(*given: object, **named: object) -> None:
    """Needs kernels of an accelerator, of which there are none here. Codes: -2002."""
    raise _needs_kernels("entry_gather")


@boundary.returns_code
def register_entry_table(*given: object, **named: object) -> None:
    """Needs kernels of an accelerator, of which there are none here. Codes: -2002."""
    raise _needs_kernels("register_entry_table")


def _needs_kernels(call: str) -> NoResources:
    return NoResources(
        f"offload.{call} runs on an accelerator, and this build has no kernels for one: copy in host memory with "
        "sparse_copy()"
    )


def _check_device(device: object) -> None:
    kind = getattr(device, "type", None)
    if kind is None:
        if device is not None:
            arguments.integer("device", device)  # type: ignore[arg-type]
        return
    if kind != "cpu":
        raise NoResources(f"device is {device}, and this build copies in host memory only: pass a CPU device")
