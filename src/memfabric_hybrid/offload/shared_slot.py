"""SHARED: our part of a pool whose ranks come together, as one rank of a cluster of its own.

Every rank's memory has the same addresses in every process: rank r's slot begins at the base + r × the reserved size.
All ranks of a host have it mapped. The ranks of other hosts are there as well, and are copied to and from.
"""

from __future__ import annotations

from contextlib import ExitStack

from memfabric_hybrid import _native
from memfabric_hybrid.address_space import segments
from memfabric_hybrid.address_space.held_range import held_range
from memfabric_hybrid.address_space.layout import Tier
from memfabric_hybrid.address_space.node import Node
from memfabric_hybrid.address_space.own_memory import OwnMemory
from memfabric_hybrid.address_space.pool import Pool
from memfabric_hybrid.address_space.pool_owner import PoolOwner
from memfabric_hybrid.address_space.pool_spec import PoolSpec
from memfabric_hybrid.address_space.segments import Placement
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import InvalidParam, NotInit
from memfabric_hybrid.machine.interruption import Interruption
from memfabric_hybrid.membership.create_monitor import GONE, CreateMonitor
from memfabric_hybrid.membership.member import RANKS_KEY, Entry
from memfabric_hybrid.offload.plan import TITLE, Group, Plan
from memfabric_hybrid.store import FAREWELL_S
from memfabric_hybrid.transports.op_types import BmDataOpType

KIND = "offload"
NAME = f"{KIND}/0"  # in the store; a process has one
CALLED_OFF = f"{TITLE} was uninitialised while initialize() waited for the other ranks"


class SharedSlot:
    """Made with all other ranks: returns when every one of them has come. FabricError, and nothing is left here."""

    def __init__(self, plan: Plan, group: Group, interruption: Interruption) -> None:
        deadline = Deadline(group.timeout_s)
        self._timeout_s = group.timeout_s
        entry = Entry(
            group.url,
            kind=KIND,
            capacity=group.world_size,
            wanted_rank=group.rank,
            hosts_store=group.rank == 0,
            takes_over=False,
        )
        self._node = Node(entry, deadline, interruption)
        with ExitStack() as undo:
            undo.callback(lambda: self.end(Deadline(FAREWELL_S)))
            with interruption.ends_by(self._node.member.store.give_up):
                self.space, self._pool = _made(plan, group, self._node, deadline)
                others = self._pool.group
                missed = CreateMonitor(
                    self._node.member, group.world_size, lambda rank: others.miss(rank, GONE), deadline
                )
                with missed, interruption.ends_by(lambda: others.call_off(NotInit(CALLED_OFF))):
                    self._pool.join(deadline)
                    _native._pause_point("offload.initialize.joined")
                    others.wait_for_all(deadline)
                _agree(self._node, group, _complaint(self._pool, group), deadline)
            undo.pop_all()

    def extend(self, size_bytes: int) -> None:
        self._pool.extend(Tier.DRAM, size_bytes, Placement(), Deadline(self._timeout_s))

    def end(self, farewell: Deadline) -> None:
        pools = self._node.begin_to_leave()
        self._node.member.store.hurry(farewell)
        for pool in pools:
            pool.destroy(farewell)
        self._node.leave(farewell)

    def abandon_after_fork(self) -> None:
        self._node.abandon_after_fork()


def _made(plan: Plan, group: Group, node: Node, deadline: Deadline) -> tuple[_native.Space, Pool]:
    """Our memory in its place, not joined yet."""
    layout, store = plan.layout, node.member.store
    spec = PoolSpec(NAME, TITLE, layout, op_type=int(BmDataOpType.SDMA))
    mine = [segments.create(Tier.DRAM, 0, plan.alloc_bytes, Placement())] if plan.alloc_bytes else []
    try:
        asked = f"rank {group.rank} asked for {TITLE} with {layout}"
        with held_range(store, NAME, layout.total_bytes, asked=asked, deadline=deadline) as base:
            _native._pause_point("offload.initialize.holds_range")
            space = _native.Space(
                base, layout.capacity, layout.max_dram, layout.max_hbm, group.rank, TITLE, float(group.timeout_s)
            )
            try:
                return space, Pool(node, spec, space, OwnMemory(spec, space, mine), PoolOwner())
            except BaseException:
                space._close()
                raise
    except BaseException:
        for segment in mine:
            segment.close()
        raise


def _complaint(pool: Pool, group: Group) -> str:
    """Empty if all is well. Whoever counts on memory that is not mapped here would crash at its first touch."""
    ours = next(ranks for ranks in pool.group.hosts() if group.rank in ranks)
    if len(ours) == group.local_world_size:
        return ""
    return (
        f"local_world_size is {group.local_world_size} (0 means the world_size {group.world_size}), but ranks {ours} "
        f"share the memory of the host of rank {group.rank}; others are on other hosts, or in containers with networks "
        "of their own: pass how many are on one host"
    )


def _agree(node: Node, group: Group, complaint: str, deadline: Deadline) -> None:
    """Nobody returns before all have mapped all, so that a rank may leave at once; and what one refuses, all refuse."""
    said = node.member.store.gather(
        RANKS_KEY.format(kind=KIND), 0, group.rank, group.world_size, complaint.encode(), deadline=deadline
    )
    for sentence in filter(None, said):
        raise InvalidParam(sentence.decode())
