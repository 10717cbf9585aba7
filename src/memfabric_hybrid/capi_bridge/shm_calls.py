"""smem_shm.h: Share Memory."""

from __future__ import annotations

from memfabric_hybrid import shm
from memfabric_hybrid.capi_bridge import c_functions
from memfabric_hybrid.capi_bridge.answers import Answer, c_call, refused, utf8
from memfabric_hybrid.capi_bridge.objects import Objects
from memfabric_hybrid.errors import FabricError, NotExist
from memfabric_hybrid.shm import runtime

_heaps = Objects[shm.ShareMemory]("shm object")


def _heap(handle: int) -> shm.ShareMemory:
    runtime.current()
    return _heaps.get(handle)


@c_call
def shm_refuse(call: str, handle: int) -> Answer:
    return refused(call, _heap, handle)


@c_call
def shm_config_init() -> Answer:
    config = shm.ShmConfig()
    return 0, config.init_timeout, config.create_timeout, config.operation_timeout, config.start_store, config.flags


@c_call
def shm_init(
    url: str,
    world_size: int,
    rank: int,
    device_id: int,
    init_timeout: int,
    create_timeout: int,
    operation_timeout: int,
    start_store: int,
    flags: int,
) -> Answer:
    config = shm.ShmConfig(
        init_timeout=init_timeout,
        create_timeout=create_timeout,
        operation_timeout=operation_timeout,
        start_store=bool(start_store),
        flags=flags,
    )
    return shm.initialize(url, world_size, rank, device_id, config)


@c_call
def shm_uninit(flags: int) -> Answer:
    shm.uninitialize(flags)
    _heaps.take_all()
    return 0


@c_call
def shm_query_support_data_operation() -> Answer:
    return 0, int(shm.ShmDataOpType.MTE)


@c_call
def shm_create(
    handle: int, object_id: int, rank_size: int, rank: int, symmetric_size: int, op_type: int, flags: int
) -> Answer:
    try:
        heap = shm.create(object_id, rank_size, rank, symmetric_size, op_type, flags)
    except FabricError as failure:  # reported by the call
        return int(failure.code)
    _heaps.add(handle, heap)
    return 0, heap, heap.gva


@c_call
def shm_destroy(handle: int, flags: int) -> Answer:
    code = _heap(handle).destroy(flags)
    if code == 0:
        _heaps.remove(handle)
    return code


@c_call
def shm_set_extra_context(handle: int, context: bytes) -> Answer:
    return _heap(handle).set_context(context)


@c_call
def shm_get_global_rank(handle: int) -> Answer:
    return 0, _heap(handle).local_rank


@c_call
def shm_get_global_rank_size(handle: int) -> Answer:
    return 0, _heap(handle).rank_size


@c_call
def shm_get_symmetric_size(handle: int) -> Answer:
    return 0, _heap(handle).symmetric_size


@c_call
def shm_topology_can_reach(handle: int, remote_rank: int) -> Answer:
    heap = _heap(handle)
    code = heap.topology_can_reach(remote_rank, 0)
    return (0, heap.reach(remote_rank)) if code == 0 else code


@c_call
def shm_subgroup_barrier(handle: int, key: str, rank_size: int, rank: int) -> Answer:
    return _heap(handle).subgroup_barrier(utf8("key", key), rank_size, rank)


@c_call
def shm_subgroup_allgather(handle: int, key: str, rank_size: int, rank: int, data: bytes) -> Answer:
    utf8("key", key)
    try:
        return 0, _heap(handle).subgroup_all_gather(key, rank_size, rank, data)
    except FabricError as failure:  # reported by the call
        return int(failure.code)


@c_call
def shm_atomic_alloc_value(handle: int, limit: int) -> Answer:
    value = _heap(handle).atomic_alloc_value(limit)
    return (0, value) if value >= 0 else value


@c_call
def shm_atomic_release_value(handle: int, value: int) -> Answer:
    heap = _heap(handle)
    if value < 0:
        raise NotExist(f"value {value} is not held by this rank: values are 0 or more")
    return heap.atomic_release_value(value)


@c_call
def shm_register_exit(handle: int, address: int) -> Answer:
    return _heap(handle).register_exit(c_functions.exit_function(address))


@c_call
def shm_global_exit(handle: int, status: int) -> Answer:
    return _heap(handle).global_exit(status)
