"""How a BigMemory comes to be: validate the arguments, get the range from the store, reserve it, fill our slot."""

from __future__ import annotations

import functools
import operator

import msgspec

from memfabric_hybrid import _native, logs, settings
from memfabric_hybrid.address_space import segments
from memfabric_hybrid.address_space.held_range import held_range
from memfabric_hybrid.address_space.layout import Layout, Tier, round_up, validated_layout
from memfabric_hybrid.address_space.node import Node
from memfabric_hybrid.address_space.pool_spec import PoolSpec
from memfabric_hybrid.address_space.segments import Placement, Segment
from memfabric_hybrid.bm import runtime
from memfabric_hybrid.bm.big_memory import BigMemory
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import Duplicated, FabricError, InvalidParam, MallocFailed, NotInit
from memfabric_hybrid.machine import signal_handlers
from memfabric_hybrid.transports import routes, ucx_offer
from memfabric_hybrid.transports.ucx_offer import UcxOffer

log = logs.get(__name__)
NO_FD = -1
NUMA_NODE = 0x7F
NUMA_GIVEN = 1 << 7
CREATE_WITH_SHM = 1 << 8
# Bit 9, DRAM_MAP_HOST_VA, asks for what is always so: host memory is addressable at its global address.
DRAM_BEST_EFFORT = 1 << 10  # a NUMA node becomes a preference


class CreateRequest(msgspec.Struct, frozen=True):
    """The arguments of create2, types checked."""

    object_id: int
    local: tuple[int, int]
    maximum: tuple[int, int]
    op_type: int
    flags: int
    shm_fd: int = NO_FD
    tag: str = ""
    tag_op_info: str = ""


def make(request: CreateRequest) -> BigMemory:
    """The object, not joined yet; FabricError otherwise."""
    current = runtime.current()
    node = runtime.current_node()
    layout, local = validated_layout(current.world_size, request.local, request.maximum)
    routes.check_tag(request.tag)
    rules = routes.parse_rules(request.tag_op_info)
    allowed = functools.reduce(operator.or_, rules.values(), request.op_type)
    ucx = ucx_offer.make(allowed, must_encrypt=node.data_tls.is_on)
    routes.check_op_type(request.op_type, ucx.end)
    placement = _placement(request.flags)
    with current.creating:
        try:
            return _make(request, current, node, layout, local, placement, rules, ucx)
        except FabricError as failure:
            if node.is_leaving:
                raise NotInit(
                    f"Big Memory was uninitialised while bm object {request.object_id} was created"
                ) from failure
            raise


def _make(
    request: CreateRequest,
    current: runtime.Runtime,
    node: Node,
    layout: Layout,
    local: tuple[int, int],
    placement: Placement,
    rules: routes.Rules,
    ucx: UcxOffer,
) -> BigMemory:
    """Under the lock of creations. What cannot be finished leaves nothing behind."""
    name, title = f"bm/{request.object_id}", f"bm object {request.object_id}"
    if any(pool.spec.name == name for pool in node.pools()):
        raise Duplicated(f"{title} exists already in this process; destroy it first")
    own_segments = _segments(request, local, placement)
    store = node.member.store
    try:
        asked = f"rank {node.member.rank} asked for {title} with {layout}"
        deadline = Deadline(current.config.create_timeout)
        with held_range(store, name, layout.total_bytes, asked=asked, deadline=deadline) as base:
            _native._pause_point("bm.create.holds_range")
            follows_all = layout.capacity <= settings.follow_all()
            return BigMemory(
                node, request.object_id, base,
                PoolSpec(name, title, layout, request.tag, request.op_type, follows_all), own_segments,
                placement=placement, rules=rules, ucx=ucx,
                operation_timeout_s=current.config.operation_timeout,
            )  # fmt: skip
    except BaseException as failure:
        for segment in own_segments:
            segment.close()
        if isinstance(failure, OSError) and not signal_handlers.raised(failure):
            raise MallocFailed(f"the range of {_size(layout)} cannot be reserved: {failure}") from failure
        raise


def _placement(flags: int) -> Placement:
    if not flags & NUMA_GIVEN:
        return Placement()
    node = flags & NUMA_NODE
    segments.check_node(node)
    return Placement(node, strict=not flags & DRAM_BEST_EFFORT)


def _segments(request: CreateRequest, local: tuple[int, int], placement: Placement) -> list[Segment]:
    """Our part: one segment per space that we contribute to."""
    if request.shm_fd != NO_FD and not request.flags & CREATE_WITH_SHM:
        log.warning(
            "bm object %d: shm_fd=%d is ignored, because flags has not bit 8 (CREATE_WITH_SHM, 256)",
            request.object_id, request.shm_fd,
        )  # fmt: skip
    if request.flags & CREATE_WITH_SHM:
        if not local[0]:
            raise InvalidParam("CREATE_WITH_SHM is set but local_dram_size is 0")
        made = [segments.adopt(request.shm_fd, round_up(local[0]))]
    else:
        made = [segments.create(Tier.DRAM, 0, local[0], placement)] if local[0] else []
    try:
        if local[1]:
            made.append(segments.create(Tier.HBM, 0, local[1], Placement()))
    except BaseException:
        for segment in made:
            segment.close()
        raise
    return made


def _size(layout: Layout) -> str:
    return f"{layout.capacity} ranks × {layout.max_dram + layout.max_hbm} bytes"
