"""How a ShareMemory comes to be, on all ranks together.

Each rank gets the range from the store, fills its slot, shows it to its neighbours with a control page enclosed, and
waits until everybody is there. Then the ranks of each host take the control page of their lowest rank, and a first
barrier makes sure that nobody returns before all have mapped all.
"""

from __future__ import annotations

import os
from contextlib import ExitStack

import msgspec

from memfabric_hybrid import _native
from memfabric_hybrid.address_space import segments
from memfabric_hybrid.address_space.held_range import held_range
from memfabric_hybrid.address_space.layout import GIB, Layout, Tier, validated_layout
from memfabric_hybrid.address_space.own_memory import OwnMemory
from memfabric_hybrid.address_space.pool import Pool
from memfabric_hybrid.address_space.pool_spec import PoolSpec
from memfabric_hybrid.address_space.segments import Placement
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import (
    FabricError,
    InvalidParam,
    MallocFailed,
    NoResources,
    NotInit,
)
from memfabric_hybrid.machine import signal_handlers
from memfabric_hybrid.membership.create_monitor import GONE, CreateMonitor
from memfabric_hybrid.shm import runtime
from memfabric_hybrid.shm.control_pages import ControlPages
from memfabric_hybrid.shm.failed_ranks import FailedRanks
from memfabric_hybrid.shm.heap_events import HeapEvents
from memfabric_hybrid.shm.inter_host_exchange import InterHostExchange
from memfabric_hybrid.shm.share_memory import Parts, ShareMemory
from memfabric_hybrid.store import FAREWELL_S
from memfabric_hybrid.transports import routes, ucx_offer
from memfabric_hybrid.transports.op_types import ShmDataOpType
from memfabric_hybrid.transports.ucx_offer import UcxOffer

MAX_LOCAL = 64 * GIB
ALL_BITS = ShmDataOpType.MTE | ShmDataOpType.SDMA | ShmDataOpType.RDMA


class CreateRequest(msgspec.Struct, frozen=True):
    """The arguments of create, types checked."""

    object_id: int
    rank_size: int
    rank: int
    local_mem_size: int
    op_type: int


def make(request: CreateRequest) -> ShareMemory:
    """The object, complete on every rank; FabricError otherwise, and then nothing of it is left here."""
    current = runtime.current()
    layout = _validated_layout(request, current)
    with current.creating(request.object_id):
        try:
            return _create(request, layout, current)
        except FabricError as failure:
            if current.node.is_leaving:
                sentence = f"Share Memory was uninitialised while shm object {request.object_id} was created"
                raise NotInit(sentence) from failure
            raise


def _validated_layout(request: CreateRequest, current: runtime.Runtime) -> Layout:
    rank = current.node.member.rank
    if request.object_id >= _native.DEVICE_OBJECTS:
        raise InvalidParam(f"id is {request.object_id}, expected 0..{_native.DEVICE_OBJECTS - 1}")
    if not 1 <= request.rank_size <= current.world_size:
        raise InvalidParam(f"rank_size is {request.rank_size}, expected 1..{current.world_size} (world_size)")
    if request.rank != rank:
        raise InvalidParam(f"rank_id is {request.rank}, but this process was initialised as rank {rank}; use the same")
    if request.rank >= request.rank_size:
        raise InvalidParam(f"rank_id is {request.rank}, expected 0..{request.rank_size - 1} (rank_size - 1)")
    if not 1 <= request.local_mem_size <= MAX_LOCAL:
        raise InvalidParam(f"local_mem_size is {request.local_mem_size} bytes, expected 1..{MAX_LOCAL}")
    if request.op_type == 0 or request.op_type & ~int(ALL_BITS):
        raise InvalidParam(f"data_op_type is {request.op_type:#x}, expected one or more of the bits {int(ALL_BITS):#x}")
    size = (request.local_mem_size, 0)
    return validated_layout(request.rank_size, size, size)[0]


