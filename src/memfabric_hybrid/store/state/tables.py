"""What the store knows and what each request does to it: the tables, connected. Pure.

Handlers take (connection, session id, request, now) and give effects. A handler that raises a FabricError has changed
nothing. Who is connected and who has greeted is `machine.py`'s business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memfabric_hybrid.errors import Duplicated, InvalidParam, NoResources, NotExist
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.limits import (
    KEPT,
    MAX_EPHEMERAL_BYTES,
    MAX_RANGES,
    check_capacity,
    check_counter,
    check_excluded,
    check_key,
    check_prefix,
    check_rank_value,
    check_timeout,
    check_value,
    check_wanted,
    counter,
    is_kept,
    rank_key,
    shown,
)
from memfabric_hybrid.store.state.effects import ConnectionId, Effect, Send
from memfabric_hybrid.store.state.keyspace import Entry, Keyspace, size_bytes
from memfabric_hybrid.store.state.next_deadline import NextDeadline
from memfabric_hybrid.store.state.ownership import GROUPS, check_member, check_writer, group_of, keeper_of
from memfabric_hybrid.store.state.ranges import RangeTable
from memfabric_hybrid.store.state.ranks import SETTLE_S, Claim, RankTable
from memfabric_hybrid.store.state.recovery import Recovery
from memfabric_hybrid.store.state.rendezvous import RendezvousTable
from memfabric_hybrid.store.state.sessions import Session, SessionTable
from memfabric_hybrid.store.state.waiters import KeyWaiters, Waiter
from memfabric_hybrid.store.state.watches import WatchTable


class NeedsSession(Exception):
    """The request is bound to a session and there is none."""


class StoreTables:
    def __init__(self) -> None:
        self.keyspace = Keyspace()
        self.watches = WatchTable()
        self.ranks = RankTable()
        self.ranges = RangeTable()
        self.next_deadline = NextDeadline()
        self.rendezvous = RendezvousTable(self.next_deadline, self.ranks.is_held_by)
        self.waiters = KeyWaiters(self.next_deadline)
        self.recovery = Recovery(self.next_deadline)
        self.sessions = SessionTable()
        self.handlers: dict[type, Callable[[ConnectionId, bytes, Any, float], list[Effect]]] = {
            m.Gather: self._gather,
            m.Get: self._get,
            m.Set: self._set,
            m.Wait: self._wait,
            m.Delete: self._delete,
            m.Add: self._add,
            m.CompareAndSet: self._compare_and_set,
            m.Append: self._append,
            m.ReadPrefix: self._read_prefix,
            m.StartWatch: self._start_watch,
            m.EndWatch: self._end_watch,
            m.ClaimRank: self._claim_rank,
            m.FreeRanks: self._free_ranks,
            m.ReleaseRank: self._release_rank,
            m.HoldRange: self._hold_range,
            m.ReleaseRange: self._release_range,
        }

    # --- facts and their consequences -------------------------------------------------------------------------------

    def session(self, id: bytes) -> Session:
        session = self.sessions.get(id)
        if session is None:
            raise NeedsSession
        return session

    def is_member(self, id: bytes) -> bool:
        """The session holds a rank of some kind of members."""
        return any(self.ranks.is_member(group, id) for group in GROUPS.values())

    def _restored(self, id: bytes) -> Session:
        """The same for what only members may do: one that has just come back is no member before its Restore."""
        session = self.session(id)
        if session.awaits_restore:
            raise NeedsSession
        return session

    def end_session(self, session: Session) -> list[Effect]:
        """All that belongs to it goes; whoever watches or waits learns it."""
        self.watches.end_all(session.id)
        effects = [effect for key in list(session.keys) for effect in self.remove(key)]
        for name in session.ranges:
            self.ranges.release(name, session.id)
        self.sessions.end(session)
        return effects

    def put(self, key: str, value: bytes, owner: Session | None, claim: tuple[str, int] | None = None) -> list[Effect]:
        """Write. The caller has made sure that the key belongs to nobody else."""
        entry = self.keyspace.get(key)
        self.keyspace.check_room(key, value, is_owned=owner is not None)
        if owner is not None:
            owner.own(key, self._affordable_bytes(owner, key, value))
        elif entry is not None and entry.owner is not None:
            self.session(entry.owner).disown(key)
        self.keyspace.put(key, Entry(value, owner.id if owner else None, claim))
        if claim is None and owner is not None and (keeper := keeper_of(key)) is not None:
            self.ranks.settle(*keeper)
        self.watches.note(key, value, self.keyspace.revision)
        return self.waiters.appeared(key, value)

    def remove(self, key: str) -> list[Effect]:
        entry = self.keyspace.remove(key)
        if entry is None:
            return []
        self.watches.note(key, None, self.keyspace.revision)
        if entry.owner is None:
            return []
        self.session(entry.owner).disown(key)
        if entry.claim is None:
            return []
        self.ranks.release(*entry.claim)
        gone = self.rendezvous.rank_gone(*entry.claim, entry.owner)
        return [*gone, *self._end_membership(self.session(entry.owner), entry.claim[0])]

    def _end_membership(self, session: Session, group: str) -> list[Effect]:
        """Who has no rank of a kind any more has nothing that only its members may have."""
        if not is_kept(group) or self.ranks.is_member(group, session.id):
            return []
        for name in [name for name in session.ranges if group_of(name) == group]:
            self.ranges.release(name, session.id)
            session.ranges.remove(name)
        return [effect for key in list(session.keys) if group_of(key) == group for effect in self.remove(key)]

    def claim(
        self, session: Session, request: m.ClaimRank | m.RestoredClaim, wanted: int | None, now: float
    ) -> tuple[int, list[Effect]]:
        """The rank, and what follows from its key. Checked completely before anything changes.

        Ranks of members are for those who come in. Who has claimed one and then not written a word loses it to who
        finds no other, and at once to who had it in an earlier store.
        """
        self._check_claim(session, request)
        excluded = request.excluded if isinstance(request, m.ClaimRank) else ()
        claim = Claim(session.id, request.claim)
        if (
            is_kept(request.group)
            and self.ranks.is_member(request.group, session.id)
            and not self.ranks.has(request.group, claim)
        ):
            raise InvalidParam(
                f"this process has a rank of group {shown(request.group)} already; one is all that a member can have"
            )
        effects: list[Effect] = []
        if is_kept(request.group):
            since = now if isinstance(request, m.RestoredClaim) else now - SETTLE_S
            group = request.group
            for idle in self.ranks.in_the_way(group, request.capacity, claim, wanted, excluded, since):
                effects += self.remove(rank_key(group, idle))
        rank = self.ranks.find(request.group, request.capacity, claim, wanted, excluded)
        key = rank_key(request.group, rank)
        if self.keyspace.get(key) is not None and self.ranks.holder(request.group, rank) is None:
            raise Duplicated(f"key {shown(key)} exists and is no rank; group {shown(request.group)} cannot use it")
        self.ranks.take(request.group, request.capacity, rank, claim, now)
        return rank, effects + self.put(key, request.value, session, (request.group, rank))

    def _check_claim(self, session: Session, request: m.ClaimRank | m.RestoredClaim) -> None:
        """What can be said of it whoever else is here."""
        check_capacity(request.group, request.capacity)
        longest_key = rank_key(request.group, request.capacity - 1)
        check_key(longest_key, "rank key")
        check_rank_value(longest_key, request.value)
        self._affordable_bytes(session, longest_key, request.value)
        self.keyspace.check_room(longest_key, request.value, is_owned=True)
        if isinstance(request, m.ClaimRank):
            check_excluded(request.group, request.excluded)
            check_wanted(request.group, request.capacity, request.wanted)
        else:
            check_wanted(request.group, request.capacity, request.rank)

    def _affordable_bytes(self, session: Session, key: str, value: bytes) -> int:
        cost_bytes = size_bytes(key, value)
        total_bytes = session.key_bytes - session.keys.get(key, 0) + cost_bytes
        if total_bytes > MAX_EPHEMERAL_BYTES:
            raise NoResources(
                f"ephemeral key {shown(key)}: the ephemeral keys of this member would hold {total_bytes} bytes, "
                f"allowed are {MAX_EPHEMERAL_BYTES}"
            )
        return cost_bytes

    def _writable(self, key: str, session_id: bytes, *, ephemeral: bool = True) -> Entry | None:
        """The entry to be changed; Duplicated when it belongs to another session, InvalidParam when it would."""
        entry = self.keyspace.get(key)
        if entry is not None and entry.owner not in (None, session_id):
            raise Duplicated(
                f"key {shown(key)} belongs to another member and vanishes with it; only that can change it"
            )
        if is_kept(key):
            self._restored(session_id)
            is_rank = entry is not None and entry.claim is not None  # which stays one, however it is written
            check_writer(self.ranks, key, session_id, ephemeral=ephemeral or is_rank)
        return entry

    def _write(self, key: str, value: bytes, session_id: bytes, ephemeral: bool, entry: Entry | None) -> list[Effect]:
        if entry is not None and entry.claim is not None:  # a claimed rank stays one, whatever is written to it
            check_rank_value(key, value)
            return self.put(key, value, self.session(session_id), entry.claim)
        return self.put(key, value, self.session(session_id) if ephemeral else None)

    # --- requests: keys ---------------------------------------------------------------------------------------------

    def _set(self, connection: ConnectionId, session_id: bytes, request: m.Set, now: float) -> list[Effect]:
        check_key(request.key)
        check_value(request.key, request.value)
        entry = self._writable(request.key, session_id, ephemeral=request.ephemeral)
        effects = self._write(request.key, request.value, session_id, request.ephemeral, entry)
        return [Send((connection,), m.Done(self.keyspace.revision)), *effects]

    def _get(self, connection: ConnectionId, session_id: bytes, request: m.Get, now: float) -> list[Effect]:
        check_key(request.key)
        entry = self.keyspace.get(request.key)
        return [Send((connection,), m.Value(entry.value if entry else None))]

    def _wait(self, connection: ConnectionId, session_id: bytes, request: m.Wait, now: float) -> list[Effect]:
        check_key(request.key)
        deadline = now + check_timeout(request.timeout_s)
        entry = self.keyspace.get(request.key)
        if entry is not None:
            return [Send((connection,), m.Value(entry.value))]
        self.waiters.add(connection, Waiter(request.key, deadline, request.timeout_s))
        return []

    def _delete(self, connection: ConnectionId, session_id: bytes, request: m.Delete, now: float) -> list[Effect]:
        check_key(request.key)
        entry = self._writable(request.key, session_id)
        return [Send((connection,), m.Flag(entry is not None)), *self.remove(request.key)]

    def _add(self, connection: ConnectionId, session_id: bytes, request: m.Add, now: float) -> list[Effect]:
        check_key(request.key)
        check_counter(request.key, request.delta, "delta")
        entry = self._plain(request.key)
        before = entry.value if entry else b"0"
        total = counter(request.key, before) + request.delta
        check_counter(request.key, total, "new value")
        effects = self.put(request.key, str(total).encode(), None)
        return [Send((connection,), m.Number(total)), *effects]

    def _compare_and_set(
        self, connection: ConnectionId, session_id: bytes, request: m.CompareAndSet, now: float
    ) -> list[Effect]:
        check_key(request.key)
        check_value(request.key, request.value)
        entry = self.keyspace.get(request.key)
        if (entry.value if entry else None) != request.expected:
            return [Send((connection,), m.Swapped(False, entry.value if entry else None))]
        self._writable(request.key, session_id, ephemeral=request.ephemeral)
        effects = self._write(request.key, request.value, session_id, request.ephemeral, entry)
        return [Send((connection,), m.Swapped(True, request.value)), *effects]

    def _append(self, connection: ConnectionId, session_id: bytes, request: m.Append, now: float) -> list[Effect]:
        check_key(request.key)
        entry = self._plain(request.key)
        value = (entry.value if entry else b"") + request.suffix
        check_value(request.key, value)
        return [Send((connection,), m.Number(len(value))), *self.put(request.key, value, None)]

    def _plain(self, key: str) -> Entry | None:
        """Counters and lists are everybody's: an ephemeral key cannot be one."""
        entry = self.keyspace.get(key)
        if entry is not None and entry.owner is not None:
            raise InvalidParam(f"key {shown(key)} is ephemeral: it can be set, but not added or appended to")
        if is_kept(key):
            raise InvalidParam(f"key {shown(key)} is a member's: it can be set by that, but not added or appended to")
        return entry

    def _read_prefix(
        self, connection: ConnectionId, session_id: bytes, request: m.ReadPrefix, now: float
    ) -> list[Effect]:
        check_prefix(request.prefix)
        return [Send((connection,), m.Entries(self.keyspace.revision, self.keyspace.under(request.prefix)))]

    # --- requests: watches ------------------------------------------------------------------------------------------

    def _start_watch(
        self, connection: ConnectionId, session_id: bytes, request: m.StartWatch, now: float
    ) -> list[Effect]:
        check_prefix(request.prefix)
        session = self.session(session_id)
        is_member = self.is_member(session_id)
        self.watches.check_room(session_id, request.watch, request.prefix, is_member=is_member)
        snapshot = self.keyspace.under(request.prefix)
        told = [  # a session hears everything in order: what happened before comes before what is seen now
            Send((session.connection,), m.Changed(prefix, revision, entries))
            for prefix, revision, entries in self.watches.untold(session_id)
        ]
        self.watches.start(session_id, request.watch, request.prefix, is_member=is_member)
        return [
            *told,
            Send((session.connection,), m.WatchSnapshot(request.watch, self.keyspace.revision, snapshot)),
            Send((connection,), m.Done(self.keyspace.revision)),
        ]

    def _end_watch(self, connection: ConnectionId, session_id: bytes, request: m.EndWatch, now: float) -> list[Effect]:
        self.watches.end(session_id, request.watch)
        return [Send((connection,), m.Done(self.keyspace.revision))]

    def changes(self, now: float) -> list[Effect]:
        """Pushes to watchers, as far as they are due."""
        return [
            Send([self.session(id).connection for id in sessions], m.Changed(prefix, revision, entries))
            for prefix, sessions, revision, entries in self.watches.drain(now)
        ]

    # --- requests: ranks, ranges, rendezvous ------------------------------------------------------------------------

    def _claim_rank(
        self, connection: ConnectionId, session_id: bytes, request: m.ClaimRank, now: float
    ) -> list[Effect]:
        session = self.session(session_id)
        is_new = not self.ranks.has(request.group, Claim(session_id, request.claim))
        if is_new and not self.recovery.is_over(now, session.heartbeat_timeout_s):
            self._check_claim(session, request)
            self.recovery.add(connection, request, session.heartbeat_timeout_s)
            return []
        rank, effects = self.claim(session, request, request.wanted, now)
        return [Send((connection,), m.Number(rank)), *effects]

    def _free_ranks(
        self, connection: ConnectionId, session_id: bytes, request: m.FreeRanks, now: float
    ) -> list[Effect]:
        found = self.ranks.free(request.group, request.capacity, request.most, session_id, now)
        return [Send((connection,), m.Ranks(found))]

    def _release_rank(
        self, connection: ConnectionId, session_id: bytes, request: m.ReleaseRank, now: float
    ) -> list[Effect]:
        if not self.ranks.is_held_by(request.group, request.rank, session_id):
            raise NotExist(f"rank {request.rank} of group {shown(request.group)} is not held by this member")
        effects = self.remove(rank_key(request.group, request.rank))
        return [Send((connection,), m.Done(self.keyspace.revision)), *effects]

    def _gather(self, connection: ConnectionId, session_id: bytes, request: m.Gather, now: float) -> list[Effect]:
        if request.group.startswith(KEPT):  # in place, because barriers come this way
            self._restored(session_id)
            check_member(self.ranks, request.group, session_id, "rendezvous")
        return self.rendezvous.arrive(connection, session_id, request, now)

    def _hold_range(
        self, connection: ConnectionId, session_id: bytes, request: m.HoldRange, now: float
    ) -> list[Effect]:
        check_key(request.name, "range name")
        session = self._restored(session_id) if is_kept(request.name) else self.session(session_id)
        check_member(self.ranks, request.name, session_id, "range")
        if len(session.ranges) >= MAX_RANGES and request.name not in session.ranges:
            raise NoResources(f"range {shown(request.name)}: this member holds {MAX_RANGES} ranges, the most it can")
        base = self.ranges.hold(request.name, request.size_bytes, session_id, request.asked)
        session.ranges.add(request.name)
        return [Send((connection,), m.Number(base))]

    def _release_range(
        self, connection: ConnectionId, session_id: bytes, request: m.ReleaseRange, now: float
    ) -> list[Effect]:
        session = self.session(session_id)
        self.ranges.release(request.name, session_id)
        session.ranges.remove(request.name)
        return [Send((connection,), m.Done(self.keyspace.revision))]
