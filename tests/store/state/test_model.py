"""The state machine against a model that is too simple to be wrong: dictionaries, no indexes, no sharing.

Hypothesis makes members connect, write, claim, hold, watch, gather, die and come back; every answer must be the
model's, every watcher's view must equal the model's keys, and the invariants must hold after every step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from memfabric_hybrid.errors import Code
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.state.effects import Effect, Send
from memfabric_hybrid.store.state.machine import StoreState
from store import invariants

MEMBERS = st.integers(0, 2)
KEYS = st.sampled_from(["a", "a/0", "a/1", "b/0", "b/1", "ü"])
VALUES = st.sampled_from([b"", b"1", b"-7", b"x"])
PREFIXES = st.sampled_from(["", "a", "a/", "b/", "zz"])
GROUPS = st.sampled_from(["a", "b"])
RANKS = st.integers(0, 2)
CAPACITY = 3


@dataclass
class Fact:
    value: bytes
    owner: int | None = None
    claim: tuple[str, int] | None = None


@dataclass
class Member:
    """`views`: what each watch has been told, by its number."""

    channel: int
    requests: int
    views: dict[int, dict[str, bytes]] = field(default_factory=dict)
    prefixes: dict[int, str] = field(default_factory=dict)
    ranges: set[str] = field(default_factory=set)


class StoreAgainstModel(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.state = StoreState("model")
        self.facts: dict[str, Fact] = {}
        self.members: dict[int, Member] = {}
        self.numbers = iter(range(1, 1_000_000))
        self.connected: set[int] = set()
        self.now = 0.0

    # --- driving ----------------------------------------------------------------------------------------------------

    def say(self, connection: int, request: m.Request) -> Any:
        """The reply to the one who asked; pushes go into the views."""
        effects = self.state.message(connection, request, self.now)
        replies = self.deliver(effects, connection)
        assert len(replies) == 1
        return replies[0]

    def deliver(self, effects: list[Effect], connection: int | None = None) -> list[m.ServerMessage]:
        invariants.check_effects(effects, self.connected)
        replies: list[m.ServerMessage] = []
        channels = {member.channel: member for member in self.members.values()}
        for effect in effects:
            if not isinstance(effect, Send):
                continue
            for target in effect.connections:
                if isinstance(effect.message, (m.WatchSnapshot, m.Changed)):
                    take_push(channels[target], effect.message)
                elif target == connection:
                    replies.append(effect.message)
        return replies

    def connect(self, session: int, role: int) -> int:
        connection = next(self.numbers)
        self.connected.add(connection)
        self.state.connected(connection, self.now)
        welcome = self.say(connection, m.Hello(session.to_bytes(16, "big"), role, 1e6))
        assert isinstance(welcome, m.Welcome)
        return connection

    def member(self, number: int) -> Member:
        """Connects on first use, as the client does."""
        if number not in self.members:
            channel = self.connect(number, m.EVENTS)
            self.members[number] = Member(channel, self.connect(number, m.REQUESTS))
        return self.members[number]

    def ask(self, number: int, request: m.Request) -> Any:
        return self.say(self.member(number).requests, request)

    def foreign(self, number: int, key: str) -> bool:
        fact = self.facts.get(key)
        return fact is not None and fact.owner not in (None, number)

    def write(self, number: int, key: str, value: bytes, ephemeral: bool) -> None:
        fact = self.facts.get(key)
        if fact is not None and fact.claim is not None:
            fact.value = value
        else:
            self.facts[key] = Fact(value, number if ephemeral else None)

    # --- keys -------------------------------------------------------------------------------------------------------

    @rule(number=MEMBERS, key=KEYS, value=VALUES, ephemeral=st.booleans())
    def set(self, number: int, key: str, value: bytes, ephemeral: bool) -> None:
        reply = self.ask(number, m.Set(key, value, ephemeral))
        if self.foreign(number, key):
            assert reply.code == Code.DUPLICATED
        else:
            assert isinstance(reply, m.Done)
            self.write(number, key, value, ephemeral)

    @rule(number=MEMBERS, key=KEYS)
    def get(self, number: int, key: str) -> None:
        fact = self.facts.get(key)
        assert self.ask(number, m.Get(key)) == m.Value(fact.value if fact else None)

    @rule(number=MEMBERS, key=KEYS)
    def delete(self, number: int, key: str) -> None:
        reply = self.ask(number, m.Delete(key))
        if self.foreign(number, key):
            assert reply.code == Code.DUPLICATED
        else:
            assert reply == m.Flag(self.facts.pop(key, None) is not None)

    @rule(number=MEMBERS, key=KEYS, delta=st.integers(-3, 3))
    def add(self, number: int, key: str, delta: int) -> None:
        reply = self.ask(number, m.Add(key, delta))
        fact = self.facts.get(key, Fact(b"0"))
        if fact.owner is not None or (fact.value not in (b"0", b"1", b"-7") and not fact.value.lstrip(b"-").isdigit()):
            assert reply.code == Code.INVALID_PARAM
        else:
            total = int(fact.value) + delta
            assert reply == m.Number(total)
            self.facts[key] = Fact(b"%d" % total)

    @rule(number=MEMBERS, key=KEYS, suffix=VALUES)
    def append(self, number: int, key: str, suffix: bytes) -> None:
        reply = self.ask(number, m.Append(key, suffix))
        fact = self.facts.get(key, Fact(b""))
        if fact.owner is not None:
            assert reply.code == Code.INVALID_PARAM
        else:
            self.facts[key] = Fact(fact.value + suffix)
            assert reply == m.Number(len(self.facts[key].value))

    @rule(number=MEMBERS, key=KEYS, expected=st.none() | VALUES, value=VALUES, ephemeral=st.booleans())
    def compare_and_set(self, number: int, key: str, expected: bytes | None, value: bytes, ephemeral: bool) -> None:
        reply = self.ask(number, m.CompareAndSet(key, expected, value, ephemeral))
        fact = self.facts.get(key)
        before = fact.value if fact else None
        if before != expected:
            assert reply == m.Swapped(False, before)
        elif self.foreign(number, key):
            assert reply.code == Code.DUPLICATED
        else:
            assert reply == m.Swapped(True, value)
            self.write(number, key, value, ephemeral)

    @rule(number=MEMBERS, prefix=PREFIXES)
    def read_prefix(self, number: int, prefix: str) -> None:
        reply = self.ask(number, m.ReadPrefix(prefix))
        assert list(reply.entries.items()) == sorted(self.under(prefix).items())

    def under(self, prefix: str) -> dict[str, bytes]:
        return {key: fact.value for key, fact in self.facts.items() if key.startswith(prefix)}

    @rule(number=MEMBERS, key=KEYS, value=VALUES)
    def wait_then_set(self, number: int, key: str, value: bytes) -> None:
        waiter = self.connect(number, m.REQUESTS)
        effects = self.state.message(waiter, m.Wait(key, 5.0), self.now)
        if key in self.facts:
            assert effects == [Send((waiter,), m.Value(self.facts[key].value))]
        else:
            assert effects == []
            writer = self.member(number).requests
            effects = self.state.message(writer, m.Set(key, value, False), self.now)
            self.facts[key] = Fact(value)
            assert self.deliver(effects, waiter) == [m.Value(value)]
        self.disconnect(waiter)

    # --- ranks, ranges, watches, rendezvous -------------------------------------------------------------------------

    @rule(number=MEMBERS, group=GROUPS, wanted=st.none() | RANKS, excluded=st.lists(RANKS, max_size=2), value=VALUES)
    def claim(self, number: int, group: str, wanted: int | None, excluded: list[int], value: bytes) -> None:
        request = m.ClaimRank(next(self.numbers), group, CAPACITY, value, wanted, tuple(excluded))
        reply = self.ask(number, request)
        taken = {fact.claim for fact in self.facts.values() if fact.claim is not None}
        free = [rank for rank in range(CAPACITY) if (group, rank) not in taken]
        candidates = [r for r in free if r not in excluded] if wanted is None else [r for r in free if r == wanted]
        if not candidates:
            assert reply.code == (Code.NO_RESOURCES if wanted is None else Code.DUPLICATED)
        elif f"{group}/{candidates[0]}" in self.facts:
            assert reply.code == Code.DUPLICATED
        else:
            assert reply == m.Number(candidates[0])
            self.facts[f"{group}/{reply.value}"] = Fact(value, number, (group, reply.value))

    @rule(number=MEMBERS, group=GROUPS, rank=RANKS)
    def release_rank(self, number: int, group: str, rank: int) -> None:
        reply = self.ask(number, m.ReleaseRank(group, rank))
        fact = self.facts.get(f"{group}/{rank}")
        if fact is not None and fact.claim is not None and fact.owner == number:
            assert isinstance(reply, m.Done)
            del self.facts[f"{group}/{rank}"]
        else:
            assert reply.code == Code.NOT_EXIST

    @rule(number=MEMBERS, name=GROUPS)
    def hold_range(self, number: int, name: str) -> None:
        assert isinstance(self.ask(number, m.HoldRange(name, 1 << 40)), m.Number)
        self.members[number].ranges.add(name)

    @rule(number=MEMBERS, name=GROUPS)
    def release_range(self, number: int, name: str) -> None:
        reply = self.ask(number, m.ReleaseRange(name))
        if name in self.members[number].ranges:
            self.members[number].ranges.remove(name)
            assert isinstance(reply, m.Done)
        else:
            assert reply.code == Code.NOT_EXIST

    @rule(number=MEMBERS, prefix=PREFIXES)
    def watch(self, number: int, prefix: str) -> None:
        watch = next(self.numbers)
        member = self.member(number)
        member.prefixes[watch] = prefix
        assert isinstance(self.ask(number, m.StartWatch(watch, prefix)), m.Done)
        for known, watched in member.prefixes.items():  # everything that came before was told before
            assert member.views[known] == self.under(watched)

    @precondition(lambda self: any(member.prefixes for member in self.members.values()))
    @rule(data=st.data())
    def end_watch(self, data: st.DataObject) -> None:
        number, watch = data.draw(st.sampled_from([(n, w) for n, x in self.members.items() for w in x.prefixes]))
        assert isinstance(self.ask(number, m.EndWatch(watch)), m.Done)
        del self.members[number].prefixes[watch], self.members[number].views[watch]

    @rule(order=st.permutations(range(3)), data=st.lists(VALUES, min_size=3, max_size=3), withdraw=st.booleans())
    def gather(self, order: list[int], data: list[bytes], withdraw: bool) -> None:
        round = next(self.numbers)
        arrivals = [self.connect(100 + rank, m.REQUESTS) for rank in range(3)]
        for rank in order[:2]:
            request = m.Gather(1, "room", round, rank, 3, data[rank], 5.0)
            assert self.state.message(arrivals[rank], request, self.now) == []
        last = order[2]
        if withdraw:
            self.disconnect(arrivals[order[0]])
        effects = self.state.message(arrivals[last], m.Gather(1, "room", round, last, 3, data[last], 5.0), self.now)
        expected = m.Gathered(data) if any(data) else m.Arrived(3)
        assert effects == ([] if withdraw else [Send(arrivals, expected)])
        for connection in arrivals:
            self.disconnect(connection)

    # --- life and death ---------------------------------------------------------------------------------------------

    def disconnect(self, connection: int) -> None:
        effects = self.state.disconnected(connection)
        self.connected.discard(connection)
        self.deliver(effects)

    @rule(number=MEMBERS, orderly=st.booleans())
    def end(self, number: int, orderly: bool) -> None:
        member = self.members.get(number)
        if member is None:
            return
        if orderly:
            assert isinstance(self.ask(number, m.Goodbye()), m.Done)
        del self.members[number]
        for connection in (member.channel, member.requests):
            self.disconnect(connection)
        self.facts = {key: fact for key, fact in self.facts.items() if fact.owner != number}

    @rule(number=MEMBERS)
    def come_back(self, number: int) -> None:
        """The event channel breaks; the member opens a new one and restores what it had."""
        member = self.members.get(number)
        if member is None:
            return
        mine = {key: fact for key, fact in self.facts.items() if fact.owner == number}
        claims = tuple(
            m.RestoredClaim(*fact.claim, CAPACITY, fact.value, next(self.numbers))
            for fact in mine.values()
            if fact.claim is not None
        )
        bases = {name: self.state.tables.ranges._ranges[name].base for name in member.ranges}
        ranges = tuple(m.RestoredRange(name, base, 1 << 40) for name, base in bases.items())
        ephemerals = {key: fact.value for key, fact in mine.items() if fact.claim is None}
        self.disconnect(member.channel)
        member.views.clear()
        member.channel = self.connect(number, m.EVENTS)
        reply = self.say(member.channel, m.Restore(7, ephemerals, claims, ranges, dict(member.prefixes)))
        assert isinstance(reply, m.Restored)
        assert reply.refused == ()

    @rule(seconds=st.floats(0.01, 5.0))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        assert self.state.tick(self.now) == []

    @rule()
    def push(self) -> None:
        self.deliver(self.state.changes(self.now))

    # --- what always holds ------------------------------------------------------------------------------------------

    @invariant()
    def holds_together(self) -> None:
        if not hasattr(self, "state"):
            return
        invariants.check(self.state)
        entries = {key: entry.value for key, entry in self.state.tables.keyspace._entries.items()}
        assert entries == self.under("")
        for member in self.members.values():
            for watch, prefix in member.prefixes.items():
                if prefix not in self.state.tables.watches.pending:
                    assert member.views[watch] == self.under(prefix)


def take_push(member: Member, push: m.Push) -> None:
    if isinstance(push, m.WatchSnapshot):
        member.views[push.watch] = dict(push.entries)
        return
    for watch, view in member.views.items():
        if member.prefixes[watch] == push.prefix:
            for key, value in push.entries.items():
                if value is None:
                    view.pop(key, None)
                else:
                    view[key] = value


TestStoreAgainstModel = StoreAgainstModel.TestCase