def _create(request: CreateRequest, layout: Layout, current: runtime.Runtime) -> ShareMemory:
    deadline = Deadline(current.config.create_timeout)
    op_type = ShmDataOpType(request.op_type).as_bm()
    ucx = ucx_offer.make(op_type, must_encrypt=current.node.data_tls.is_on)
    if routes.is_rdma_demanded(op_type) and ucx.end.obstacle:
        raise NoResources(f"no route for data_op_type RDMA: {ucx.end.obstacle}; or allow MTE or SDMA as well")
    pages = ControlPages(request.rank, request.rank_size)
    failed_ranks = FailedRanks()
    events = HeapEvents(pages, failed_ranks, op_type, ucx.end)
    with ExitStack() as undo:
        undo.callback(os.close, pages.own)
        pool, space = _open_pool(request, layout, current, pages, events, ucx, deadline)
        undo.push(lambda kind, error, trace: pool.destroy(Deadline(FAREWELL_S), str(error)))
        try:
            with CreateMonitor(
                current.node.member, request.rank_size, lambda rank: pool.group.miss(rank, GONE), deadline
            ):
                pool.join(deadline)
                pool.group.wait_for_all(deadline)
            _native._pause_point("shm.create.all_are_here")
            if routes.is_rdma_demanded(op_type):
                pool.seek((), deadline)  # ranks of this host are reached as the store shows them
            hosts, lives = pool.group.hosts(), pool.group.stamps()
            own_host, members = next((n, ranks) for n, ranks in enumerate(hosts) if request.rank in ranks)
            inter_host = None
            if len(hosts) > 1:
                store = current.node.member.store
                inter_host = InterHostExchange(store, pool.spec.name, lives, hosts, own_host, failed_ranks.check)
            parts = Parts(current, request.object_id, pool, space, pages.own, members, inter_host, failed_ranks, events)
            with pages.chosen(members[0]) as page:
                made = ShareMemory(parts, page, deadline)
        finally:
            pages.close_others()
        undo.pop_all()
        undo.push(lambda kind, error, trace: made._end(str(error), Deadline(FAREWELL_S)))
        failed_ranks.tell(made, lives, pool.group.gone)
        made._barrier()
        made._set_timeout(current.config.operation_timeout)
        current.add(request.object_id, made)
        undo.pop_all()
        return made


def _open_pool(
    request: CreateRequest,
    layout: Layout,
    current: runtime.Runtime,
    pages: ControlPages,
    events: HeapEvents,
    ucx: UcxOffer,
    deadline: Deadline,
) -> tuple[Pool, _native.Space]:
    """Our memory in its place, not joined yet."""
    name, title, store = f"shm/{request.object_id}", f"shm object {request.object_id}", current.node.member.store
    spec = PoolSpec(name, title, layout, op_type=int(ShmDataOpType(request.op_type).as_bm()))
    segment = segments.create(Tier.DRAM, 0, layout.max_dram, Placement())
    try:
        asked = f"rank {request.rank} asked for {title} with {layout}"
        with held_range(store, name, layout.total_bytes, asked=asked, deadline=deadline) as base:
            _native._pause_point("shm.create.holds_range")
            stall_limit_s = float(current.config.operation_timeout)
            space = _native.Space(base, layout.capacity, layout.max_dram, 0, request.rank, title, stall_limit_s)
            try:
                own = OwnMemory(spec, space, [segment], enclosed_fds=(pages.own,))
                pool = Pool(current.node, spec, space, own, events, ucx)
            except BaseException:
                space._close()
                raise
    except BaseException as failure:
        segment.close()
        if isinstance(failure, OSError) and not signal_handlers.raised(failure):
            size = f"{layout.capacity} ranks × {layout.max_dram} bytes"
            raise MallocFailed(f"the range of {size} cannot be reserved: {failure}") from failure
        raise
    return pool, space
