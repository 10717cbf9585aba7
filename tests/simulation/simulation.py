"""One simulated world from its beginning to its end: members come, things go wrong, all is well again, all leave.

A failure says which seed and which event, what came before it, and the command that repeats it.
"""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Sequence
from typing import NamedTuple

from simulation.faults import Faults
from simulation.host import Host
from simulation.invariants import Invariants
from simulation.member import Entry, Member
from simulation.network import KEEPALIVE_S
from simulation.plan import Plan
from simulation.pulse import Pulse
from simulation.server import Server
from simulation.work import TeamWork
from simulation.world import Violation, World

LEAVING_S = 6.0  # for everybody to leave
START_S = 0.5  # within this time a process is started in the place of one that has ended
INIT_TIMEOUT_S = 8.0
REPLAY = "MF_SIMULATION_SEED={seed} MF_SIMULATION_PLAN={plan} scripts/test tests/simulation -k replay"


class SimulationFailed(AssertionError):
    """Names the seed, the event and the command that repeats it."""


class Summary(NamedTuple):
    digest: int
    events: int
    simulated_s: float
    faults: int
    starts: int  # of processes
    store_lives: int
    grants: int  # of ranks
    gathers: int  # that were complete, for one of their callers each
    failed_gathers: int


class Slot:
    """A place for a process: when it ends, another one is started, here or on another host."""

    __slots__ = ("host", "team", "wanted_rank")

    def __init__(self, host: Host, team: int, wanted_rank: int | None) -> None:
        self.host = host
        self.team = team
        self.wanted_rank = wanted_rank


class Simulation:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world = world = World(f"{plan.name} {plan.seed}")
        self.members: dict[int, Member] = {}  # the living, by instance
        self.hosts = [Host(world, f"host {number}", plan.delay_s) for number in range(plan.hosts + 1)]
        self.server = Server(world, plan.encodes, plan.turn_s)
        self.invariants = self.server.invariants = Invariants(self.server, self.members)
        self._pulse = Pulse(world, plan.heartbeat_timeout_s, plan.members)
        self._instances = itertools.count(1)
        self._works = [TeamWork(world, team, plan.work_every_s) for team in range(len(plan.teams))]
        teams = [team for team, places in enumerate(plan.teams) for _ in range(places)]
        self._slots = [self._new_slot(number, team) for number, team in enumerate(teams)]
        self._slot_of: dict[Member, Slot] = {}
        self._starts = 0
        self._is_closing = False

    def _new_slot(self, number: int, team: int) -> Slot:
        random, plan = self.world.random, self.plan
        wanted = number if random.random() < plan.wanted_ranks else None
        return Slot(self._any_host(), team, wanted)

    def _any_host(self) -> Host:
        """One of them has more processes than the others."""
        random = self.world.random
        return self.hosts[-1] if random.random() < self.plan.crowding else random.choice(self.hosts)

    def run(self) -> Summary:
        """SimulationFailed at the first thing that must not be."""
        try:
            return self._run()
        except Exception as error:
            plan, world = self.plan, self.world
            command = REPLAY.format(seed=plan.seed, plan=plan.name)
            raise SimulationFailed(
                f"seed {plan.seed} ({plan.name}), event {world.events} at {world.now - 1000:.6f} s: "
                f"{_sentence(error)}\nbefore it:\n{world.trace()}\nto repeat it: {command}"
            ) from error
        finally:
            for member in list(self.members.values()):
                member.kill()

    def _run(self) -> Summary:
        plan, world = self.plan, self.world
        world.after(world.random.uniform(0, 1), self.server.start)
        for slot in self._slots:
            self._start_soon(slot)
        self._audit()
        faults = Faults(self)
        world.run_until(world.now + plan.faults_s)
        faults.end()
        for work in self._works:
            work.end()
        self._settle()
        self._is_closing = True
        for member in list(self.members.values()):
            member.leave_soon()
        world.run_until(world.now + LEAVING_S)
        self.invariants.check_empty()
        ranks, gathers = self.invariants.ranks, self.invariants.gathers
        return Summary(
            world.digest(), world.events, world.now - 1000, faults.injected, self._starts, self.server.incarnation,
            ranks.grants, gathers.completed, gathers.failed,
        )  # fmt: skip

    def _settle(self) -> None:
        """Everybody finds a place and sees who is there, and nothing of the dead stays."""
        world = self.world
        world.run_until(world.now + self.invariants.views.promised_s + INIT_TIMEOUT_S + KEEPALIVE_S)
        self.invariants.check_converged()

    def _audit(self) -> None:
        self.invariants.audit()
        self.world.after(self.plan.audit_every_s, self._audit)

    # --- who starts processes ---------------------------------------------------------------------------------------

    def has_ended(self, member: Member) -> None:
        self.members.pop(member.instance, None)
        slot = self._slot_of.pop(member, None)
        if slot is not None:
            if member.rank < 0:
                slot.wanted_rank = None  # somebody else has it, and may keep it
            if self.world.random.random() < 0.3:
                slot.host = self._any_host()
            self._start_soon(slot)

    def _start_soon(self, slot: Slot) -> None:
        self.world.after(self.world.random.uniform(0, START_S), self._fill, slot)

    def _fill(self, slot: Slot) -> None:
        if slot.host.is_lost:
            slot.host = self._any_host()
        if slot.host.is_lost:
            self._start_soon(slot)
        elif not self._is_closing:
            self._slot_of[self._start(slot.host, slot.team, slot.wanted_rank)] = slot

    def newcomer(self) -> Member | None:
        """One more process than the plan has, which competes with the others."""
        random, host = self.world.random, self._any_host()
        wanted = random.choice((None, random.randrange(self.plan.capacity)))
        return None if host.is_lost else self._start(host, random.randrange(len(self.plan.teams)), wanted)

    def _start(self, host: Host, team: int, wanted_rank: int | None) -> Member:
        self._starts += 1
        plan = self.plan
        places = plan.teams[team]
        entry = Entry(plan.capacity, wanted_rank, team, places, places <= plan.follow_all, INIT_TIMEOUT_S)
        member = Member(
            self.world, host, next(self._instances), plan.heartbeat_timeout_s, entry,
            self.server, self._pulse, self.invariants, self.has_ended,
        )  # fmt: skip
        self.members[member.instance] = member
        self._works[team].add(member)
        return member


def _sentence(error: Exception) -> str:
    """What must not be; of a bare assertion, or of whatever else the machines raise, the line that says it."""
    if isinstance(error, Violation):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} in {last.filename.rpartition('/')[2]}:{last.lineno}: {last.line}"


def run(plan: Plan) -> Summary:
    return Simulation(plan).run()


def total(summaries: Sequence[Summary]) -> str:
    """Of many, in one line."""
    names = Summary._fields[1:]
    sums = {name: sum(getattr(summary, name) for summary in summaries) for name in names}
    return f"{len(summaries)} worlds: " + ", ".join(f"{sums[name]:.0f} {name}" for name in names)
