"""The store as a state machine: (event, now) → effects. No sockets, no threads, no time, no random.

Events: `connected`, `disconnected`, `message`, `admit_all`, `tick`. Effects: messages, and connections to close.
`changes(now)` gives the pushes that are due to watchers; whoever drives the machine calls it when a burst of events is
over, so that a burst costs one push, and again at `next_push`. This file knows who is connected; what the store knows
is in `tables.py`.
"""

from __future__ import annotations

from memfabric_hybrid.errors import Code, FabricError
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.limits import MAX_SESSION_CONNECTIONS, MAX_TIMEOUT_S, SESSION_ID_BYTES
from memfabric_hybrid.store.state.effects import Close, ConnectionId, Effect, Send
from memfabric_hybrid.store.state.gate import Gate, NotAdmitted
from memfabric_hybrid.store.state.next_deadline import NEVER
from memfabric_hybrid.store.state.restoring import restore
from memfabric_hybrid.store.state.sessions import Session
from memfabric_hybrid.store.state.tables import NeedsSession, StoreTables

HELLO_TIMEOUT_S = 10.0
NEW_CHANNEL = "its session has a new event channel"
GIVEN_UP = "its process has given up what it asked for there"


class StoreState:
    """Thread-agnostic: whoever drives it calls one method at a time.

    `first`: a session that is to be served before all others. Their Hellos wait until `admit_all`, but for those who
    were members of an earlier store.
    """

    def __init__(self, incarnation: str, first: bytes | None = None, gate: Gate | None = None) -> None:
        self.incarnation = incarnation
        self.gate = gate or Gate()
        self.first = first  # None: all are served
        self.held_hellos: dict[ConnectionId, m.Hello] = {}  # in the order in which they came
        self.tables = StoreTables()
        self._strangers: dict[ConnectionId, float] = {}  # connections that are not admitted yet → since when
        self._local: set[ConnectionId] = set()  # of these, those at the local socket
        self._greeted: dict[ConnectionId, bytes] = {}  # request connection → session id; event channels: `sessions.py`
        self._connections: dict[bytes, dict[ConnectionId, int]] = {}  # session id → of these its own, numbered by it

    @property
    def next_deadline(self) -> float:
        """`tick` is due not later than this."""
        return self.tables.next_deadline.at

    @property
    def next_push(self) -> float:
        """When `changes` has something to give."""
        return self.tables.watches.due_at

    @property
    def request_connections(self) -> int:
        """Connections that have greeted and are no event channels."""
        return len(self._greeted)

    @property
    def strangers(self) -> int:
        """Connections that are not welcomed yet, for want of a Hello or of `admit_all`."""
        return len(self._strangers) + len(self.held_hellos)

    def changes(self, now: float) -> list[Effect]:
        """Pushes to watchers for what has changed, as far as they are due."""
        return self.tables.changes(now)

    def knows(self, connection: ConnectionId) -> bool:
        """The connection has said a proper Hello."""
        return connection in self._greeted or self.is_event_channel(connection)

    def is_of_member(self, connection: ConnectionId) -> bool:
        session = self.tables.sessions.on(connection)
        session_id = self._greeted.get(connection) if session is None else session.id
        return session_id is not None and self.tables.is_member(session_id)

    def is_event_channel(self, connection: ConnectionId) -> bool:
        return self.tables.sessions.on(connection) is not None

    # --- events -----------------------------------------------------------------------------------------------------

    def connected(self, connection: ConnectionId, now: float, *, is_local: bool = False) -> None:
        self._strangers[connection] = now
        if is_local:
            self._local.add(connection)

    def disconnected(self, connection: ConnectionId) -> list[Effect]:
        """The other end is gone. Connections that a Close effect ended before are unknown here, and fine."""
        self._strangers.pop(connection, None)
        self._local.discard(connection)
        self.gate.forget(connection)
        self.held_hellos.pop(connection, None)
        self._ungreet(connection)
        self.tables.waiters.withdraw(connection)
        self.tables.recovery.withdraw(connection)
        effects = self.tables.rendezvous.withdraw(connection)
        session = self.tables.sessions.lose(connection)
        return [*effects, *self.tables.end_session(session)] if session is not None else effects

    def message(self, connection: ConnectionId, message: m.Request, now: float) -> list[Effect]:
        session_id = self._greeted.get(connection)
        if session_id is None:
            session = self.tables.sessions.on(connection)
            if session is None:
                return self._greet(connection, message, now)
            return self._on_channel(session, connection, message, now)
        tables = self.tables
        if (
            connection in tables.rendezvous.waiting
            or connection in tables.waiters.waiting
            or connection in tables.recovery.waiting
        ):
            return self.expel(connection, "a request came before the one before it was answered")
        handler = tables.handlers.get(type(message))
        if handler is None:
            return self._beyond_requests(connection, session_id, message)
        try:
            effects = handler(connection, session_id, message, now)
        except NeedsSession:
            return [Send((connection,), m.NoSession())]
        except FabricError as error:
            return [Send((connection,), m.Refused(error.code, str(error)))]
        for effect in effects:
            if type(effect) is Close:  # a repeated call replaces the connection of the first
                self._ungreet(effect.connection)
        return effects

    def make_room(self, newcomer: ConnectionId) -> list[Effect]:
        """There are more connections than can be: the least useful one goes, so that members always come in.

        Who has not greeted yet goes before who has, the oldest first, and who is no member before the newcomer.
        """
        why = "there are too many connections, and others are members"
        for waiting in (self._strangers, self.held_hellos):
            for connection in waiting:
                if connection != newcomer:
                    return [Close(connection, why), *self.disconnected(connection)]
        for connection, session_id in self._greeted.items():
            if not self.tables.is_member(session_id):
                return [Close(connection, why), *self.disconnected(connection)]
        idle = self.tables.sessions.first(lambda session: not self.tables.is_member(session.id))
        leaving = newcomer if idle is None else idle.connection
        return [*self.disconnected(leaving), Close(leaving, why)]

    def trim_strangers(self, most: int) -> list[Effect]:
        """The oldest of those who have not greeted go when they are too many: members greet at once."""
        why = "too many connections have not greeted yet"
        too_many = list(self._strangers)[: max(0, len(self._strangers) - most)]
        return [effect for one in too_many for effect in (Close(one, why), *self.disconnected(one))]

    def admit_all(self, now: float) -> list[Effect]:
        """From now on all are served, first those who wait."""
        self.first = None
        waiting, self.held_hellos = self.held_hellos, {}
        return [effect for connection, hello in waiting.items() for effect in self._welcome(connection, hello, now)]

    def heard(self, connection: ConnectionId, now: float) -> None:
        """Part of a message came: whoever sends a large one is alive."""
        session = self.tables.sessions.on(connection)
        if session is not None:
            session.heard_at = now

    def tick(self, now: float) -> list[Effect]:
        """Call every 100 ms or so, and at `next_deadline`."""
        effects: list[Effect] = []
        tables = self.tables
        for session in tables.sessions.silent(now):
            reason = f"no heartbeat for {session.heartbeat_timeout_s:.6g} s"
            effects += self._end_session(session, reason)
            effects += self._close_requests(session.id, reason)
        for connection, since in list(self._strangers.items()):
            if now - since > HELLO_TIMEOUT_S:
                effects += self.disconnected(connection)
                effects.append(Close(connection, f"no Hello within {HELLO_TIMEOUT_S:g} s"))
        if now >= tables.next_deadline.at:
            effects += tables.waiters.expire(now)
            effects += tables.rendezvous.expire(now)
            effects += self._serve_claims(now)
            tables.next_deadline.at = min(
                min(tables.waiters.deadlines(), default=NEVER),
                min(tables.rendezvous.deadlines(), default=NEVER),
                tables.recovery.deadline(),
            )
        return effects

    def _ungreet(self, connection: ConnectionId) -> None:
        session_id = self._greeted.pop(connection, None)
        if session_id is not None:
            mine = self._connections[session_id]
            del mine[connection]
            if not mine:
                del self._connections[session_id]

    def _close_requests(self, session_id: bytes, reason: str) -> list[Effect]:
        """Of a host that has vanished nobody else would ever say that its connections are of no use."""
        return self._close_all(list(self._connections.get(session_id, ())), reason)

    def _close_all(self, connections: list[ConnectionId], reason: str) -> list[Effect]:
        return [effect for one in connections for effect in (*self.disconnected(one), Close(one, reason))]

    def _serve_claims(self, now: float) -> list[Effect]:
        """Those that had to wait until it was known which ranks are free."""
        return [
            effect
            for connection, claim in self.tables.recovery.take_due(now).items()
            if connection in self._greeted
            for effect in self.message(connection, claim, now)
        ]

    def expel(self, connection: ConnectionId, why: str) -> list[Effect]:
        """For a connection that does not keep to the protocol: tell it, end it."""
        refused = m.Refused(Code.INVALID_PARAM, f"connection closed: {why}")
        return [Send((connection,), refused), Close(connection, why), *self.disconnected(connection)]

    def refuse(self, connection: ConnectionId, why: str) -> list[Effect]:
        """For somebody who lacks what this store wants to see: tell it, end it, and tell whoever runs the store."""
        refused = m.Refused(Code.NOT_CONNECTED, f"the store does not admit this process: {why}")
        return [Send((connection,), refused), *self.turn_away(connection, why)]

    def turn_away(self, connection: ConnectionId, why: str) -> list[Effect]:
        """The same without a message: it has been told, or would not understand us."""
        return [Close(connection, why, True), *self.disconnected(connection)]

    # --- connections and sessions -----------------------------------------------------------------------------------

    def _greet(self, connection: ConnectionId, message: m.Request, now: float) -> list[Effect]:
        if connection in self.held_hellos:
            return self.expel(connection, f"{type(message).__name__} before our Welcome")
        if connection not in self._strangers:
            return []  # closed by us; what it had sent before it noticed does not count
        if type(message) is m.Proof:
            verdict = self.gate.hear(connection, message.proof)
        elif type(message) is not m.Hello:
            return self.expel(connection, f"{type(message).__name__} before Hello")
        elif (flaw := _flaw(message)) is not None:
            return self.expel(connection, f"Hello with {flaw}")
        else:
            verdict = self.gate.validate(connection, message, connection in self._local)
        if isinstance(verdict, NotAdmitted):
            return self.refuse(connection, verdict.why)
        if isinstance(verdict, m.Challenge):
            return [Send((connection,), verdict)]
        return self._admit(connection, verdict, now)

    def _admit(self, connection: ConnectionId, hello: m.Hello, now: float) -> list[Effect]:
        del self._strangers[connection]
        self._local.discard(connection)
        if hello.returning:
            self.tables.recovery.heard(hello.heartbeat_timeout_s)
        elif self.first not in (None, hello.session):
            self.held_hellos[connection] = hello
            return []
        return self._welcome(connection, hello, now)

    def _welcome(self, connection: ConnectionId, message: m.Hello, now: float) -> list[Effect]:
        mine = self._connections.get(message.session, {})
        given_up = [one for one, number in mine.items() if number in message.given_up]
        effects = self._close_all(given_up, GIVEN_UP)  # before the Welcome: whatever it asks for next comes after that
        if message.role == m.REQUESTS and len(mine) >= MAX_SESSION_CONNECTIONS:
            why = f"this session has {MAX_SESSION_CONNECTIONS} connections, the most it can have"
            return [
                *effects,
                Send((connection,), m.Refused(Code.NO_RESOURCES, why)),
                Close(connection, why),
                *self.disconnected(connection),
            ]
        welcome = m.Welcome(self.incarnation, self.tables.keyspace.revision, self.gate.local_key)
        effects.append(Send((connection,), welcome))
        if message.role == m.REQUESTS:
            self._greeted[connection] = message.session
            self._connections.setdefault(message.session, {})[connection] = message.number
            return effects
        surplus = self.tables.sessions.open(
            message.session, connection, message.heartbeat_timeout_s, now, returning=message.returning
        )
        return effects if surplus is None else [Close(surplus, NEW_CHANNEL), *effects]

    def _on_channel(self, session: Session, connection: ConnectionId, message: m.Request, now: float) -> list[Effect]:
        session.heard_at = now
        effects: list[Effect] = [
            Close(earlier, NEW_CHANNEL) for earlier in self.tables.sessions.spoke(session, connection)
        ]
        if type(message) is m.Heartbeat:
            return effects
        if type(message) is not m.Restore:
            return effects + self.expel(connection, f"{type(message).__name__} on the event channel")
        if message.known_revision < 0:
            return effects + self.expel(connection, f"Restore with the impossible revision {message.known_revision}")
        return effects + restore(self.tables, session, message, now)

    def _end_session(self, session: Session, reason: str) -> list[Effect]:
        channels = list(session.channels)
        return [*self.tables.end_session(session), *(Close(channel, reason) for channel in channels)]

    def _beyond_requests(self, connection: ConnectionId, session_id: bytes, message: m.Request) -> list[Effect]:
        if type(message) is not m.Goodbye:
            return self.expel(connection, f"{type(message).__name__} on a request connection")
        effects: list[Effect] = [Send((connection,), m.Done(self.tables.keyspace.revision))]
        session = self.tables.sessions.get(session_id)
        if session is not None:
            effects += self._end_session(session, "goodbye")
        return effects


def _flaw(hello: m.Hello) -> str | None:
    """What no Hello of a client has."""
    if len(hello.session) != SESSION_ID_BYTES:
        return f"a session id of {len(hello.session)} bytes"
    if hello.role not in (m.REQUESTS, m.EVENTS):
        return f"the unknown role {hello.role}"
    if not 0 < hello.heartbeat_timeout_s <= MAX_TIMEOUT_S:
        return f"a heartbeat timeout of {hello.heartbeat_timeout_s} s"
    if len(hello.given_up) > MAX_SESSION_CONNECTIONS:
        return f"{len(hello.given_up)} connections that it has given up"
    return None
