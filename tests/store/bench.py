"""A state machine on a bench: events by hand, invented time, invariants checked after every step."""

from __future__ import annotations

from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.state.effects import Close, Effect, Send
from memfabric_hybrid.store.state.machine import StoreState
from store import invariants

TIMEOUT_S = 3.0


class Bench:
    """A state machine with a clock that the test moves. Sessions are numbers; connection 10*n is n's event channel."""

    def __init__(self) -> None:
        self.state = StoreState("one")
        self.now = 1000.0
        self.connections: set[int] = set()

    def connect(self, connection: int) -> None:
        self.connections.add(connection)
        self.state.connected(connection, self.now)

    def say(self, connection: int, message: m.Request) -> list[Effect]:
        effects = self.state.message(connection, message, self.now)
        invariants.check_effects(effects, self.connections)
        self.connections -= {effect.connection for effect in effects if isinstance(effect, Close)}
        invariants.check(self.state, self.connections)
        return effects

    def greet(self, connection: int, session: int, role: int = m.REQUESTS, returning: bool = False) -> list[Effect]:
        self.connect(connection)
        return self.say(connection, m.Hello(session_id(session), role, TIMEOUT_S, returning))

    def greet_with(self, connection: int, hello: m.Hello) -> int:
        self.connect(connection)
        self.say(connection, hello)
        return connection

    def member(self, session: int) -> int:
        """Event channel and one request connection; the latter's number."""
        self.greet(10 * session, session, m.EVENTS)
        self.greet(10 * session + 1, session)
        return 10 * session + 1

    def pushes(self) -> list[Effect]:
        """What is due to watchers now."""
        effects = self.state.changes(self.now)
        invariants.check_effects(effects, self.connections)
        invariants.check(self.state, self.connections)
        return effects

    def leave(self, connection: int) -> list[Effect]:
        effects = self.state.disconnected(connection)
        self.connections.discard(connection)
        invariants.check(self.state, self.connections)
        invariants.check_effects(effects, self.connections)
        return effects

    def pass_time(self, seconds: float, step_s: float = 0.1) -> list[Effect]:
        """Ticks as a healthy server does."""
        effects: list[Effect] = []
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + step_s)
            effects += self.state.tick(self.now)
            invariants.check(self.state)
        return effects


def session_id(session: int) -> bytes:
    return session.to_bytes(16, "big")


def only(effects: list[Effect]) -> Send:
    (effect,) = effects
    assert isinstance(effect, Send)
    return effect


def answer(effects: list[Effect]) -> m.ServerMessage:
    return only(effects).message


def gather(rank: int, size: int, data: bytes = b"", round: int = 0, call: int = 1, timeout_s: float = 60) -> m.Gather:
    return m.Gather(call, "g", round, rank, size, data, timeout_s)
