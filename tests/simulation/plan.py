"""How large a simulated world is, how long it lasts, and how much goes wrong: all of it from a seed."""

from __future__ import annotations

import random
from typing import NamedTuple


class Plan(NamedTuple):
    """`name` and `seed` are enough to make it again."""

    name: str
    seed: int
    hosts: int  # besides that of the store
    teams: tuple[int, ...]  # so many members of each
    follow_all: int  # members of larger teams follow their own host and those that they seek
    spare_ranks: int  # beyond those that all teams need together
    heartbeat_timeout_s: float
    delay_s: float  # usual time of a packet between hosts
    faults_s: float  # how long things go wrong
    fault_every_s: float  # of members and hosts
    store_fault_every_s: float
    work_every_s: float  # of each team
    audit_every_s: float
    crowding: float  # the share of processes that are on one of the hosts, beside its fair part
    wanted_ranks: float  # the share of members that want a certain rank
    turn_s: float  # of the store's event loop: what comes in together goes out together
    encodes: bool  # messages go as bytes

    @property
    def members(self) -> int:
        return sum(self.teams)

    @property
    def capacity(self) -> int:
        return self.members + self.spare_ranks


def small(seed: int) -> Plan:
    """Few members, minutes, and hardly a moment without a fault."""
    chosen = random.Random(f"plan {seed}")
    return Plan(
        name="small",
        seed=seed,
        hosts=chosen.randint(1, 4),
        teams=tuple(chosen.randint(2, 6) for _ in range(chosen.randint(1, 3))) if chosen.random() < 0.95 else (20, 4),
        follow_all=chosen.choice((1, 3, 100)),
        spare_ranks=chosen.choice((0, 0, 1, 3)),
        heartbeat_timeout_s=chosen.choice((0.5, 1.0, 3.0, 3.0, 8.0)),
        delay_s=chosen.choice((0.0001, 0.001, 0.02)),
        faults_s=chosen.uniform(12, 36),
        fault_every_s=chosen.choice((0.5, 1.0, 2.0, 4.0)),
        store_fault_every_s=chosen.choice((3.0, 8.0, 20.0)),
        work_every_s=chosen.choice((0.3, 1.0, 3.0)),
        audit_every_s=1.0,
        crowding=chosen.choice((0.0, 0.3, 0.8)),
        wanted_ranks=chosen.choice((0.0, 0.5, 1.0)),
        turn_s=chosen.choice((0.0002, 0.005, 0.1)),
        encodes=chosen.random() < 0.05,
    )


def large(seed: int, members: int, seconds: float) -> Plan:
    """Many members, half of them in one object, with faults as often as among few: each concerns a few, or all."""
    crowd, others = members // 2, 16
    return Plan(
        name=f"large:{members}:{seconds:g}",
        seed=seed,
        hosts=max(2, members // 32),
        teams=(crowd, *[others] * ((members - crowd) // others)),
        follow_all=128,
        spare_ranks=16,
        heartbeat_timeout_s=3.0,
        delay_s=0.0005,
        faults_s=seconds,
        fault_every_s=1.0,
        store_fault_every_s=max(30.0, seconds / 12),
        work_every_s=60.0,
        audit_every_s=max(5.0, seconds / 120),
        crowding=0.0,
        wanted_ranks=0.95,
        turn_s=0.005,
        encodes=False,
    )


def named(name: str, seed: int) -> Plan:
    """As a failure names it."""
    kind, *sizes = name.split(":")
    return small(seed) if kind == "small" else large(seed, int(sizes[0]), float(sizes[1]))
