"""What one more member costs the store when so many are there: messages, bytes, CPU time.

Real members are processes with a pool, each on a host of its own as far as it knows. All but a few join at once, these
one after the other; the figures are medians over them. For simulated ones the same words are said to the store's state
machine alone; sockets are left out. Messages to members are replies and pushes. Heartbeats are not counted, and rare.
"""

from __future__ import annotations

import functools
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from support.client_crowd import Crowd
from support.joining_member import PATIENCE_S, JoiningMember
from support.process_costs import costs_of
from support.simulated_store import Script, SimulatedStore

SERVER = Path(__file__).parent / "counted_store.py"
LAST = 5  # members that join one after the other
QUIET_S = 0.3  # without a message: all that a join causes has happened
RARE_HEARTBEATS = {"MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S": "120"}
T = TypeVar("T")
Tell = Callable[[Any], Any]  # to the process of `counted_store.py`


@dataclass(frozen=True)
class JoinCosts:
    """`own` is what the newcomer sends and gets, `others` what the members get that were there before."""

    own_requests: float
    own_request_bytes: float
    own_messages: float
    own_message_bytes: float
    others_messages: float
    others_message_bytes: float
    server_cpu_us: float

    @classmethod
    def of(cls, counted: dict[str, dict[str, int]], server_cpu_us: float) -> JoinCosts:
        new, old = counted["new"], counted["old"]
        own = new["requests"] + old["requests"], new["request_bytes"] + old["request_bytes"]
        return cls(*own, new["messages"], new["message_bytes"], old["messages"], old["message_bytes"], server_cpu_us)

    @classmethod
    def median(cls, several: list[JoinCosts]) -> JoinCosts:
        return cls(*(statistics.median(getattr(one, field.name) for one in several) for field in fields(cls)))


@dataclass(frozen=True)
class World:
    """One row of the table."""

    size: int
    last: JoinCosts
    start: JoinCosts | None = None  # of all the others together, per member; None: simulated
    start_s: float | None = None  # until the last of these was through
    join_s: float | None = None
    process_kib: float | None = None


def real_world(size: int, url: str, server_pid: int, tell: Tell) -> tuple[World, Script]:
    """Beside what it costs, what the last member said. The store is new."""
    os.environ.update(RARE_HEARTBEATS)
    crowd = Crowd(lambda rank: JoiningMember(url, rank, size), size)
    try:
        first, last = range(size - LAST), range(size - LAST, size)
        began = time.monotonic()
        start, ends = _counted(server_pid, tell, lambda: crowd.ask("join", ranks=first, within_s=PATIENCE_S))
        joins, took_s = [], []
        for rank in last:
            join = functools.partial(crowd.ask, "join", ranks=[rank], within_s=PATIENCE_S)
            called_at = time.monotonic()
            costs, (ended_at,) = _counted(server_pid, tell, join)
            joins.append(costs)
            took_s.append(ended_at - called_at)
        per_member = JoinCosts(*(getattr(start, field.name) / len(first) for field in fields(start)))
        script = Script(tell("script"), last[-1])
        world = World(
            size,
            JoinCosts.median(joins),
            per_member,
            max(ends) - began,
            statistics.median(took_s),
            crowd.private_kib(last[0]),
        )
    finally:
        crowd.end()
    return world, script


def _counted(server_pid: int, tell: Tell, action: Callable[[], T]) -> tuple[JoinCosts, T]:
    """All that the action causes, also what comes later; and what it returned."""
    tell("mark")
    before = costs_of(server_pid)
    result = action()
    seen: Any = None
    until = time.monotonic() + PATIENCE_S
    while seen != (seen := tell("since")):
        if time.monotonic() > until:
            raise SystemExit(f"the store is not quiet after {PATIENCE_S} s")
        time.sleep(QUIET_S)
    return JoinCosts.of(seen, (costs_of(server_pid) - before).cpu_ms * 1e3), result


def simulated_world(size: int, script: Script) -> World:
    store = SimulatedStore(script, size)
    for rank in range(size - LAST):
        store.fill(rank)
    joined = [store.join(rank) for rank in range(size - LAST, size)]
    return World(size, JoinCosts.median([JoinCosts.of(counted, cpu_s * 1e6) for cpu_s, counted in joined]))


def server_command(url: str) -> list[str]:
    return [sys.executable, str(SERVER), url]
