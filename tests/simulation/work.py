"""What simulated members do while things go wrong: collectives, keys that are waited for, growing memory, rejoins."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from memfabric_hybrid.errors import Code
from memfabric_hybrid.shm.inter_host_exchange import group_name
from memfabric_hybrid.store import messages as m
from simulation.failed import Failed
from simulation.task import Steps

if TYPE_CHECKING:
    from simulation.member import Member, Order
    from simulation.world import World

TIMEOUTS_S = (0.3, 1.0, 5.0)
JITTER_S = 0.1  # between the members of a collective
LONGEST_ABSENCE_S = 30.0  # of a member that leaves the object and comes back
KEY = "key "  # how the names of keys begin that somebody sets and somebody waits for
LONGEST_KEY_S = 1.0  # until who has set it deletes it
PATIENCE_S = 0.5  # of a collective with members that do other things
LEFT_OUT = 0.03  # the share of members that do not come


class TeamWork:
    """Of one team: orders come again and again, to all its members or to one."""

    def __init__(self, world: World, team: int, every_s: float) -> None:
        self._world = world
        self._team = team
        self._every_s = every_s
        self._rounds = itertools.count()
        self._is_over = False
        self._mates: list[Member] = []
        self._later()

    def end(self) -> None:
        self._is_over = True
        for mate in self._mates:
            mate.rest()

    def add(self, member: Member) -> None:
        self._mates = [mate for mate in self._mates if mate.is_alive]
        self._mates.append(member)

    def _later(self) -> None:
        self._world.after(self._world.random.uniform(0, 2 * self._every_s), self._begin)

    def _begin(self) -> None:
        if self._is_over:
            return
        chosen = self._world.random.random()
        if chosen < 0.38:
            self._collective(self._by_places)
        elif chosen < 0.51:
            self._collective(self._by_view)
        elif chosen < 0.64:
            self._key()
        elif chosen < 0.7:
            self._order_one(grow)
        elif chosen < 0.89:
            self._order_one(seek)
        else:
            self._order_one(rejoin)
        self._later()

    def _collective(self, kind: Callable[[int, float, bool], Order]) -> None:
        random = self._world.random
        round, timeout_s, is_barrier = next(self._rounds), random.choice(TIMEOUTS_S), random.random() < 0.3
        for member in self._mates:
            if member.is_alive and random.random() >= LEFT_OUT:
                order = self._in_time(kind(round, timeout_s, is_barrier))
                self._world.after(random.uniform(0, JITTER_S), member.order, order)

    def _in_time(self, order: Order) -> Order:
        """Who is too busy to come does not come at all."""
        until = self._world.now + PATIENCE_S

        def look(member: Member) -> Steps[None]:
            if member.world.now < until:
                yield from order(member)

        return look

    def _by_places(self, round: int, timeout_s: float, is_barrier: bool) -> Order:
        """All places of the team, whose ends the store tells."""

        def order(member: Member) -> Steps[None]:
            places = member.entry.places
            yield from gather(member, member.place_group, round, member.place, places, is_barrier, timeout_s)

        return order

    def _by_view(self, round: int, timeout_s: float, is_barrier: bool) -> Order:
        """Those whom the member sees, under a name that only those have who see the same."""

        def order(member: Member) -> Steps[None]:
            assert member.part is not None
            stamps = member.part.known.stamps()
            group, rank = group_name(member.object_name, stamps), list(stamps).index(member.rank)
            yield from gather(member, group, round, rank, len(stamps), is_barrier, timeout_s)

        return order

    def _key(self) -> None:
        """One sets it, others wait for it; sometimes nobody does."""
        random = self._world.random
        key = f"{KEY}{self._team} {next(self._rounds)}"
        timeout_s = random.choice(TIMEOUTS_S)
        for member in self._mates:
            if member.is_alive and random.random() < 0.5:
                member.order(lambda member: wait_for(member, key, timeout_s))
        if self._mates and random.random() < 0.7:
            setter, is_ephemeral = random.choice(self._mates), random.random() < 0.7
            self._world.after(
                random.uniform(0, timeout_s), setter.order, lambda m: set_and_delete(m, key, is_ephemeral)
            )

    def _order_one(self, order: Order) -> None:
        if self._mates:
            self._world.random.choice(self._mates).order(order)


def gather(
    member: Member, group: str, round: int, rank: int, size: int, is_barrier: bool, timeout_s: float
) -> Steps[None]:
    ledger, until = member.invariants.gathers, member.world.now + timeout_s
    call = ledger.begin(member, group, round, rank, size, is_barrier, until)
    try:
        reply = yield from member.client.ask(call.request, until)
    except Failed as failure:
        ledger.fail(call, failure)
    else:
        ledger.complete(call, reply)


def wait_for(member: Member, key: str, timeout_s: float) -> Steps[None]:
    try:
        yield from member.client.ask(m.Wait(key, 0.0), member.world.now + timeout_s)
    except Failed as failure:
        expect(member, failure, Code.TIMEOUT)


def set_and_delete(member: Member, key: str, is_ephemeral: bool) -> Steps[None]:
    world = member.world
    try:
        yield from member.client.ask(m.Set(key, b"value", is_ephemeral), world.now + world.random.choice(TIMEOUTS_S))
        yield world.now + world.random.uniform(0, LONGEST_KEY_S)
        yield from member.client.ask(m.Delete(key), world.now + world.random.choice(TIMEOUTS_S))
    except Failed as failure:
        expect(member, failure, Code.TIMEOUT)


def grow(member: Member) -> Steps[None]:
    assert member.part is not None
    try:
        yield from member.part.publish(member.world.now + TIMEOUTS_S[-1], member.world.random.randint(2, 100))
    except Failed as failure:
        expect(member, failure, Code.TIMEOUT)


def seek(member: Member) -> Steps[None]:
    """As a copy does that meets a rank of which nothing is known."""
    assert member.part is not None
    rank = member.world.random.randrange(member.entry.capacity)
    before = member.invariants.fact_of(member, rank)
    try:
        yield from member.part.seek(rank, member.world.now + TIMEOUTS_S[-1])
    except Failed as failure:
        expect(member, failure, Code.TIMEOUT)
    else:
        member.invariants.sought(member, rank, before)


def rejoin(member: Member) -> Steps[None]:
    """Leaves for a while."""
    assert member.part is not None
    member.stays_out_until = member.world.now + member.world.random.choice((0.0, 1.0, LONGEST_ABSENCE_S))
    try:
        yield from member.part.leave()
    except Failed as failure:
        expect(member, failure, Code.TIMEOUT)


def expect(member: Member, failure: Failed, *codes: Code) -> None:
    """Other codes than these are for who has lost its rank."""
    if failure.code not in codes and not member.invariants.ranks.has_lost(member):
        member.world.fail(f"{member}: {failure}")
