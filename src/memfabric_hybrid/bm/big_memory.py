"""`BigMemory`: one pool of memory over many ranks, as a program uses it.

The hot calls (copy_data, copy_data_batch, copy_data_2d, wait, get_rank_id_by_gva) are the native class's own and are
inherited, not wrapped: a Python frame would cost more than a small copy.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar

from memfabric_hybrid import _native, logs
from memfabric_hybrid.address_space.layout import Tier, round_up
from memfabric_hybrid.address_space.node import Node
from memfabric_hybrid.address_space.own_memory import OwnMemory
from memfabric_hybrid.address_space.pool import Pool
from memfabric_hybrid.address_space.pool_spec import PoolSpec
from memfabric_hybrid.address_space.segments import Placement, Segment
from memfabric_hybrid.api import arguments, boundary
from memfabric_hybrid.bm.enums import BmMemType
from memfabric_hybrid.bm.group_events import GroupEventHandler, GroupEvents
from memfabric_hybrid.bm.pool_memory import PoolMemory
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import Duplicated, FabricError, InvalidParam, NotExist, NotInit, TimedOut
from memfabric_hybrid.machine import forks
from memfabric_hybrid.store import FAREWELL_S
from memfabric_hybrid.transports.routes import MAPPED_MEMORY, Route, Rules
from memfabric_hybrid.transports.ucx_offer import UcxOffer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike

log = logs.get(__name__)
_Buffer = TypeVar("_Buffer")


class BigMemory(_native.Space):
    """A pool of memory with one range of addresses, the same on every rank. Made by `bm.create` or `bm.create2`.

    Rank r's DRAM begins at `peer_rank_ptr(r, BmMemType.HOST)`, its HBM at `peer_rank_ptr(r, BmMemType.DEVICE)`. On one
    host every joined rank's memory can be read and written directly at these addresses. Usable as a context manager:
    leaving the block destroys the object.
    """

    def __init__(
        self,
        node: Node,
        object_id: int,
        base: int,
        spec: PoolSpec,
        own_segments: list[Segment],
        *,
        placement: Placement,
        rules: Rules,
        ucx: UcxOffer,
        operation_timeout_s: float,
    ) -> None:
        layout = spec.layout
        super().__init__(
            base, layout.capacity, layout.max_dram, layout.max_hbm, node.member.rank, spec.title, operation_timeout_s
        )
        self._id = object_id
        self._layout = layout
        self._own_rank = node.member.rank
        self._placement = placement
        self._operation_timeout_s = operation_timeout_s
        self._memory = PoolMemory(self, spec.title, layout, self._seek, self._why_gone)
        self._group_events = GroupEvents(spec, rules, ucx.end)
        self._registered: dict[int, int] = {}
        self._registered_lock = threading.Lock()
        try:
            self._pool = Pool(node, spec, self, OwnMemory(spec, self, own_segments), self._group_events, ucx)
        except BaseException:
            self._close()
            raise

    def _seek(self, rank: int) -> None:
        """It is not here, as far as we know: where we do not follow all, the store may know more."""
        with suppress(FabricError):  # it cannot be asked: then nothing is known
            if not self._pool.follows_all:
                self._pool.catch_up([rank])

    def _why_gone(self, rank: int) -> str:
        if not self._pool.group.takes_part:
            return "this rank has not joined; call join() first"
        return self._pool.group.gone().get(rank, f"rank {rank} has not joined")

    # ---- taking part -----------------------------------------------------------------------------------------------

    @boundary.returns_code
    def join(self, flags: SupportsIndex = 0) -> None:
        """Takes part in the pool; does not wait for ranks that have not joined. Joining again does nothing.

        When it returns 0, every rank that joined before can reach our memory and we can reach theirs.
        Codes: 0; -2000 closed handle (also one that is closed meanwhile), or another rank was created with other sizes;
        -2002 this process, or one that joined before, is out of descriptors; -2003 left meanwhile; -2004 the store, or
        a rank of this host that is alive, did not answer; -2014 a rank of this host belongs to another user.
        """
        arguments.u32("flags", flags)
        self._alive().join(self._deadline())

    @boundary.returns_code
    def leave(self, flags: SupportsIndex = 0) -> None:
        """Stops taking part; other ranks' copies to us fail with -2014 from then on. Our bytes stay until destroy.

        Codes: 0; -2000 closed handle; -2003 not joined.
        """
        arguments.u32("flags", flags)
        self._alive().leave(self._deadline())

    def destroy(self) -> None:
        """Leaves, unmaps and frees everything of this object in this process. Again: nothing happens.

        The group-event handler is not called any more; one that runs is waited for, up to a second. Arrays made by
        `array()` stay valid until they are garbage.
        """
        self._end_group_events()
        self._pool.destroy(self._farewell())

    @boundary.returns_code
    def extend_local_mem(self, mem_type: SupportsIndex = BmMemType.HOST, size: SupportsIndex = 0) -> None:
        """Adds `size` bytes (rounded up to 2 MiB) to this rank's part; other ranks can use them when it returns.

        Codes: 0; -2000 size 0, beyond the maximum given at create, unknown mem_type, closed handle; -2001 no memory;
        -2002 too many extensions; -2004 the store did not answer.
        """
        size_bytes = arguments.u64("size", size)
        tier = _tier(mem_type)
        if size_bytes == 0:
            raise InvalidParam("size is 0 bytes, expected at least 1")
        self._alive().extend(tier, round_up(size_bytes), self._placement, self._deadline())

    @boundary.returns(None)
    def set_group_event_handler(self, fn: GroupEventHandler | None) -> None:
        """`fn(rank, BmGroupEvent)` runs on a thread of its own when a rank joins, leaves or dies; None stops it.

        When this returns, the one before runs no more (should it not have returned after a second, the log says so),
        unless it is what calls this. What it raises is logged and goes no further, even `SystemExit`. In worlds
        of more than MF_FOLLOW_ALL ranks this process is told of all of them from now on, for which the store is asked;
        should it not answer, the log says so, and until the next call or `join` `fn` hears of the ranks that
        this process has to do with.
        """
        if fn is not None:
            arguments.function("fn", fn)
        self._change_group_event_handler(fn)

    def _change_group_event_handler(self, fn: GroupEventHandler | None) -> None:
        """The same; raises the failures."""
        self._group_events.change_handler(fn, self._farewell())
        if fn is not None and not self._pool.follows_all:
            self._alive().follow_all(self._deadline())

    def _end_group_events(self) -> None:
        try:
            self._group_events.change_handler(None, self._farewell())
        except TimedOut as blocked:
            log.warning("%s", blocked)

    @boundary.raises
    def route(self, rank: SupportsIndex) -> Route:
        """Which way copies to and from that rank go ("mapped", "tcp", "ucx" or "none"), and why that one.

        Raises ValueError for a rank that does not exist, errors.NotConnected for one that has not joined.
        """
        number = arguments.u32("rank", rank)
        pool = self._alive()
        self._memory.check_rank(number)
        if number == self._own_rank:
            return Route(MAPPED_MEMORY, "it is this rank")
        return pool.route(number)

    @property
    @boundary.raises
    def ranks(self) -> list[int]:
        """The ranks that take part now and can be reached, this one as well; none before `join`.

        In worlds of more than MF_FOLLOW_ALL ranks the store is asked the first time, and may raise errors.TimedOut.
        """
        pool = self._alive()
        if not pool.follows_all:
            pool.follow_all(self._deadline())
        return pool.group.view()[1]

    @boundary.raises
    def wait_for(self, ranks: Iterable[SupportsIndex] | None = None, timeout: float | None = None) -> None:
        """Returns when all of these ranks (None: every rank of the world) take part and can be reached.

        At most `timeout` seconds, or the operation time-out of the configuration. Raises errors.TimedOut, which names
        those that have not come, errors.NotStarted before `join`, ValueError for a rank that does not exist.
        """
        pool = self._alive()
        deadline = self._deadline() if timeout is None else Deadline(arguments.seconds("timeout", timeout))
        chosen = range(self._layout.capacity) if ranks is None else arguments.numbers("ranks", ranks)
        for rank in chosen:
            self._memory.check_rank(rank)
        pool.wait_for(frozenset(chosen), deadline)

    # ---- bytes -----------------------------------------------------------------------------------------------------

    def put(
        self, source: object, rank: SupportsIndex, offset: SupportsIndex = 0, mem_type: SupportsIndex = BmMemType.HOST
    ) -> None:
        """Copies a buffer (C-contiguous array, bytes, torch CPU tensor) to `offset` bytes in that rank's memory.

        The rank may be on any host; the bytes are in its memory when this returns. Raises ValueError for what does not
        fit there or is no such buffer, errors.NotConnected for a rank that has not joined or is gone, and other
        FabricErrors as `copy_data` has codes.
        """
        try:
            owner, start, tier = arguments.u32("rank", rank), arguments.u64("offset", offset), _tier(mem_type)
            self._alive()
            self._memory.put(source, owner, tier, start)
        except Exception as failure:
            boundary.report("BigMemory.put", failure)
            raise

    def get(
        self, rank: SupportsIndex, offset: SupportsIndex = 0, mem_type: SupportsIndex = BmMemType.HOST, *, out: _Buffer
    ) -> _Buffer:
        """Fills a writable buffer from `offset` bytes in that rank's memory, and returns it; otherwise as `put`."""
        try:
            owner, start, tier = arguments.u32("rank", rank), arguments.u64("offset", offset), _tier(mem_type)
            self._alive()
            self._memory.get(owner, tier, start, out)
        except Exception as failure:
            boundary.report("BigMemory.get", failure)
            raise
        return out

    # ---- addresses -------------------------------------------------------------------------------------------------

    @boundary.returns(0)
    def local_mem_size(self, mem_type: SupportsIndex = BmMemType.DEVICE) -> int:
        """Bytes this rank contributes (rounded up to 2 MiB); 0 for none, an unknown mem_type or a closed handle."""
        tier = _tier(mem_type)
        self._alive()
        return self._allocated(self._own_rank, int(tier))

    @boundary.returns(0)
    def peer_rank_ptr(self, peer_rank: SupportsIndex, mem_type: SupportsIndex = BmMemType.DEVICE) -> int:
        """The global address where that rank's memory begins, joined or not; 0 on failure (see the last error)."""
        rank = arguments.u32("peer_rank", peer_rank)
        tier = _tier(mem_type)
        self._alive()
        return self._memory.start(rank, tier)

    @boundary.returns(0)
    def gva_to_va(self, gva: SupportsIndex, mem_type: SupportsIndex = BmMemType.LOCAL_HOST) -> int:
        """The pointer for a global address in this process (the same number), 0 if it cannot be addressed here."""
        address = arguments.u64("gva", gva)
        _tier(mem_type)
        self._alive()
        if not self._addressable(address):
            raise InvalidParam(f"{address:#x} is not in memory that bm object {self._id} has mapped in this process")
        return address

    @boundary.raises
    def array(
        self,
        rank: SupportsIndex,
        shape: SupportsIndex | Iterable[SupportsIndex],
        dtype: DTypeLike,
        offset: SupportsIndex = 0,
        mem_type: SupportsIndex = BmMemType.HOST,
    ) -> np.ndarray[Any, np.dtype[Any]]:
        """A numpy array *on* that rank's memory: no copy, every store is seen by all ranks of the host.

        `offset` counts bytes from the start of the rank's memory. The array stays valid memory for as long as it lives,
        also when its rank dies: then it shows the last bytes of the dead, until another process takes the rank. Raises
        ValueError for what does not fit into the rank's memory and errors.NotConnected when the rank has not joined.
        """
        owner = arguments.u32("rank", rank)
        start = arguments.u64("offset", offset)
        tier = _tier(mem_type)
        self._alive()
        return self._memory.array(owner, tier, start, arguments.shape("shape", shape), dtype)

    @boundary.returns_code
    def register(self, addr: SupportsIndex, size: SupportsIndex) -> None:
        """Announces local memory that copies will often use; a hint. The same again does nothing.

        Codes: 0; -2000 address 0, size 0, beyond the address space, closed handle; -2006 same start with another size.
        """
        start, size_bytes = arguments.u64("addr", addr), arguments.u64("size", size)
        self._alive()
        if start == 0 or size_bytes == 0 or start + size_bytes > _native.ADDRESS_LIMIT:
            raise InvalidParam(f"addr {start:#x} with size {size_bytes} is not a range of memory")
        with self._registered_lock:
            known = self._registered.setdefault(start, size_bytes)
        if known != size_bytes:
            raise Duplicated(f"{start:#x} is registered already with {known} bytes, not {size_bytes}")

    @boundary.returns_code
    def unregister(self, addr: SupportsIndex) -> None:
        """Takes `register` back. Codes: 0; -2000 closed handle; -2007 nothing is registered at that address."""
        start = arguments.u64("addr", addr)
        self._alive()
        with self._registered_lock:
            if self._registered.pop(start, None) is None:
                raise NotExist(f"nothing is registered at {start:#x}")

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _alive(self) -> Pool:
        forks.notice()
        if self._pool.abandoned:
            raise NotInit(
                f"bm object {self._id} is the parent's: call bm.initialize() and create() in this forked child"
            )
        if self._pool.destroyed:
            raise InvalidParam(f"bm object {self._id} is destroyed: the handle is closed")
        return self._pool

    def _farewell(self) -> Deadline:
        return Deadline(min(FAREWELL_S, self._operation_timeout_s))

    def _deadline(self) -> Deadline:
        return Deadline(self._operation_timeout_s)

    def __enter__(self) -> BigMemory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.destroy()

    def __repr__(self) -> str:
        if self._pool.abandoned:
            return f"<BigMemory {self._id}: of the parent process>"
        if self._pool.destroyed:
            return f"<BigMemory {self._id}: destroyed>"
        epoch, ranks = self._pool.group.view()
        state = f"joined, view {epoch} with ranks {ranks}" if self._pool.joined else "not joined"
        sizes = ", ".join(
            f"{tier.name} {self._allocated(self._own_rank, int(tier))} of {self._layout.max_bytes(tier)} bytes"
            for tier in Tier
            if self._layout.max_bytes(tier)
        )
        return f"<BigMemory {self._id}: rank {self._own_rank} of {self._layout.capacity}, {state}; {sizes}>"


def _tier(mem_type: SupportsIndex) -> Tier:
    number = arguments.u32("mem_type", mem_type)
    try:
        return BmMemType(number).tier
    except ValueError:
        raise InvalidParam(f"mem_type is {number}, expected 0..{max(BmMemType).value}") from None
