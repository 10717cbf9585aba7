"""A simulated member: enters with a rank, takes part in an object, does as it is told, leaves.

As `membership/member.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from memfabric_hybrid.address_space.messages import Answer, NotHere, Request
from memfabric_hybrid.errors import Code
from memfabric_hybrid.membership import member_fact
from memfabric_hybrid.membership.member import PRESENCE_KEY, SOME_RANKS
from memfabric_hybrid.membership.member_fact import MemberFact
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.interface import WatchUpdate
from simulation.client import Client
from simulation.failed import Failed
from simulation.host import Host
from simulation.neighbours import Neighbours
from simulation.part import Part
from simulation.process import Process
from simulation.task import Signal, Steps
from simulation.world import FOREVER, World

if TYPE_CHECKING:
    from simulation.invariants import Invariants
    from simulation.pulse import Pulse
    from simulation.server import Server

RANKS = "bm/ranks"
RANGE_BYTES = 1 << 30
PAUSE_S = 0.3  # of a program before it tries again


class Entry(NamedTuple):
    """How to enter. `team`: the number of its object, which has so many places, one for each of its ranks."""

    capacity: int
    wanted_rank: int | None
    team: int
    places: int
    follows_all: bool
    init_timeout_s: float


Order = Callable[["Member"], Steps[None]]


class Member(Process):
    def __init__(
        self, world: World, host: Host, instance: int, heartbeat_timeout_s: float, entry: Entry,
        server: Server, pulse: Pulse, invariants: Invariants, on_end: Callable[[Member], None],
    ) -> None:  # fmt: skip
        super().__init__(world, host, instance, heartbeat_timeout_s)
        self.entry = entry
        self.object_name = f"bm/{entry.team}"
        self.place_group = f"team {entry.team}"
        self.invariants = invariants
        self.client = Client(self, server, pulse)
        self.neighbours = Neighbours(self)
        self.rank = self.place = -1
        self.base = 0  # of the object
        self.part: Part | None = None  # as soon as it has a rank
        self.is_evicted = False
        self.is_leaving = False
        self.stays_out_until = 0.0  # of the object, if it has left it
        self._on_end = on_end
        self._orders: deque[Order] = deque()
        self._ordered = Signal()
        self.start(self._live())

    def order(self, order: Order) -> None:
        """To be done when what was ordered before is done."""
        self._orders.append(order)
        self.run(self._ordered.notify)

    def rest(self) -> None:
        """No more work, and no more absence."""
        self._orders.clear()
        self.stays_out_until = 0.0
        self.run(self._ordered.notify)

    def leave_soon(self) -> None:
        self.is_leaving = True
        self.run(self._ordered.notify)

    @property
    def is_settled(self) -> bool:
        """It has joined, and nobody has taken its rank."""
        return self.part is not None and self.part.settled_at is not None and not self.is_evicted

    @property
    def takes_part(self) -> bool:
        return self.part is not None and self.part.known.takes_part

    def owned_keys(self) -> list[str]:
        """What the store must have of it, besides the keys of its work."""
        keys = [f"{RANKS}/{self.rank}", _presence_key(self.rank), f"{self.place_group}/{self.place}"]
        return [*keys, self.part.key] if self.part is not None and self.part.is_joined else keys

    # --- the program ------------------------------------------------------------------------------------------------

    def _live(self) -> Steps[None]:
        try:
            part = self.part = yield from self._enter(self.world.now + self.entry.init_timeout_s)
        except Failed as failure:
            self.world.note(self, "cannot enter:", failure)
            yield from self._leave()
            return
        while not self.is_evicted and not self.is_leaving:
            if not part.is_joined and self.world.now < self.stays_out_until:
                yield from self._ordered.wait(self.current, self.stays_out_until)
            elif not part.is_joined:
                try:
                    yield from part.join()
                except Failed as failure:
                    self.world.note(self, "cannot join:", failure)
                    yield self.world.now + PAUSE_S
            elif self._orders:
                yield from self._orders.popleft()(self)
            else:
                yield from self._ordered.wait(self.current, FOREVER)
        yield from self._leave()

    def _leave(self) -> Steps[None]:
        self.is_leaving = True
        if self.part is not None and self.part.is_joined and not self.is_evicted:
            try:
                yield from self.part.leave()
            except Failed as failure:
                self.world.note(self, "leaves without a word:", failure)
        self.invariants.ranks.disown(self)
        self.host.free(RANKS, self.rank, self)
        yield from self.client.close()
        self.kill()

    def on_session(self, refused: tuple[m.Refusal, ...]) -> None:
        """The store is there (again), and would not take these back."""
        ours = {self.object_name, self.part.key if self.part is not None else ""}
        if any(one.kind == "rank" or one.name in ours for one in refused):
            self.world.note(self, "has lost its rank:", refused)
            self.is_evicted = True
            self.invariants.ranks.disown(self)
            self._ordered.notify()

    def on_session_lost(self) -> None:
        if self.part is not None:
            self.part.known.roster.store_lost()

    # --- a rank -----------------------------------------------------------------------------------------------------

    def _enter(self, until: float) -> Steps[Part]:
        self.rank = yield from self._claim(until)
        self.invariants.ranks.believe(RANKS, self.rank, self)
        self.place = yield from self._claim_place(until)
        self.invariants.ranks.believe(self.place_group, self.place, self)
        reply = yield from self.client.ask(m.HoldRange(self.object_name, RANGE_BYTES), until)
        assert isinstance(reply, m.Number)
        self.base = reply.value
        return Part(self, self.object_name, self.entry.follows_all)

    def _claim(self, until: float) -> Steps[int]:
        """As `membership.member._claim`."""
        entry = self.entry
        free: Sequence[int] = range(entry.capacity)
        while True:
            rank = self._bind_one(free)
            if rank is None and len(free) < entry.capacity:
                free = yield from self._free_ranks(entry.capacity, until)
                rank = self._bind_one(free)
            if rank is None:
                break
            try:
                yield from self.client.ask(self._claim_request(RANKS, entry.capacity, rank), until)
                yield from self.client.ask(m.Set(_presence_key(rank), b"", True), until)
            except Failed as failure:
                self.host.free(RANKS, rank, self)
                if failure.code != Code.DUPLICATED:
                    raise
                if entry.wanted_rank is not None and not (yield from self._await_end(rank, until)):
                    raise
            else:
                return rank
            free = yield from self._free_ranks(SOME_RANKS, until)
            if not free and entry.wanted_rank is None:
                free = yield from self._ended(until)
        everything = tuple(range(entry.capacity))
        number = self.client.new_number()
        yield from self.client.ask(m.ClaimRank(number, RANKS, entry.capacity, b"", None, everything), until)
        self.world.fail(f"{self} was given a rank though it excluded all")

    def _claim_request(self, group: str, capacity: int, wanted: int | None) -> m.ClaimRank:
        fact = member_fact.encode(MemberFact(self.instance, self.host.name, self.instance))
        return m.ClaimRank(self.client.new_number(), group, capacity, fact, wanted, ())

    def _bind_one(self, free: Sequence[int]) -> int | None:
        if self.entry.wanted_rank is not None:
            if self.host.bind(RANKS, self.entry.wanted_rank, self):
                return self.entry.wanted_rank
            raise Failed(Code.DUPLICATED, f"rank {self.entry.wanted_rank} is in use on this host")
        return next((rank for rank in free if self.host.bind(RANKS, rank, self)), None)

    def _free_ranks(self, most: int, until: float) -> Steps[Sequence[int]]:
        reply = yield from self.client.ask(m.FreeRanks(RANKS, self.entry.capacity, most), until)
        assert isinstance(reply, m.Ranks)
        return reply.ranks

    def _ended(self, until: float) -> Steps[Sequence[int]]:
        """The lowest rank whose process is dead, as its rank socket shows, once the store knows that."""
        for rank in range(self.entry.capacity):
            if self.host.bind(RANKS, rank, self):
                self.host.free(RANKS, rank, self)
                if (yield from self._await_end(rank, until)):
                    return (rank,)
        return ()

    def _await_end(self, rank: int, until: float) -> Steps[bool]:
        key = f"{RANKS}/{rank}"
        if (yield from self.host_of(rank, until)) not in (None, self.host.name):
            return False
        ended = Signal()
        is_over = False

        def look(update: WatchUpdate) -> None:
            nonlocal is_over
            if update.entries.get(key) is None and (update.snapshot or key in update.entries):
                is_over = True
                ended.notify()

        watch = yield from self.client.watch(key, look, until)
        while not is_over and self.world.now < until:
            yield from ended.wait(self.current, until)
        yield from self.client.end_watch(watch)
        return is_over

    def host_of(self, rank: int, until: float) -> Steps[str | None]:
        reply = yield from self.client.ask(m.Get(f"{RANKS}/{rank}"), until)
        assert isinstance(reply, m.Value)
        return member_fact.host_in(reply.value)

    def _claim_place(self, until: float) -> Steps[int]:
        """The lowest one of its team; a place has no rank socket, only the store's word."""
        while True:
            try:
                request = self._claim_request(self.place_group, self.entry.places, None)
                reply = yield from self.client.ask(request, until)
            except Failed as failure:
                if failure.code != Code.NO_RESOURCES:
                    raise
                yield min(until, self.world.now + PAUSE_S)
                if self.world.now >= until:
                    raise
            else:
                assert isinstance(reply, m.Number)
                return reply.value

    # --- neighbours, and the end ------------------------------------------------------------------------------------

    def answer(self, request: Request) -> Answer | None:
        if self.part is None or request.object_name != self.object_name:
            return NotHere()
        return self.part.answer(request)

    def lost(self, instance: int) -> None:
        if self.part is not None:
            self.part.lost(instance)

    def beat(self) -> None:
        for connection in list(self.connections.values()):
            if connection.role == m.EVENTS and self.client.is_ready:
                connection.beat()

    def ended(self) -> None:
        self.invariants.ranks.disown(self)
        self.invariants.gathers.forget(self)
        self.invariants.views.stops(self)
        self.neighbours.end()
        self._on_end(self)


def _presence_key(rank: int) -> str:
    return PRESENCE_KEY.format(kind="bm", rank=rank)
