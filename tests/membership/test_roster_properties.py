"""The roster under every order in which news can arrive.

A world of processes joins, leaves, dies, falls silent and wakes up. What happens travels to the roster over channels
that keep their own order but not each other's: the store's events, each process's connection, and answers that were
read and not yet acted upon. Whatever the order, the roster ends up with the truth.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from memfabric_hybrid.membership.roster import Effect, Joined, Left, Returned, Roster, Stamp

RANKS = (1, 2, 3)
GRACE_S = 3.0
ranks = st.sampled_from(RANKS)


@dataclass
class Process:
    """One life. `news` is its connection to us, `answers` what it told us when asked."""

    rank: int
    instance: int
    generation: int = 0
    joined: bool = False
    silent: bool = False
    alive: bool = True
    link_broken: bool = False  # as we know it
    news: deque[Callable[[Roster], list[Effect]]] = field(default_factory=deque)
    answers: deque[Stamp] = field(default_factory=deque)

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.instance, self.generation)


class World(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.roster = Roster(own_rank=0, grace_s=GRACE_S)
        self.numbers = itertools.count(100)
        self.processes: dict[int, Process] = {}  # by instance, the dead included
        self.at_rank: dict[int, Process] = {}  # the living
        self.store: dict[int, Stamp] = {}
        self.incarnation = 1
        self.events: deque[Callable[[Roster], list[Effect]]] = deque()  # of the store, in its order
        self.now = 0.0
        self.told: dict[int, bool] = {}  # what the effects so far amount to
        self.changes = 0
        self.snapshot()

    # ---- what happens ----------------------------------------------------------------------------------------------

    @rule(rank=ranks)
    def start(self, rank: int) -> None:
        if rank not in self.at_rank:
            process = Process(rank, next(self.numbers))
            self.processes[process.instance] = self.at_rank[rank] = process

    @rule(rank=ranks)
    def join(self, rank: int) -> None:
        process = self.at_rank.get(rank)
        if process is not None and not process.joined and not process.silent:
            process.generation += 1
            process.joined = True
            self.publish(process)
            self.offer(process)

    @rule(rank=ranks)
    def leave(self, rank: int) -> None:
        process = self.at_rank.get(rank)
        if process is not None and process.joined and not process.silent:
            process.joined = False
            stamp = process.stamp
            self.unpublish(rank)
            process.news.append(lambda roster: roster.withdrawn(rank, stamp))

    @rule(rank=ranks)
    def die(self, rank: int) -> None:
        process = self.at_rank.pop(rank, None)
        if process is None:
            return
        process.alive = process.joined = False
        self.unpublish(rank)

        def broken(roster: Roster) -> list[Effect]:
            process.link_broken = True
            return roster.lost(process.instance, "died")

        process.news.append(broken)

    @rule(rank=ranks)
    def fall_silent(self, rank: int) -> None:
        """Silence is noticed after a heartbeat time-out: long after its last words were heard."""
        process = self.at_rank.get(rank)
        if process is not None and process.joined and not process.silent:
            self.hear_all_of(process)
            process.silent = True
            self.unpublish(rank)

    @rule(rank=ranks)
    def wake_up(self, rank: int) -> None:
        process = self.at_rank.get(rank)
        if process is not None and process.silent:
            process.silent = False
            self.publish(process)
            self.offer(process)

    @rule(rank=ranks)
    def ask(self, rank: int) -> None:
        process = self.at_rank.get(rank)
        if process is not None and process.joined and not process.silent:
            process.answers.append(process.stamp)

    @rule()
    def reconnect(self) -> None:
        """Events on the way are lost; a snapshot makes up for them."""
        self.events.clear()
        self.snapshot()

    @rule(order=st.permutations(RANKS))
    def restart_store(self, order: list[int]) -> None:
        self.incarnation += 1
        self.events.clear()
        self.store.clear()
        self.snapshot()
        for process in filter(None, map(self.at_rank.get, order)):
            if process.joined and not process.silent:
                self.publish(process)

    @rule(seconds=st.floats(0.1, 5.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.apply(self.roster.tick(self.now))

    # ---- what is heard of it ---------------------------------------------------------------------------------------

    @precondition(lambda self: self.events)
    @rule()
    def hear_the_store(self) -> None:
        self.apply(self.events.popleft()(self.roster))

    @precondition(lambda self: any(process.news for process in self.processes.values()))
    @rule(data=st.data())
    def hear_a_neighbour(self, data: st.DataObject) -> None:
        process = data.draw(st.sampled_from([p for p in self.processes.values() if p.news]), "who")
        self.apply(process.news.popleft()(self.roster))

    @precondition(lambda self: any(process.answers for process in self.processes.values()))
    @rule(data=st.data())
    def read_an_answer(self, data: st.DataObject) -> None:
        process = data.draw(st.sampled_from([p for p in self.processes.values() if p.answers]), "whose")
        self.act_upon_answer(process)

    # ---- parts -----------------------------------------------------------------------------------------------------

    def act_upon_answer(self, process: Process) -> None:
        stamp = process.answers.popleft()
        if not process.link_broken:
            self.apply(self.roster.attached(process.rank, stamp))

    def hear_all_of(self, process: Process) -> None:
        while process.news:
            self.apply(process.news.popleft()(self.roster))
        while process.answers:
            self.act_upon_answer(process)

    def publish(self, process: Process) -> None:
        rank, stamp = process.rank, process.stamp
        self.store[rank] = stamp
        self.events.append(lambda roster: roster.published(rank, stamp))

    def unpublish(self, rank: int) -> None:
        if self.store.pop(rank, None) is not None:
            self.events.append(lambda roster: roster.unpublished(rank, "silent"))

    def offer(self, process: Process) -> None:
        stamp = process.stamp
        process.news.append(lambda roster: roster.attached(process.rank, stamp))

    def snapshot(self) -> None:
        members, incarnation = dict(self.store), f"store {self.incarnation}"
        self.events.append(lambda roster: roster.snapshot(members, incarnation, self.now))

    def apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Returned):
                self.ask(effect.rank)
                continue
            joined = isinstance(effect, Joined)
            assert self.told.get(effect.rank, False) != joined, f"{effect} told twice"
            assert joined or (isinstance(effect, Left) and effect.reason)
            self.told[effect.rank] = joined
            self.changes += 1

    @invariant()
    def effects_amount_to_the_view(self) -> None:
        assert {rank for rank, present in self.told.items() if present} == set(self.roster.present)
        assert self.roster.epoch == self.changes

    def teardown(self) -> None:
        """Quiescence: everything is delivered and time passes; then the view is the truth."""
        while self.events or any(p.news or p.answers for p in self.processes.values()):
            if self.events:
                self.hear_the_store()
            for process in list(self.processes.values()):
                self.hear_all_of(process)
        self.now += 10 * GRACE_S
        self.apply(self.roster.tick(self.now))
        truth = {p.rank: p.stamp for p in self.at_rank.values() if p.joined and not p.silent}
        assert self.roster.present == truth


TestWorld = World.TestCase
