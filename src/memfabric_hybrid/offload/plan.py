"""What a configuration asks for, validated and complete. Pure, except that it reads the environment for a store.

A plan stays as it is when the program goes on with its configuration.
"""

from __future__ import annotations

import msgspec

from memfabric_hybrid import _native, settings
from memfabric_hybrid.address_space.layout import GIB, MAX_DRAM, Layout, round_up, validated_layout
from memfabric_hybrid.errors import InvalidParam
from memfabric_hybrid.offload.config import OFFLOAD_FLAG_GIANT_PAGE, OffloadConfig
from memfabric_hybrid.offload.scene import Scene
from memfabric_hybrid.store import StoreUrl, parse_url

FIRST_STORE_PORT = 8500  # programs without a store URL expect the store here, one port for every group of devices
TITLE = "offload memory"  # what sentences call it


class Group(msgspec.Struct, frozen=True):
    """Who shares the memory."""

    url: StoreUrl
    world_size: int
    rank: int
    local_world_size: int
    timeout_s: int


class Plan(msgspec.Struct, frozen=True):
    """`layout` has a slot for every rank, `alloc_bytes` of ours are filled at once; `group` is None if it is LOCAL."""

    layout: Layout
    alloc_bytes: int
    group: Group | None


def of(config: OffloadConfig) -> Plan:
    """InvalidParam for the first value outside its limits, NoResources for more addresses than there are."""
    if config.flags & ~OFFLOAD_FLAG_GIANT_PAGE:
        raise InvalidParam(
            f"flags is {config.flags:#x}, expected 0 or OFFLOAD_FLAG_GIANT_PAGE ({OFFLOAD_FLAG_GIANT_PAGE:#x})"
        )
    alloc_bytes, reserve_bytes = config.alloc_size, config.reserve_size or config.alloc_size
    if not 1 <= reserve_bytes <= MAX_DRAM:
        raise InvalidParam(f"reserve_size is {reserve_bytes} bytes, expected 1..{MAX_DRAM}")
    if alloc_bytes > reserve_bytes:
        raise InvalidParam(f"alloc_size is {alloc_bytes} bytes, which is more than reserve_size {reserve_bytes}")
    group = _group(config) if config.scene is Scene.SHARED else None
    slot_bytes = -(-reserve_bytes // GIB) * GIB
    capacity = group.world_size if group is not None else 1
    layout, _ = validated_layout(capacity, (alloc_bytes, 0), (slot_bytes, 0))
    return Plan(layout, round_up(alloc_bytes), group)


def _group(config: OffloadConfig) -> Group:
    world_size, rank, local_size = config.world_size, config.rank_id, config.local_world_size
    if not 1 <= world_size <= _native.MAX_RANKS:
        raise InvalidParam(f"world_size is {world_size}, expected 1..{_native.MAX_RANKS}")
    if rank >= world_size:
        raise InvalidParam(f"rank_id is {rank}, expected 0..{world_size - 1} (world_size - 1)")
    if local_size and world_size % local_size:
        raise InvalidParam(f"local_world_size is {local_size}, expected 0 or a divisor of the world_size {world_size}")
    if config.init_timeout == 0:
        raise InvalidParam("init_timeout is 0 s, expected at least 1")
    return Group(_url(config), world_size, rank, local_size or world_size, config.init_timeout)


def _url(config: OffloadConfig) -> StoreUrl:
    given = config.store_url or settings.text(settings.STORE_URL)
    if given:
        return parse_url(given)
    if config.local_world_size not in (0, config.world_size):
        raise InvalidParam(
            f"store_url is empty, and the {config.world_size} ranks are on several hosts (local_world_size is "
            f"{config.local_world_size}): give it, or set {settings.STORE_URL.names[0]}"
        )
    port = FIRST_STORE_PORT + config.device_id // config.world_size
    return parse_url(f"tcp://127.0.0.1:{port}")
