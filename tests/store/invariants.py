"""What must hold in a `StoreState` after every event; used by the model test and the fuzz."""

from __future__ import annotations

from collections import Counter

from memfabric_hybrid.store.limits import (
    MAX_EPHEMERAL_BYTES,
    MAX_GROUP_RANKS,
    SMALL_GATHER_BYTES,
    is_kept,
    rank_key,
)
from memfabric_hybrid.store.state import ranges
from memfabric_hybrid.store.state.effects import Effect, Send
from memfabric_hybrid.store.state.machine import StoreState
from memfabric_hybrid.store.state.placement import is_place
from memfabric_hybrid.store.state.recovery import _large_bytes
from memfabric_hybrid.store.state.sessions import MAX_CHANNELS
from memfabric_hybrid.store.state.watches import size_bytes as watch_size_bytes


def check(state: StoreState, connected: set[int] | None = None) -> None:
    """AssertionError at the first thing that does not fit together. `connected`: all the connections there are."""
    _keys_and_sessions(state)
    _ranks(state)
    _ranges(state)
    _watches(state)
    _waiting(state)
    _connections(state)
    if connected is not None:
        greeted = set(state._greeted) | set(state.tables.sessions._by_connection)
        assert set(state._strangers) | set(state.held_hellos) | greeted <= connected


def check_effects(effects: list[Effect], connected: set[int]) -> None:
    """Messages go only to connections that the state machine was told of."""
    for effect in effects:
        targets = effect.connections if isinstance(effect, Send) else (effect.connection,)
        assert set(targets) <= connected
        assert len(set(targets)) == len(targets)


def _keys_and_sessions(state: StoreState) -> None:
    keyspace, sessions = state.tables.keyspace, state.tables.sessions
    assert keyspace._sorted == sorted(keyspace._entries)
    owned: dict[bytes, set[str]] = {id: set() for id in sessions._sessions}
    for key, entry in keyspace._entries.items():
        if entry.owner is not None:
            owned[entry.owner].add(key)
        else:
            assert entry.claim is None
    for id, session in sessions._sessions.items():
        assert session.id == id
        assert set(session.keys) == owned[id]
        assert session.key_bytes == sum(session.keys.values()) <= MAX_EPHEMERAL_BYTES
        assert session.connection in session.channels
        assert len(session.channels) <= MAX_CHANNELS
        assert all(sessions._by_connection[channel] is session for channel in session.channels)
    assert len(sessions._by_connection) == sum(len(session.channels) for session in sessions._sessions.values())


def _ranks(state: StoreState) -> None:
    tables = state.tables
    claimed = {(name, rank) for name, group in tables.ranks._groups.items() for rank in group.claims}
    assert claimed == {e.claim for e in tables.keyspace._entries.values() if e.claim is not None}
    for name, group in tables.ranks._groups.items():
        assert group.claims
        assert group.ranks == {claim: rank for rank, claim in group.claims.items()}
        assert group.offered == {session: rank for rank, (session, _) in group.offers.items()}
        assert not group.offers.keys() & group.claims.keys()
        assert group.members == Counter(claim.session for claim in group.claims.values())
        assert set(group.unsettled) <= set(group.claims)
        assert group.taken_below == next(rank for rank in range(group.capacity + 1) if rank not in group.claims)
        for rank, claim in group.claims.items():
            assert 0 <= rank < group.capacity <= MAX_GROUP_RANKS
            entry = tables.keyspace.get(rank_key(name, rank))
            assert entry is not None
            assert entry.owner == claim.session


def _ranges(state: StoreState) -> None:
    tables = state.tables
    held = {(name, holder) for name, found in tables.ranges._ranges.items() for holder in found.holders}
    assert held == {(name, s.id) for s in tables.sessions._sessions.values() for name in s.ranges}
    costs = [(is_kept(name), ranges._cost_bytes(name)) for name, _ in held]
    assert tables.ranges.room.held_bytes == sums(costs)
    for found in tables.ranges._ranges.values():
        assert found.holders
        assert is_place(found.base, found.size_bytes)


def sums(costs: list[tuple[bool, int]]) -> dict[bool, int]:
    """By whether members hold it."""
    return {whose: sum(cost for is_members, cost in costs if is_members == whose) for whose in (True, False)}


def _watches(state: StoreState) -> None:
    watches = state.tables.watches
    assert set(watches._prefixes) <= set(state.tables.sessions._sessions)
    listed = sorted((p, s) for s, by_number in watches._prefixes.items() for p in by_number.values())
    counted = sorted((p, s) for p, watchers in watches._watchers.items() for s, n in watchers.items() for _ in range(n))
    assert listed == counted
    costs = [
        (number in watches._of_members.get(session, ()), watch_size_bytes(prefix))
        for session, by_number in watches._prefixes.items()
        for number, prefix in by_number.items()
    ]
    assert watches.room.held_bytes == sums(costs)
    assert all(of and of <= set(watches._prefixes[session]) for session, of in watches._of_members.items())
    assert set(watches._lengths) == {len(prefix) for prefix in watches._watchers}
    assert sum(watches._lengths.values()) == len(watches._watchers)
    assert set(watches.pending) | set(watches._spaced_until) <= set(watches._watchers)
    assert all(pending.changes for pending in watches.pending.values())


def _waiting(state: StoreState) -> None:
    tables = state.tables
    rendezvous_table, waiters = tables.rendezvous, tables.waiters
    arrived = {}
    for name, rendezvous in rendezvous_table._open.items():
        assert rendezvous.name == name
        assert 0 < len(rendezvous.arrivals) < rendezvous.size
        for rank, arrival in rendezvous.arrivals.items():
            assert 0 <= rank < rendezvous.size
            arrived[arrival.connection] = (rendezvous, rank)
            assert tables.next_deadline.at <= arrival.deadline
    assert rendezvous_table.waiting == arrived
    large = {
        name: sum(len(one.data) for one in found.arrivals.values() if len(one.data) > SMALL_GATHER_BYTES)
        for name, found in rendezvous_table._open.items()
    }
    assert large == {name: found.large_bytes for name, found in rendezvous_table._open.items()}
    assert rendezvous_table.room.held_bytes == sums([(is_kept(group), cost) for (group, _), cost in large.items()])
    assert rendezvous_table._finished_bytes == sum(f.size_bytes for f in rendezvous_table._finished.values())
    by_key = sorted((key, c) for key, connections in waiters._by_key.items() for c in connections)
    assert by_key == sorted((waiter.key, c) for c, waiter in waiters.waiting.items())
    for waiter in waiters.waiting.values():
        assert tables.keyspace.get(waiter.key) is None
        assert tables.next_deadline.at <= waiter.deadline
    assert not set(waiters.waiting) & set(rendezvous_table.waiting)
    claims = tables.recovery.waiting
    assert tables.recovery._large_bytes == sum(_large_bytes(one.request) for one in claims.values())
    assert all(tables.next_deadline.at <= tables.recovery.deadline() for _ in claims)


def _connections(state: StoreState) -> None:
    tables = state.tables
    channels = set(tables.sessions._by_connection)
    assert not set(state._strangers) & set(state._greeted)
    assert {one: session for session, mine in state._connections.items() for one in mine} == state._greeted
    assert all(state._connections.values())
    assert not channels & (set(state._greeted) | set(state._strangers))
    for busy in (tables.rendezvous.waiting, tables.waiters.waiting):
        assert set(busy) <= set(state._greeted)
