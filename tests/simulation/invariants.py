"""What must hold in a simulated world: while it runs, when its faults are over, and when everybody has left."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memfabric_hybrid.address_space import join_fact
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.server.server import TICK_S
from memfabric_hybrid.store.state.machine import HELLO_TIMEOUT_S, StoreState
from memfabric_hybrid.store.state.rendezvous import MAX_REMEMBERED_GROUPS
from simulation.gather_ledger import GatherLedger
from simulation.network import Connection
from simulation.rank_ledger import REGISTERED_S, SLACK_S, RankLedger
from simulation.view_ledger import ViewLedger
from simulation.work import KEY
from store import invariants as store_invariants

if TYPE_CHECKING:
    from simulation.member import Member
    from simulation.part import Part
    from simulation.server import Server

Fact = tuple[int, int, list[bytes]]  # life of the store, its revision, and what it shows of a rank: one fact, or none
_EXPELLED = re.compile("came before the one before|before Hello|before our Welcome|on the event channel|on a request")


class Invariants:
    """`members` are all that live."""

    def __init__(self, server: Server, members: dict[int, Member]) -> None:
        self.ranks = RankLedger(server)
        self.gathers = GatherLedger(server)
        self.views = ViewLedger(server, members)
        self.members = members
        self._server = server
        self._world = server.world
        self._revision = (0, 0)

    # --- while it runs ----------------------------------------------------------------------------------------------

    def before_end(self, connection: Connection) -> None:
        """The server hears that a connection is over."""
        self._session_ends(connection)

    def before_close(self, connection: Connection, reason: str) -> None:
        """The server closes a connection."""
        self._session_ends(connection)
        if reason.startswith("no heartbeat"):
            self._check_silence(connection, reason)
        elif _EXPELLED.search(reason):
            self._world.fail(f"{connection} is expelled: {reason}")

    def _session_ends(self, connection: Connection) -> None:
        if connection.role == m.EVENTS:
            self.ranks.lost(connection.process)  # type: ignore[arg-type]

    def _check_silence(self, connection: Connection, reason: str) -> None:
        """Who runs and reaches the store is not taken for dead."""
        process, server, now = connection.process, self._server, self._world.now
        disturbed = max(process.disturbed_until, process.host.disturbed_until, server.started_at)
        if process.is_alive and now - disturbed > process.heartbeat_timeout_s:
            self._world.fail(f"{process} is taken for dead ({reason}), though nothing came between it and the store")

    def before_send(self, connection: Connection, message: m.ServerMessage) -> None:
        kind = type(message)
        if kind is m.Number and type(connection.asked) is m.ClaimRank:
            self.ranks.granted(connection.asked.group, message.value, connection.process)  # type: ignore[union-attr,arg-type]
        elif kind is m.Refused and type(connection.asked) is m.Gather:
            self.gathers.refused(connection.asked, message)  # type: ignore[arg-type]

    def after_tick(self) -> None:
        """Nobody who waits is forgotten, and the revision never goes back within one life of the store."""
        state, now = self._server.state, self._world.now
        assert state is not None
        tables = state.tables
        for what, deadline in (
            ("a waiter", min(tables.waiters.deadlines(), default=now + 1)),
            ("a gather", min(tables.rendezvous.deadlines(), default=now + 1)),
            ("a claim", tables.recovery.deadline()),
        ):
            if deadline <= now:
                self._world.fail(f"the store has ticked, and {what} waits {now - deadline:.3f} s beyond its deadline")
        revision = (self._server.incarnation, tables.keyspace.revision)
        if revision < self._revision:
            self._world.fail(f"revision {revision} of the store comes after {self._revision}")
        self._revision = revision

    def audit(self) -> None:
        """All that takes longer to look at."""
        self.ranks.audit()
        self.gathers.audit()
        self.views.audit()
        if self._server.state is not None:
            self._check_store(self._server.state)

    def _check_store(self, state: StoreState) -> None:
        store_invariants.check(state, set(self._server.connections))
        if not self._server.is_serving:
            return
        tables, now = state.tables, self._world.now
        patience_s = TICK_S + SLACK_S
        for session in tables.sessions._sessions.values():
            silent_s = now - session.heard_at - session.heartbeat_timeout_s
            if silent_s > patience_s:
                self._world.fail(f"session {int.from_bytes(session.id, 'big')} is {silent_s:.3f} s beyond its time-out")
        for member in self.members.values():
            self._check_records(state, member)
        for number, since in state._strangers.items():
            if now - since > HELLO_TIMEOUT_S + patience_s:
                self._world.fail(f"connection {number} has not greeted for {now - since:.3f} s")

    def _check_records(self, state: StoreState, member: Member) -> None:
        """What a member and the store think that it owns is the same, once they have had the time to talk."""
        client = member.client
        is_busy = client.changes_under_way or not client.is_ready or member.is_evicted or member.is_leaving
        if is_busy or self.ranks.clean_s(member) <= REGISTERED_S:
            return
        session = state.tables.sessions.get(client.session)
        found = [] if session is None else sorted([*session.keys, *session.ranges])
        records = client.records
        expected = sorted([*records._ephemerals, *records._claims, *records._ranges])
        if found != expected:
            self._world.fail(f"{member} owns {expected}, thinks itself; the store thinks {found}")

    def fact_of(self, member: Member, rank: int) -> Fact | None:
        """What the store shows of a rank of that member's object; None if the store is away."""
        if not self._server.is_serving or self._server.state is None:
            return None
        keyspace = self._server.state.tables.keyspace
        found = [(key, entry) for key, entry in keyspace._entries.items() if key.startswith(f"{member.object_name}/")]
        values = [entry.value for key, entry in found if key.endswith(f"/{rank}")]
        return self._server.incarnation, keyspace.revision, values

    def sought(self, member: Member, rank: int, before: Fact | None) -> None:
        """Who has sought a rank knows what the store knew when it began; looked at if that has not changed since."""
        known = _part(member).known
        if before is None or before != self.fact_of(member, rank) or rank == member.rank or not known.takes_part:
            return
        facts = [join_fact.encode(known.facts[rank])] if rank in known.facts else []
        if facts != before[2]:
            self._world.fail(f"{member} has sought rank {rank} and knows {facts}, the store knew {before[2]}")

    # --- when the faults are over -----------------------------------------------------------------------------------

    def check_converged(self) -> None:
        """Everybody has a rank, has joined, and sees exactly who is there; the store has that, and nothing else."""
        self.audit()
        for member in self.members.values():
            if not member.is_settled:
                self._world.fail(f"{member} of {member.host.name} has not joined")
        bases = {(member.object_name, member.base) for member in self.members.values()}
        if len(bases) != len({name for name, _ in bases}):
            self._world.fail(f"objects lie at different addresses for their members: {sorted(bases)}")
        self.views.check_converged()
        self._check_nothing_is_left()

    def _check_nothing_is_left(self) -> None:
        state = self._server.state
        assert state is not None
        tables = state.tables
        alive = {member.client.session: member for member in self.members.values()}
        owned = {key: entry.owner for key, entry in tables.keyspace._entries.items() if entry.owner is not None}
        expected = {key: session for session, member in alive.items() for key in member.owned_keys()}
        connections = [one for member in self.members.values() for one in member.connections.values()]
        self._compare("sessions", set(tables.sessions._sessions), set(alive))
        kept = {key: owner for key, owner in owned.items() if not key.startswith(KEY)}
        self._compare("keys", kept, expected)
        self._compare("owners", set(owned.values()) - set(alive), set())
        self._compare("watches", set(tables.watches._prefixes), {s for s, one in alive.items() if _part(one).is_joined})
        self._compare("ranges", set(tables.ranges._ranges), {member.object_name for member in self.members.values()})
        open_ = {connection.number for connection in connections if connection.is_server_open}
        self._compare("connections", set(self._server.connections), open_)
        self._compare("waiters", tables.waiters.waiting, {})
        self._compare("rendezvous", tables.rendezvous._open, {})
        self._compare("claims that wait", tables.recovery.waiting, {})
        self._compare("connections that have not greeted", state._strangers, {})
        self._compare("pushes", tables.watches.pending, {})
        greeted = {one: session for session, mine in state._connections.items() for one in mine}
        self._compare("connections of sessions", greeted, state._greeted)
        if len(tables.rendezvous._finished) > MAX_REMEMBERED_GROUPS:
            self._world.fail(f"the store remembers {len(tables.rendezvous._finished)} finished groups")

    def _compare(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            self._world.fail(f"{what} of the store are {found}, expected are {expected}")

    # --- when everybody has left ------------------------------------------------------------------------------------

    def check_empty(self) -> None:
        self.audit()
        self._check_nothing_is_left()
        state = self._server.state
        assert state is not None
        self._compare("groups", state.tables.ranks._groups, {})
        self._compare("connections", state._greeted, {})


def _part(member: Member) -> Part:
    assert member.part is not None
    return member.part
