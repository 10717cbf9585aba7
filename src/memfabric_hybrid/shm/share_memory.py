"""`ShareMemory`: a symmetric heap over all ranks, as a program uses it.

`barrier` and `all_gather` are the native class's own and are inherited, not wrapped: on one host they cost less than a
Python frame around them would.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar

import msgspec

from memfabric_hybrid import _native, logs
from memfabric_hybrid.address_space.layout import Tier
from memfabric_hybrid.address_space.pool import Pool
from memfabric_hybrid.api import arguments, boundary
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import FabricError, InvalidParam, NotInit
from memfabric_hybrid.machine import forks
from memfabric_hybrid.shm.atomic_values import AtomicValues
from memfabric_hybrid.shm.failed_ranks import FailedRanks
from memfabric_hybrid.shm.global_exit import ExitHandler, GlobalExit
from memfabric_hybrid.shm.heap_events import HeapEvents
from memfabric_hybrid.shm.heap_memory import HeapMemory
from memfabric_hybrid.shm.inter_host_exchange import InterHostExchange
from memfabric_hybrid.shm.store_subgroups import StoreSubgroups
from memfabric_hybrid.store import FAREWELL_S
from memfabric_hybrid.transports.op_types import ShmDataOpType
from memfabric_hybrid.transports.routes import MAPPED_MEMORY

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike

    from memfabric_hybrid.shm.runtime import Runtime

_Buffer = TypeVar("_Buffer")
log = logs.get(__name__)


class Parts(msgspec.Struct, frozen=True):
    """What a ShareMemory is made of, once all ranks are there; it owns all of it from its own creation on."""

    runtime: Runtime
    object_id: int
    pool: Pool
    space: _native.Space
    page_fd: int  # our control page, shown to neighbours again when the store was away
    members: list[int]  # the ranks of this host
    inter_host: InterHostExchange | None  # None: there is one host only
    failed_ranks: FailedRanks
    events: HeapEvents


class ShareMemory(_native.HostGroup):
    """Memory of the same size on every rank, in one range of addresses that is the same on every rank.

    Made by `shm.create`, on all ranks together. Rank i's memory begins at `gva + i * symmetric_size`; on one host it is
    read and written there directly, from Python (`array`), from Numba kernels (`memfabric_hybrid.device`) and from C++
    kernels; `put` and `get` also reach ranks of other hosts. A rank that dies or destroys the object breaks it:
    collectives then fail with -2014 on all others until it is created again. Usable as a context manager: leaving the
    block destroys the object.
    """

    def __init__(self, parts: Parts, page_fd: int, deadline: Deadline) -> None:
        layout, node = parts.pool.spec.layout, parts.runtime.node
        self._parts = parts
        self._id = parts.object_id
        self._rank = node.member.rank
        self._rank_size = layout.capacity
        self._symmetric_size = layout.max_dram
        self._gva = parts.space._slot_address(0, int(Tier.DRAM))
        self._memory = HeapMemory(parts.space, f"shm object {self._id}", self._gva, layout.max_dram, layout.capacity)
        self._operation_timeout_s = float(parts.runtime.config.operation_timeout)
        self._destroyed = False
        self._kept_mapped: list[object] = []
        self._ending = threading.Lock()  # taken by who ends it, and never given back
        name = parts.pool.spec.name
        self._values = AtomicValues(node.member.store, parts.pool.group.wait_for_store, name, self._rank)
        parts.events.values = self._values
        self._global_exit = GlobalExit(node, name, self._operation_timeout_s, deadline)
        try:
            inter_host = parts.inter_host
            self._store_subgroups = None
            if inter_host is not None:
                self._store_subgroups = StoreSubgroups(
                    node.member.store, f"{inter_host.group}-subgroup", self._rank, parts.failed_ranks.check
                )
            super().__init__(
                page_fd, self._rank, self._rank_size, parts.members, f"shm object {self._id}",
                deadline.remaining_s(), inter_host.exchange if inter_host is not None else None,
            )  # fmt: skip
            try:
                # Kernels use plain addresses: the memory of a rank that dies stays until the object is destroyed.
                mapped = [rank for rank in parts.members if self._is_mapped(rank)]
                for rank in mapped:
                    self._kept_mapped.append(parts.space._view(rank, int(Tier.DRAM), 0, 0))
                words = self._departure_words
                _native.device_table_enter(
                    self._id, self._rank, self._rank_size, self._gva, self._symmetric_size, *words,
                    sorted(set(range(self._rank_size)) - set(mapped)),
                )  # fmt: skip
            except BaseException:
                self._kept_mapped.clear()  # whoever keeps the exception keeps us, but not the addresses
                for rank, reason in parts.pool.group.gone().items():
                    self._declare_gone(rank, reason)  # the others read on the page on whose account we leave
                self._leave()
                raise
        except BaseException:
            self._global_exit.close(Deadline(FAREWELL_S))
            raise

    def _is_mapped(self, rank: int) -> bool:
        """Of this host, and not reached by RDMA only."""
        return rank == self._rank or self._parts.pool.group.route(rank).name == MAPPED_MEMORY

    # ---- the heap ---------------------------------------------------------------------------------------------------

    @property
    @boundary.returns(arguments.U32_MAX)
    def local_rank(self) -> int:
        """This process's rank in the object; 4294967295 for a closed handle."""
        self._alive()
        return self._rank

    @property
    @boundary.returns(0)
    def rank_size(self) -> int:
        """How many ranks the object has; 0 for a closed handle."""
        self._alive()
        return self._rank_size

    @property
    @boundary.returns(0)
    def gva(self) -> int:
        """Where the memory of rank 0 begins, on every rank; 0 for a closed handle."""
        self._alive()
        return self._gva

    @property
    @boundary.returns(0)
    def symmetric_size(self) -> int:
        """Bytes of each rank's memory (what create was given, rounded up to 2 MiB); 0 for a closed handle."""
        self._alive()
        return self._symmetric_size

    @boundary.raises
    def array(
        self, rank: SupportsIndex, shape: int | Sequence[int], dtype: DTypeLike, offset: SupportsIndex = 0
    ) -> np.ndarray[Any, np.dtype[Any]]:
        """A numpy array *on* that rank's memory: no copy, every store is seen by all ranks of the host.

        `offset` counts bytes from the start of the rank's memory. torch takes it as it is: `torch.from_numpy(array)`.
        The array stays valid memory for as long as it lives, also when its rank dies: then it shows the last bytes of
        the dead. Raises ValueError for what does not fit, errors.NotConnected for a rank that is gone or on another
        host: `get` copies from there.
        """
        owner, start = arguments.u32("rank", rank), arguments.u64("offset", offset)
        self._alive()
        return self._memory.array(owner, arguments.shape("shape", shape), dtype, start)

    def put(self, source: object, rank: SupportsIndex, offset: SupportsIndex = 0) -> None:
        """Copies a buffer (C-contiguous array, bytes, torch CPU tensor) to `offset` bytes in that rank's memory.

        The rank may be on any host; the bytes are in its memory when this returns. Raises ValueError for what does not
        fit there or is no such buffer, errors.NotConnected for a rank that is gone or cannot be reached,
        errors.PartialFailed when the connection was lost and a part may have been written, errors.TimedOut when nothing
        moved for the operation time-out.
        """
        try:
            owner, start = arguments.u32("rank", rank), arguments.u64("offset", offset)
            self._alive()
            self._memory.put(source, owner, start)
        except Exception as failure:
            boundary.report("ShareMemory.put", failure)
            raise

    def get(self, rank: SupportsIndex, offset: SupportsIndex = 0, *, out: _Buffer) -> _Buffer:
        """Fills a writable buffer from `offset` bytes in that rank's memory, and returns it; otherwise as `put`."""
        try:
            owner, start = arguments.u32("rank", rank), arguments.u64("offset", offset)
            self._alive()
            self._memory.get(owner, start, out)
        except Exception as failure:
            boundary.report("ShareMemory.get", failure)
            raise
        return out

    @boundary.returns_code
    def quiet(self) -> None:
        """All puts and gets of this thread are done: they are when they return. Codes: 0; -2000 closed handle."""
        self._alive()

    @boundary.returns_code
    def set_context(self, context: bytes) -> None:
        """Gives the kernels of this rank 1..65536 bytes to read: see `device.context_address`. Replaces the last one.

        Codes: 0; -2000 too short or too long, closed handle.
        """
        if not isinstance(context, bytes):
            raise TypeError(f"context must be bytes, not {type(context).__name__}")
        self._alive()
        if not 1 <= len(context) <= _native.MAX_CONTEXT_BYTES:
            raise InvalidParam(f"the context has {len(context)} bytes, expected 1..{_native.MAX_CONTEXT_BYTES}")
        _native.device_table_set_context(self._id, context)

    @boundary.returns_code
    def destroy(self, flags: SupportsIndex = 0) -> None:
        """Ends the object in this process; collectives of the others fail from then on. Again: -2000.

        Does not wait for the others: call `barrier()` before, so that nobody needs the memory any more. Arrays made by
        `array()` stay valid until they are garbage. Codes: 0; -2000 closed handle.
        """
        arguments.u32("flags", flags)
        self._alive()
        self._end("", Deadline(min(FAREWELL_S, self._operation_timeout_s)))

    def _end(self, reason: str, farewell: Deadline) -> None:
        """Once. The others are told the reason: which departure made us leave (the first one if it is "")."""
        if not self._ending.acquire(blocking=False):
            return
        parts = self._parts
        self._destroyed = True
        reason = reason or parts.failed_ranks.first()
        _native.device_table_remove(self._id)
        self._leave()
        parts.failed_ranks.close()
        if parts.inter_host is not None:
            parts.inter_host.close()
        if self._store_subgroups is not None:
            self._store_subgroups.close()
        self._global_exit.close(farewell)
        try:
            self._values.release_all(farewell)
        except FabricError as failure:
            log.info("shm object %d: values stay until this process leaves the store: %s", self._id, failure)
        self._kept_mapped.clear()
        parts.pool.destroy(farewell, reason)
        os.close(parts.page_fd)
        parts.runtime.forget(self._id)

    # ---- who reaches whom -------------------------------------------------------------------------------------------

    def query_support_data_operation(self) -> int:
        """MTE, 1: programs compare it for equality. `reach()` has all bits that lead to a rank."""
        return int(ShmDataOpType.MTE)

    @boundary.returns_code
    def topology_can_reach(self, remote_rank: SupportsIndex, reach_info: SupportsIndex) -> None:
        """Whether the rank exists. Python cannot fill `reach_info`, an output of the C interface: `reach()` returns it.

        Codes: 0; -2000 no such rank, closed handle.
        """
        rank = arguments.u32("remote_rank", remote_rank)
        arguments.u32("reach_info", reach_info)
        self._alive()
        self._check_rank("remote_rank", rank)

    @boundary.returns(0)
    def reach(self, remote_rank: SupportsIndex) -> int:
        """The `ShmDataOpType` bits with which that rank's memory can be reached from here; 0 for none.

        MTE and SDMA: kernels and arrays address it directly. RDMA: it is on another host, `put` and `get` lead there.
        """
        rank = arguments.u32("remote_rank", remote_rank)
        self._alive()
        self._check_rank("remote_rank", rank)
        return int(self._memory.reach(rank))

    # ---- subgroups --------------------------------------------------------------------------------------------------

    def subgroup_barrier(self, key: str, rank_size: SupportsIndex, rank_id: SupportsIndex) -> int:
        """Waits until the `rank_size` members of subgroup `key` have called it; `rank_id` is our place among them.

        Which ranks of the object these are is known once each of them has come: until then the departure of any rank
        fails the call, later only that of a member does. Codes as for `barrier`, and -2000 other numbers than in the
        first call; -2002 too many subgroups; -2006 the place is taken by another rank.
        """
        try:
            members, place = self._validated_subgroup(key, rank_size, rank_id)
            if self._store_subgroups is None:
                return self._subgroup_barrier(key, members, place)
            self._store_subgroups.gather(key, members, place, b"", self._operation_timeout_s)
            return 0
        except FabricError as failure:
            return int(boundary.record("ShareMemory.subgroup_barrier", failure))

    @boundary.raises_saying("subgroup_all_gather failed")
    def subgroup_all_gather(self, key: str, rank_size: SupportsIndex, rank_id: SupportsIndex, data: bytes) -> bytes:
        """`all_gather` among the members of subgroup `key`, in order of `rank_id`. Raises as that does."""
        if not isinstance(data, bytes):
            raise TypeError(f"data must be bytes, not {type(data).__name__}")
        members, place = self._validated_subgroup(key, rank_size, rank_id)
        if not 1 <= len(data) <= _native.MAX_GATHER_BYTES:
            raise InvalidParam(f"subgroup {key!r}: {len(data)} bytes, expected 1 to {_native.MAX_GATHER_BYTES}")
        if self._store_subgroups is None:
            return self._subgroup_all_gather(key, members, place, data)
        return self._store_subgroups.gather(key, members, place, data, self._operation_timeout_s)

    # ---- values and exits -------------------------------------------------------------------------------------------

    def atomic_alloc_value(self, limit: SupportsIndex) -> int:
        """The lowest value of 0..limit-1 that no rank of the object has; ours until released, destroyed or dead.

        Returns a negative code on failure: -2000 limit 0, closed handle; -2002 all are in use; -2004 no store.
        """
        most = arguments.u32("limit", limit)
        try:
            self._alive()
            return self._values.take(most, Deadline(self._operation_timeout_s))
        except FabricError as failure:
            return int(boundary.record("ShareMemory.atomic_alloc_value", failure))

    @boundary.returns_code
    def atomic_release_value(self, value: SupportsIndex) -> None:
        """Gives a value back. Codes: 0; -2000 closed handle; -2004 no store; -2007 this rank does not have it."""
        number = arguments.u32("value", value)
        self._alive()
        self._values.release(number, Deadline(self._operation_timeout_s))

    @boundary.returns_code
    def register_exit(self, fn: ExitHandler) -> None:
        """`fn(status)` runs on a thread of ours when any rank calls `global_exit`; a second call replaces the first.

        Codes: 0; -2000 closed handle.
        """
        arguments.function("fn", fn)
        self._alive()
        self._global_exit.handler = fn

    @boundary.returns_code
    def global_exit(self, status: SupportsIndex) -> None:
        """Makes every rank's exit handler run with `status`, ours too. Does not wait. Codes: 0; -2000 closed handle."""
        number = arguments.integer("status", status)
        self._alive()
        self._global_exit.announce(number)

    # ---- inside -----------------------------------------------------------------------------------------------------

    def _alive(self) -> Parts:
        forks.notice()
        if self._parts.pool.abandoned:
            raise NotInit(
                f"shm object {self._id}: this process was forked from the member that joined; "
                "call initialize() and create() here"
            )
        if self._destroyed:
            raise InvalidParam(f"shm object {self._id} is destroyed: the handle is closed")
        return self._parts

    def _check_rank(self, name: str, rank: int) -> None:
        if rank >= self._rank_size:
            raise InvalidParam(f"{name} is {rank}, expected 0..{self._rank_size - 1} (rank_size - 1)")

    def _validated_subgroup(self, key: str, rank_size: SupportsIndex, rank_id: SupportsIndex) -> tuple[int, int]:
        arguments.text("key", key)
        members, place = arguments.u32("rank_size", rank_size), arguments.u32("rank_id", rank_id)
        self._alive()
        longest = _native.MAX_SUBGROUP_NAME_BYTES
        if not 1 <= len(key.encode()) <= longest or "\0" in key:
            raise InvalidParam(f"key {key!r} has {len(key.encode())} bytes, expected 1..{longest} without NUL")
        if not 1 <= members <= self._rank_size:
            raise InvalidParam(f"rank_size is {members}, expected 1..{self._rank_size} (ranks of the object)")
        if place >= members:
            raise InvalidParam(f"rank_id is {place}, expected 0..{members - 1} (rank_size - 1)")
        return members, place

    def __enter__(self) -> ShareMemory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._destroyed:
            self.destroy()

    def __repr__(self) -> str:
        if self._parts.pool.abandoned:
            return f"<ShareMemory {self._id}: of the parent process>"
        if self._destroyed:
            return f"<ShareMemory {self._id}: destroyed>"
        return f"<ShareMemory {self._id}: rank {self._rank} of {self._rank_size}, {self._symmetric_size} bytes each>"
