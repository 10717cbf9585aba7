"""Big Memory: the memory of many processes as one pool with global addresses.

Every process initialises with the same store and world size, creates the same object, and joins it:

    import memfabric_hybrid as mf
    from memfabric_hybrid import bm

    config = bm.BmConfig()
    mf.check(bm.initialize("tcp://127.0.0.1:9000", 4, 0, config))    # up to 4 ranks; the first process runs the store
    pool = bm.create(0, local_dram_size=64 << 20)                    # 64 MiB of DRAM from each rank
    mf.check(pool.join())
    pool.wait_for([1], timeout=60)                                   # until rank 1 has joined
    pool.put(b"to rank 1", 1, offset=4096)                           # into its memory, wherever it runs
    answer = pool.get(1, out=bytearray(100))
    pool.destroy()
    bm.uninitialize()

Functions of the documented interface return 0 or a negative code and never raise for bad values; `mf.check` raises it,
and `mf.get_last_err_msg()` has the sentence. `create`, `create2` and whatever takes whole buffers raise
`mf.errors.FabricError`, which is a RuntimeError.
"""

from __future__ import annotations

from typing import SupportsIndex

from memfabric_hybrid.api import arguments, boundary
from memfabric_hybrid.bm import creation, runtime
from memfabric_hybrid.bm.big_memory import BigMemory
from memfabric_hybrid.bm.config import BmConfig
from memfabric_hybrid.bm.enums import BmCopyType, BmGroupEvent, BmMemType
from memfabric_hybrid.errors import InvalidParam
from memfabric_hybrid.store import parse_url, store_users
from memfabric_hybrid.transports.op_types import BmDataOpType
from memfabric_hybrid.transports.routes import MAX_TAG, MAX_TAG_OP_INFO

__all__ = [
    "BigMemory",
    "BmConfig",
    "BmCopyType",
    "BmDataOpType",
    "BmGroupEvent",
    "BmMemType",
    "bm_rank_id",
    "create",
    "create2",
    "initialize",
    "uninitialize",
    "update_store_url",
]
FAILED = "create bm handle failed"


def __dir__() -> list[str]:
    """What completion offers: the public names, and none of the modules they come from."""
    return [*__all__, "__doc__"]


@boundary.returns_code
def initialize(store_url: str, world_size: SupportsIndex, device_id: SupportsIndex, config: BmConfig) -> None:
    """Enters the cluster whose store is at `store_url`; again while initialised: 0 and nothing happens.

    Args:
        store_url: "tcp://host:port"; the same on every process.
        world_size: how many ranks there can be, 1..1024; the same on every process.
        device_id: accepted for programs that have accelerators.
        config: time-outs, who runs the store, how ranks are given.

    Codes: 0; -2000 a value is outside its limits; -2002 all ranks are taken; -2004 the store did not answer within
    `config.init_timeout`; -2006 the fixed rank is in use; -2009 what has the address
    is no store, or `start_store_only` and it is taken.
    """
    size = arguments.u32("world_size", world_size)
    arguments.u16("device_id", device_id)
    if not isinstance(config, BmConfig):
        raise TypeError(f"config must be a BmConfig, not {type(config).__name__}")
    runtime.start(arguments.text("store_url", store_url), size, config)


def uninitialize(flags: SupportsIndex = 0) -> None:
    """Destroys every object of this process and leaves the cluster; idempotent."""
    arguments.u32("flags", flags)
    runtime.stop()


@boundary.returns(arguments.U32_MAX)
def bm_rank_id() -> int:
    """This process's rank; 4294967295 when it has none."""
    return runtime.current_node().member.rank


@boundary.returns_code
def update_store_url(store_url: str) -> None:
    """The store has moved: whatever of this process uses it, Share Memory and engines too, reconnects there.

    Codes: 0; -2000 malformed URL; -2008 not initialised.
    """
    address = arguments.text("store_url", store_url)
    store = runtime.current_node().member.store
    moved_to, moved_from = parse_url(address), store.url
    if moved_from is not None:
        store_users.moved(moved_from, moved_to)
    runtime.current().url = moved_to


@boundary.raises_saying(FAILED)
def create(
    id: SupportsIndex,
    local_dram_size: SupportsIndex,
    local_hbm_size: SupportsIndex = 0,
    data_op_type: SupportsIndex = BmDataOpType.SDMA,
    flags: SupportsIndex = 0,
) -> BigMemory:
    """Creates an object to which this rank contributes the given sizes; every rank passes the same sizes.

    Raises FabricError (a RuntimeError) "create bm handle failed: <reason>". See `create2` for more choices.
    """
    dram, hbm = arguments.u64("local_dram_size", local_dram_size), arguments.u64("local_hbm_size", local_hbm_size)
    return creation.make(
        creation.CreateRequest(
            object_id=arguments.u32("id", id),
            local=(dram, hbm),
            maximum=(dram, hbm),
            op_type=arguments.u32("data_op_type", data_op_type),
            flags=arguments.u32("flags", flags),
        )
    )


@boundary.raises_saying(FAILED)
def create2(
    id: SupportsIndex,
    local_dram_size: SupportsIndex,
    max_dram_size: SupportsIndex,
    local_hbm_size: SupportsIndex = 0,
    max_hbm_size: SupportsIndex = 0,
    data_op_type: SupportsIndex = BmDataOpType.SDMA,
    enable_56bits_gva: bool = False,
    flags: SupportsIndex = 0,
    shm_fd: int = -1,
    tag: str = "",
    tag_op_info: str = "",
) -> BigMemory:
    """Creates an object in which ranks may contribute different sizes, up to the same maximum.

    Args:
        id: names the object in the cluster; any u32.
        local_dram_size, local_hbm_size: what this rank contributes, in bytes, rounded up to 2 MiB; may be 0.
        max_dram_size, max_hbm_size: the size of every rank's slot; DRAM up to 2 TiB, HBM up to 64 GiB.
        data_op_type: which routes may be used (`BmDataOpType` bits).
        enable_56bits_gva: accepted; addresses are 47-bit.
        flags: bits 0-6 NUMA node if bit 7 is set; 8 take DRAM from `shm_fd`; 9 accepted (always so); 10 the node is a
            preference only.
        shm_fd: a memory file (`memfd_create` with MFD_ALLOW_SEALING; it is sealed against cutting) of at least
            `local_dram_size` bytes, with bit 8 of `flags`.
        tag, tag_op_info: names this rank's kind and the rules between kinds, "tagA:HOST_SHM:tagB,…".

    Raises:
        FabricError: (a RuntimeError) "create bm handle failed: <reason>"; the last error has the reason too. It is a
            ValueError as well for a value outside its limits, as an over-long `tag` or `tag_op_info`.
    """
    request = creation.CreateRequest(
        object_id=arguments.u32("id", id),
        local=(arguments.u64("local_dram_size", local_dram_size), arguments.u64("local_hbm_size", local_hbm_size)),
        maximum=(arguments.u64("max_dram_size", max_dram_size), arguments.u64("max_hbm_size", max_hbm_size)),
        op_type=arguments.u32("data_op_type", data_op_type),
        flags=arguments.u32("flags", flags),
        shm_fd=arguments.integer("shm_fd", shm_fd),
        tag=arguments.text("tag", tag),
        tag_op_info=arguments.text("tag_op_info", tag_op_info),
    )
    for name, value, limit in (("tag", request.tag, MAX_TAG), ("tag_op_info", request.tag_op_info, MAX_TAG_OP_INFO)):
        if len(value) > limit:
            raise InvalidParam(f"{name} has {len(value)} characters, the limit is {limit}")
    return creation.make(request)
