"""Connections that wait for a key to appear. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from memfabric_hybrid.errors import Code
from memfabric_hybrid.store.limits import shown
from memfabric_hybrid.store.messages import Refused, Value
from memfabric_hybrid.store.state.effects import ConnectionId, Effect, Send
from memfabric_hybrid.store.state.next_deadline import NextDeadline


class Waiter(NamedTuple):
    key: str
    deadline: float
    timeout_s: float


class KeyWaiters:
    def __init__(self, next_deadline: NextDeadline) -> None:
        self._next_deadline = next_deadline
        self.waiting: dict[ConnectionId, Waiter] = {}
        self._by_key: dict[str, list[ConnectionId]] = {}

    def add(self, connection: ConnectionId, waiter: Waiter) -> None:
        self._next_deadline.at = min(self._next_deadline.at, waiter.deadline)
        self.waiting[connection] = waiter
        self._by_key.setdefault(waiter.key, []).append(connection)

    def appeared(self, key: str, value: bytes) -> list[Effect]:
        connections = self._by_key.pop(key, None)
        if not connections:
            return []
        for connection in connections:
            del self.waiting[connection]
        return [Send(connections, Value(value))]

    def withdraw(self, connection: ConnectionId) -> None:
        waiter = self.waiting.pop(connection, None)
        if waiter is None:
            return
        connections = self._by_key[waiter.key]
        connections.remove(connection)
        if not connections:
            del self._by_key[waiter.key]

    def expire(self, now: float) -> list[Effect]:
        late = [(connection, waiter) for connection, waiter in self.waiting.items() if waiter.deadline <= now]
        effects: list[Effect] = []
        for connection, waiter in late:
            self.withdraw(connection)
            sentence = f"key {shown(waiter.key)} was not set within {waiter.timeout_s:.2f} s"
            effects.append(Send((connection,), Refused(Code.TIMEOUT, sentence)))
        return effects

    def deadlines(self) -> Iterator[float]:
        return (waiter.deadline for waiter in self.waiting.values())
