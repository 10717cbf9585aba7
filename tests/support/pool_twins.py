"""Twins for pools in one process: a space that only keeps books, neighbours without sockets, queues that wait.

A `TwinHost` has nodes; a node has pools, made by `pool()`. Everything a pool says to its neighbours is heard on the
thread that says it; what it posts to other threads runs when the test says so.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec

from memfabric_hybrid.address_space import segments
from memfabric_hybrid.address_space.exchange import Reply, Wait
from memfabric_hybrid.address_space.join_fact import DataPlace, JoinFact
from memfabric_hybrid.address_space.layout import MIB, Layout, Tier
from memfabric_hybrid.address_space.messages import Answer, NotHere, Refuse, Request
from memfabric_hybrid.address_space.neighbour import Neighbour
from memfabric_hybrid.address_space.own_memory import OwnMemory
from memfabric_hybrid.address_space.pool import Pool
from memfabric_hybrid.address_space.pool_owner import PoolOwner
from memfabric_hybrid.address_space.pool_spec import PoolSpec
from memfabric_hybrid.address_space.segments import Placement
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import FabricError
from memfabric_hybrid.membership import member_fact
from memfabric_hybrid.membership.member import Member
from memfabric_hybrid.membership.member_fact import MemberFact
from memfabric_hybrid.membership.roster import Joined, Left, Stamp
from memfabric_hybrid.store import InProcessServer, InProcessStore, Refusal
from memfabric_hybrid.store.protection.data_tls import DataTls
from memfabric_hybrid.transports.routes import Route
from memfabric_hybrid.transports.ucx_ends import UcxEnd

CAPACITY = 4
SPEC = PoolSpec("bm/7", "bm object 7", Layout(CAPACITY, 4 * MIB, 0))
DATA = DataPlace("10.0.0.2:4711", bytes(16), bytes(16))  # nobody is there


def join_fact(instance: int, host: str, generation: int = 1, **changed: Any) -> JoinFact:
    """Of a rank with 2 MiB of DRAM, in an object as SPEC says."""
    fact = JoinFact(
        instance, generation, host, 4711, 2 * MIB, 0, f"exchange of {instance}", b"secret of %d" % instance,
        SPEC.layout.max_dram, SPEC.layout.max_hbm, SPEC.tag, SPEC.op_type, DATA,
    )  # fmt: skip
    return msgspec.structs.replace(fact, **changed)


class TwinSpace:
    """The native space without memory. `done` has what was done to it, in order."""

    def __init__(self, local_rank: int) -> None:
        self.local_rank = local_rank
        self.done: list[tuple[Any, ...]] = []
        self.live: set[int] = set()
        self.mapped: dict[tuple[int, int], int] = {}  # bytes, by rank and tier
        self.is_open = False
        self.is_exposed = False
        self.is_busy = False  # running copies keep what is detached
        self.refusal: Exception | None = None  # what the next mapping raises

    def _allocated(self, rank: int, tier: int) -> int:
        return self.mapped.get((rank, tier), 0)

    def _attach(
        self, rank: int, tier: int, fd: int, fd_offset: int, slot_offset: int, size: int, sealed: bool = False
    ) -> None:
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            raise refusal
        self.mapped[rank, tier] = slot_offset + size
        self.done.append(("attach", rank, slot_offset, sealed))

    def _attach_remote(self, rank: int, tier: int, slot_offset: int, size: int, transport: object) -> None:
        self.mapped[rank, tier] = slot_offset + size
        self.done.append(("attach remote", rank, slot_offset, size))

    def _activate(self, rank: int) -> None:
        self.live.add(rank)
        self.done.append(("activate", rank))

    def _revoke(self, rank: int, reason: str) -> None:
        self.live.discard(rank)
        self.done.append(("revoke", rank, reason))

    def _detach(self, rank: int) -> None:
        for tier in Tier:
            self.mapped.pop((rank, int(tier)), None)
        self.done.append(("detach", rank))

    def _collect(self) -> bool:
        return not self.is_busy

    def _is_drained(self, rank: int) -> bool:
        return not self.is_busy

    def _drain(self, rank: int) -> None:
        self.done.append(("drain", rank))

    def _serve(self) -> tuple[bytes, bytes]:
        return bytes(16), bytes(16)

    def _set_catch_up(self, ask: Callable[[list[int]], None], also_gone: bool) -> None:
        self.catch_up = ask

    def _expose(self) -> None:
        self.is_exposed = True

    def _conceal(self) -> None:
        self.is_exposed = False

    def _open(self) -> None:
        self.is_open = True

    def _shut(self, code: int, sentence: str) -> None:
        self.is_open = False
        self.done.append(("shut", code, sentence))

    def _close(self) -> None:
        self.is_open = False
        self.done.append(("close",))


class TwinQueue:
    """Calls wait until the test runs them."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []

    def post(self, call: Callable[[], object]) -> None:
        self.calls.append(call)

    def run(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


class TwinExchange:
    """Reaches the other nodes of its host, by instance."""

    def __init__(self, nodes: dict[int, TwinNode]) -> None:
        self._nodes = nodes
        self.links: set[int] = set()
        self.ticks = 0
        self.awaits_news = False
        self.asked: list[tuple[Request, list[int]]] = []  # and of which ranks
        self.while_asking: Callable[[], object] = lambda: None
        self.failure: FabricError | None = None  # what the next `ask` raises

    def ask(
        self,
        neighbours: Sequence[Neighbour],
        request: Request,
        fds: Sequence[int],
        deadline: Deadline,
        expected: Callable[[Neighbour], bool],
    ) -> Mapping[Neighbour, Reply | None]:
        self.asked.append((request, sorted(neighbour.rank for neighbour in neighbours)))
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        replies = {one: self._ask_one(one, request, fds, deadline, expected) for one in neighbours}
        self.while_asking()
        return replies

    def _ask_one(
        self,
        neighbour: Neighbour,
        request: Request,
        fds: Sequence[int],
        deadline: Deadline,
        expected: Callable[[Neighbour], bool],
    ) -> Reply | None:
        other = self._nodes.get(neighbour.instance)
        if other is None:
            return None
        self.links.add(neighbour.instance)
        while not deadline.expired and expected(neighbour):
            decided = Wait.FOR_THE_STORE if other.is_silent else other.handle(request, fds)
            if not isinstance(decided, Wait):
                if not isinstance(decided[0], (NotHere, Refuse)):
                    other.exchange.links.add(request.instance)
                return Reply(decided[0], tuple(decided[1]))
            time.sleep(0.002)
        return None

    def is_linked(self, instance: int) -> bool:
        return instance in self.links

    has_met = is_linked

    def request_tick(self) -> None:
        self.ticks += 1


class TwinNode:
    """One process."""

    def __init__(
        self, nodes: dict[int, TwinNode], server: InProcessServer, rank: int, host: str, instance: int
    ) -> None:
        self.member: Any = SimpleNamespace(
            rank=rank,
            instance=instance,
            host=host,
            secret=b"secret of %d" % instance,
            exchange_name=f"exchange of {instance}",
            store=InProcessStore(server),
        )
        self.member.entry = SimpleNamespace(kind="bm")
        for method in (Member._rank_key, Member.host_of, Member.watch_rank):
            setattr(self.member, method.__name__, functools.partial(method, self.member))
        fact = member_fact.encode(MemberFact(4711, host, instance))
        self.member.store.claim_rank("bm/ranks", CAPACITY, fact, wanted=rank, deadline=Deadline(5))
        self.exchange = TwinExchange(nodes)
        self.notices = TwinQueue()
        self.reannouncements = TwinQueue()
        self.is_silent = False  # answers nobody
        self.data_address = "10.0.0.1:4711"
        self.data_tls = DataTls()  # off
        self.store_is_away = False
        self.pools: list[Pool] = []
        self.failure: FabricError | None = None

    def add(self, pool: Pool) -> None:
        self.pools.append(pool)

    def remove(self, pool: Pool) -> None:
        self.pools.remove(pool)

    def check_serving(self) -> None:
        if self.failure is not None:
            raise self.failure

    def handle(self, request: Request, fds: Sequence[int]) -> tuple[Answer, Sequence[int]] | Wait:
        try:
            for pool in self.pools:
                return pool.handle(request, fds)
        except FabricError as failure:
            return Refuse(int(failure.code), str(failure)), ()
        return NotHere(), ()


class TwinOwner(PoolOwner):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.changes: list[Joined | Left] = []
        self.usual: Route | None = None  # to everybody, if it is not left to the pool

    def route(self, tag: str, op_type: int, ucx: UcxEnd, *, same_host: bool) -> Route:
        return self.usual or super().route(tag, op_type, ucx, same_host=same_host)

    def take_enclosed(self, rank: int, fds: Sequence[int]) -> None:
        self.told.append(("enclosed", rank, len(fds)))

    def rank_gone(self, rank: int, reason: str) -> None:
        self.told.append(("gone", rank, reason))

    def rank_back(self, rank: int, stamp: Stamp) -> None:
        self.told.append(("back", rank, stamp))

    def keys_refused(self, refusals: Sequence[Refusal]) -> None:
        self.told.append(("refused", [one.name for one in refusals]))

    def group_changed(self, change: Joined | Left) -> None:
        self.changes.append(change)


class TwinHost:
    """Nodes that reach each other, and their store; `close()` ends what is left."""

    def __init__(self) -> None:
        self.server = InProcessServer()
        self.nodes: dict[int, TwinNode] = {}  # by instance
        self._elsewhere: list[TwinNode] = []
        self._numbers = itertools.count(101)

    def node(self, rank: int, host: str = "this host") -> TwinNode:
        instance = next(self._numbers)
        node = TwinNode(self.nodes, self.server, rank, host, instance)
        if host == "this host":
            self.nodes[instance] = node
        else:
            self._elsewhere.append(node)
        return node

    def close(self) -> None:
        nodes = [*self.nodes.values(), *self._elsewhere]
        for node in nodes:
            node.is_silent = False  # nobody waits for an answer to its goodbye
        for node in nodes:
            for pool in list(node.pools):
                pool.destroy(Deadline(5))
            node.member.store.close()


def own_memory(space: Any, spec: PoolSpec = SPEC) -> OwnMemory:
    """2 MiB of DRAM."""
    return OwnMemory(spec, space, [segments.create(Tier.DRAM, 0, 2 * MIB, Placement())])


def pool(node: Any, owner: PoolOwner | None = None, spec: PoolSpec = SPEC) -> Pool:
    space: Any = TwinSpace(node.member.rank)
    node.member.store.hold_range(spec.name, spec.layout.total_bytes, deadline=Deadline(5))
    return Pool(node, spec, space, own_memory(space, spec), owner or TwinOwner())
