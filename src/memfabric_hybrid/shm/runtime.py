"""Share Memory's state in this process, from `shm.initialize` to `shm.uninitialize`; a forked child has none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from memfabric_hybrid import _native
from memfabric_hybrid.address_space.node import Node
from memfabric_hybrid.api.runtime_slot import RuntimeSlot
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import Duplicated, InvalidParam, NotInit
from memfabric_hybrid.machine.interruption import Interruption
from memfabric_hybrid.membership.member import Entry
from memfabric_hybrid.shm.config import ShmConfig
from memfabric_hybrid.store import FAREWELL_S, parse_url

if TYPE_CHECKING:
    from memfabric_hybrid.shm.share_memory import ShareMemory


class Runtime(msgspec.Struct):
    """The membership and the objects of this process, by id; None stands for one that is being created."""

    world_size: int
    config: ShmConfig
    node: Node
    asked: dict[str, object]  # what `config` was at initialize
    objects: dict[int, ShareMemory | None] = msgspec.field(default_factory=dict)
    lock: threading.Lock = msgspec.field(default_factory=threading.Lock)  # guards `objects`

    @contextmanager
    def creating(self, object_id: int) -> Iterator[None]:
        """Keeps the id for one creation; Duplicated when it is in use."""
        with self.lock:
            if object_id in self.objects:
                raise Duplicated(f"shm object {object_id} exists already in this process; destroy it first")
            self.objects[object_id] = None
        try:
            yield
        finally:
            with self.lock:
                if object_id in self.objects and self.objects[object_id] is None:
                    del self.objects[object_id]

    def add(self, object_id: int, made: ShareMemory) -> None:
        """NotInit when the process leaves already: nobody would end the object any more."""
        with self.lock:
            if self.node.is_leaving:
                raise NotInit(f"Share Memory was uninitialised while shm object {object_id} was created")
            self.objects[object_id] = made

    def forget(self, object_id: int) -> None:
        with self.lock:
            self.objects.pop(object_id, None)

    def end(self, farewell: Deadline) -> None:
        pools = self.node.begin_to_leave()
        self.node.member.store.hurry(farewell)
        with self.lock:
            objects = [made for made in self.objects.values() if made is not None]
        for made in objects:
            made._end("", farewell)
        for pool in pools:  # of objects that are being created
            pool.destroy(farewell)
        self.node.leave(farewell)


_slot = RuntimeSlot[Runtime](
    "Share Memory", "Share Memory is not initialised in this process: call shm.initialize() first", FAREWELL_S
)
stop = _slot.stop
current = _slot.current


def start(store_url: str, world_size: int, rank: int, config: ShmConfig) -> None:
    """Again while initialised: nothing happens, and the log says so if something else was asked for."""
    used = _slot.start(lambda interruption: _make(store_url, world_size, rank, config, interruption))
    if used is not None:
        member = used.node.member
        _slot.tell_ignored(
            {"store_url": store_url, "world_size": world_size, "rank_id": rank, **config._asked()},
            {"store_url": str(member.store.url), "world_size": used.world_size, "rank_id": member.rank, **used.asked},
        )


def _make(store_url: str, world_size: int, rank: int, config: ShmConfig, interruption: Interruption) -> Runtime:
    if not 1 <= world_size <= _native.MAX_RANKS:
        raise InvalidParam(f"world_size is {world_size}, expected 1..{_native.MAX_RANKS}")
    if rank >= world_size:
        raise InvalidParam(f"rank_id is {rank}, expected 0..{world_size - 1} (world_size - 1)")
    config._validate()
    entry = Entry(
        parse_url(store_url),
        kind="shm",
        capacity=world_size,
        wanted_rank=rank,
        hosts_store=config.start_store and rank == 0,
        takes_over=False,
    )
    return Runtime(world_size, config, Node(entry, Deadline(config.init_timeout), interruption), config._asked())


def abandon_after_fork() -> None:
    """In a forked child: the parent's membership and objects are not ours."""
    runtime = _slot.empty_after_fork()
    if runtime is not None:
        _native.device_table_remove_all()
        runtime.node.abandon_after_fork()
