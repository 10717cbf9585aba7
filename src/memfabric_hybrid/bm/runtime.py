"""Big Memory's state in this process, from `bm.initialize` to `bm.uninitialize`; a forked child has none."""

from __future__ import annotations

import threading

import msgspec

from memfabric_hybrid import _native, settings
from memfabric_hybrid.address_space.node import Node
from memfabric_hybrid.api.runtime_slot import RuntimeSlot
from memfabric_hybrid.bm.config import BmConfig
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import InvalidParam, NotInit
from memfabric_hybrid.machine.interruption import Interruption
from memfabric_hybrid.membership.member import Entry
from memfabric_hybrid.store import FAREWELL_S, StoreUrl, parse_url
from memfabric_hybrid.store.server import hosting


class Runtime(msgspec.Struct):
    """`node` is None when only the store runs here (`start_store_only`)."""

    url: StoreUrl  # where the store is now
    world_size: int
    config: BmConfig
    node: Node | None
    asked: dict[str, object]  # what `config` was at initialize
    creating: threading.Lock = msgspec.field(default_factory=threading.Lock)  # one create at a time

    def end(self, farewell: Deadline) -> None:
        if self.node is None:
            hosting.release(self.url, "bm")
            return
        pools = self.node.begin_to_leave()
        self.node.member.store.hurry(farewell)
        for pool in pools:
            pool.destroy(farewell)
        self.node.leave(farewell)


_slot = RuntimeSlot[Runtime](
    "Big Memory", "Big Memory is not initialised in this process: call bm.initialize() first", FAREWELL_S
)
stop = _slot.stop
current = _slot.current


def start(store_url: str, world_size: int, config: BmConfig) -> None:
    """Again while initialised: nothing happens, and the log says so if something else was asked for."""
    used = _slot.start(lambda interruption: _make(store_url, world_size, config, interruption))
    if used is not None:
        _slot.tell_ignored(
            {"store_url": store_url, "world_size": world_size, **config._asked()},
            {"store_url": str(used.url), "world_size": used.world_size, **used.asked},
        )


def _make(store_url: str, world_size: int, config: BmConfig, interruption: Interruption) -> Runtime:
    if not 1 <= world_size <= _native.MAX_RANKS:
        raise InvalidParam(f"world_size is {world_size}, expected 1..{_native.MAX_RANKS}")
    config._validate(world_size)
    _native.set_copy_threads(settings.copy_threads())
    url = parse_url(store_url)
    if config.start_store_only:
        hosting.host(url, "bm")
        return Runtime(url, world_size, config, None, config._asked())
    entry = Entry(
        url,
        kind="bm",
        capacity=world_size,
        wanted_rank=None if config.auto_ranking else config.rank_id,
        hosts_store=config.start_store and (config.auto_ranking or config.rank_id == 0),
        takes_over=config.start_store and config.auto_ranking,
    )
    node = Node(entry, Deadline(config.init_timeout), interruption, config._nic)
    return Runtime(url, world_size, config, node, config._asked())


def current_node() -> Node:
    """The membership, or NotInit."""
    node = current().node
    if node is None:
        raise NotInit("this process runs the store only (start_store_only): it has no rank and no memory")
    return node


def abandon_after_fork() -> None:
    """In a forked child: the parent's membership is not ours."""
    runtime = _slot.empty_after_fork()
    if runtime is not None and runtime.node is not None:
        runtime.node.abandon_after_fork()
