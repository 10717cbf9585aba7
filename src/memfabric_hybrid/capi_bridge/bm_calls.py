"""smem_bm.h: Big Memory."""

from __future__ import annotations

from collections.abc import Sequence

from memfabric_hybrid import bm
from memfabric_hybrid.bm import runtime
from memfabric_hybrid.capi_bridge import c_functions, tls
from memfabric_hybrid.capi_bridge.answers import Answer, c_call, refused
from memfabric_hybrid.capi_bridge.objects import Objects
from memfabric_hybrid.errors import FabricError, InvalidParam

_pools = Objects[bm.BigMemory]("bm object")


def _pool(handle: int) -> bm.BigMemory:
    runtime.current()
    return _pools.get(handle)


@c_call
def bm_refuse(call: str, handle: int) -> Answer:
    return refused(call, _pool, handle)


@c_call
def bm_config_init() -> Answer:
    config = bm.BmConfig()
    return (
        0, config.init_timeout, config.create_timeout, config.operation_timeout, config.start_store,
        config.start_store_only, config.dynamic_world_size, config.unified_address_space, config.auto_ranking,
        config.rank_id, config.flags,
    )  # fmt: skip


@c_call
def bm_init(
    url: str,
    world_size: int,
    device_id: int,
    init_timeout: int,
    create_timeout: int,
    operation_timeout: int,
    start_store: int,
    start_store_only: int,
    dynamic_world_size: int,
    unified_address_space: int,
    auto_ranking: int,
    rank_id: int,
    flags: int,
    nic: str,
    data_tls: Sequence[str],
    store_tls: Sequence[str],
) -> Answer:
    config = bm.BmConfig(
        init_timeout=init_timeout,
        create_timeout=create_timeout,
        operation_timeout=operation_timeout,
        start_store=bool(start_store),
        start_store_only=bool(start_store_only),
        dynamic_world_size=bool(dynamic_world_size),
        unified_address_space=bool(unified_address_space),
        auto_ranking=bool(auto_ranking),
        rank_id=rank_id,
        flags=flags,
    )
    config.set_nic(nic)
    tls.use_for_data(data_tls)
    tls.use_for_store(store_tls)
    return bm.initialize(url, world_size, device_id, config)


@c_call
def bm_uninit(flags: int) -> Answer:
    for pool in _pools.take_all():
        pool._end_group_events()  # the program may free what they work with
    bm.uninitialize(flags)
    return 0


@c_call
def bm_get_rank_id() -> Answer:
    return 0, runtime.current_node().member.rank


@c_call
def bm_update_store_url(url: str) -> Answer:
    return bm.update_store_url(url)


@c_call
def bm_create(
    handle: int,
    object_id: int,
    local_dram: int,
    max_dram: int,
    local_hbm: int,
    max_hbm: int,
    op_type: int,
    wide_addresses: int,
    flags: int,
    shm_fd: int,
    tag: str,
    rules: str,
) -> Answer:
    try:
        pool = bm.create2(
            object_id, local_dram, max_dram, local_hbm, max_hbm, op_type, bool(wide_addresses), flags, shm_fd, tag,
            rules,
        )  # fmt: skip
    except FabricError as failure:  # reported by the call
        return int(failure.code)
    _pools.add(handle, pool)
    return 0, pool


@c_call
def bm_destroy(handle: int) -> Answer:
    _pool(handle).destroy()
    _pools.remove(handle)
    return 0


@c_call
def bm_join(handle: int, flags: int) -> Answer:
    return _pool(handle).join(flags)


@c_call
def bm_leave(handle: int, flags: int) -> Answer:
    return _pool(handle).leave(flags)


@c_call
def bm_extend_local_mem(handle: int, mem_type: int, size: int) -> Answer:
    return _pool(handle).extend_local_mem(mem_type, size)


@c_call
def bm_set_group_event_handler(handle: int, address: int, context: int) -> Answer:
    pool = _pool(handle)
    handler = c_functions.group_event_handler(address, handle, context) if address else None
    pool._change_group_event_handler(handler)
    return 0


@c_call
def bm_get_local_mem_size_by_mem_type(handle: int, mem_type: int) -> Answer:
    """0 bytes are an answer, too."""
    pool = _pool(handle)
    return 0, pool.local_mem_size(_mem_type(mem_type))


@c_call
def bm_ptr_by_mem_type(handle: int, mem_type: int, rank: int) -> Answer:
    address = _pool(handle).peer_rank_ptr(rank, _mem_type(mem_type))
    return (0, address) if address else int(InvalidParam.code)


@c_call
def bm_gva_to_va(handle: int, gva: int, mem_type: int) -> Answer:
    address = _pool(handle).gva_to_va(gva, _mem_type(mem_type))
    return (0, address) if address else int(InvalidParam.code)


@c_call
def bm_register_user_mem(handle: int, address: int, size: int) -> Answer:
    return _pool(handle).register(address, size)


@c_call
def bm_unregister_user_mem(handle: int, address: int) -> Answer:
    return _pool(handle).unregister(address)


def _mem_type(number: int) -> bm.BmMemType:
    """C's enums hold any number."""
    try:
        return bm.BmMemType(number)
    except ValueError:
        raise InvalidParam(f"the memory type is {number}, expected 0..{max(bm.BmMemType).value}") from None
