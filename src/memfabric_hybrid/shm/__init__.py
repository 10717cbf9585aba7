"""Share Memory: a symmetric heap. Every rank has the same amount of memory, every rank reaches everybody's.

All ranks initialise with the same store and world size, each with its own rank, and create the object together:

    import memfabric_hybrid as mf
    import numpy as np
    from memfabric_hybrid import shm

    mf.check(shm.initialize("tcp://127.0.0.1:9000", 2, rank, 0, shm.ShmConfig()))    # rank 0 runs the store
    heap = shm.create(0, rank_size=2, rank_id=rank, local_mem_size=64 << 20)         # returns when both are there
    mine, other = (heap.array(r, 1024, np.float32) for r in (rank, 1 - rank))
    other[:] = rank                                                                  # straight into the other's
    mf.check(heap.barrier())
    assert (mine == 1 - rank).all()
    mf.check(heap.barrier())
    heap.destroy()
    shm.uninitialize()

Functions of the documented interface return 0 or a negative code and never raise for bad values; `mf.check` raises it,
and `mf.get_last_err_msg()` has the sentence. `create`, `all_gather`, `array`, `put` and `get` raise
`mf.errors.FabricError`, which is a RuntimeError. Kernels: `memfabric_hybrid.device`.
"""

from __future__ import annotations

from typing import SupportsIndex

from memfabric_hybrid.api import arguments, boundary
from memfabric_hybrid.shm import creation, runtime
from memfabric_hybrid.shm.config import ShmConfig
from memfabric_hybrid.shm.share_memory import ShareMemory
from memfabric_hybrid.transports.op_types import ShmDataOpType

__all__ = ["ShareMemory", "ShmConfig", "ShmDataOpType", "create", "initialize", "uninitialize"]


def __dir__() -> list[str]:
    """What completion offers: the public names, and none of the modules they come from."""
    return [*__all__, "__doc__"]


@boundary.returns_code
def initialize(
    store_url: str,
    world_size: SupportsIndex,
    rank_id: SupportsIndex,
    device_id: SupportsIndex,
    config: ShmConfig,
) -> None:
    """Enters the cluster whose store is at `store_url`; again while initialised: 0 and nothing happens.

    Args:
        store_url: "tcp://host:port"; the same on every process.
        world_size: how many ranks there are, 1..1024; the same on every process.
        rank_id: this process's rank, 0..world_size-1; rank 0 runs the store if `config.start_store`.
        device_id: accepted for programs that have accelerators.
        config: time-outs, and who runs the store.

    Codes: 0; -2000 a value is outside its limits; -2004 the store did not answer within `config.init_timeout`;
    -2006 the rank is in use; -2009 what has the address is no store.
    """
    size, rank = arguments.u32("world_size", world_size), arguments.u32("rank_id", rank_id)
    arguments.u16("device_id", device_id)
    if not isinstance(config, ShmConfig):
        raise TypeError(f"config must be a ShmConfig, not {type(config).__name__}")
    runtime.start(arguments.text("store_url", store_url), size, rank, config)


def uninitialize(flags: SupportsIndex = 0) -> None:
    """Destroys every object of this process and leaves the cluster; idempotent."""
    arguments.u32("flags", flags)
    runtime.stop()


@boundary.raises_saying("create shm failed")
def create(
    id: SupportsIndex,
    rank_size: SupportsIndex,
    rank_id: SupportsIndex,
    local_mem_size: SupportsIndex,
    data_op_type: SupportsIndex = ShmDataOpType.MTE,
    flags: SupportsIndex = 0,
) -> ShareMemory:
    """Creates the object on all ranks together: returns when every rank has everybody's memory.

    Args:
        id: names the object in the cluster, 0..63.
        rank_size: the ranks 0..rank_size-1 of the world take part.
        rank_id: this process's rank, as given to `initialize`.
        local_mem_size: bytes of each rank, up to 64 GiB, rounded up to 2 MiB; the same on every rank.
        data_op_type: `ShmDataOpType` bits; MTE and SDMA are the same here.
        flags: reserved.

    Raises FabricError (a RuntimeError) "create shm failed: <reason>"; the last error has the reason too. After
    `config.create_timeout` seconds the reason names the ranks that did not come; a rank that came and died is named at
    once.
    """
    request = creation.CreateRequest(
        object_id=arguments.u32("id", id),
        rank_size=arguments.u32("rank_size", rank_size),
        rank=arguments.u32("rank_id", rank_id),
        local_mem_size=arguments.u64("local_mem_size", local_mem_size),
        op_type=arguments.u32("data_op_type", data_op_type),
    )
    arguments.u32("flags", flags)
    return creation.make(request)
