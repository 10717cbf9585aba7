"""What goes wrong in a simulated world, drawn from its random choices: deaths, stops, cuts, resets, loss of power,
restarts and stalls of the store. Some last a moment, some about a heartbeat time-out, some much longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from simulation.host import Host
from simulation.member import Member

if TYPE_CHECKING:
    from simulation.simulation import Simulation

Kinds = dict[Callable[[], None], int]  # how often each, beside the others
SLOW_S = 0.4  # a packet of a slow host: so slow that nobody promises anything


class Faults:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._world = simulation.world
        plan = simulation.plan
        self._is_over = False
        self.injected = 0
        of_members = {
            self._kill: 14,
            self._stop: 14,
            self._reset: 12,
            self._cut: 10,
            self._leave: 8,
            self._newcomer: 8,
            self._freeze: 4,
            self._slow: 4,
            self._lose_power: 3,
        }
        self._later(of_members, plan.fault_every_s)
        self._later({self._restart_store: 1, self._stall_store: 1}, plan.store_fault_every_s)

    def end(self) -> None:
        """No more; and everything that is still wrong is right again."""
        self._is_over = True
        simulation = self._simulation
        if simulation.server.state is None:
            simulation.server.start()
        simulation.server.go_on()
        for host in simulation.hosts:
            host.is_lost = False
            if host.is_cut or host.delay_s != host.usual_delay_s:
                host.heal()
        for member in list(simulation.members.values()):
            member.go_on()

    def _later(self, kinds: Kinds, every_s: float) -> None:
        self._world.after(self._world.random.uniform(0, 2 * every_s), self._inject, kinds, every_s)

    def _inject(self, kinds: Kinds, every_s: float) -> None:
        if not self._is_over:
            self.injected += 1
            (kind,) = self._world.random.choices(list(kinds), list(kinds.values()))
            kind()
            self._later(kinds, every_s)

    def _lasts_s(self) -> float:
        random, timeout_s = self._world.random, self._simulation.plan.heartbeat_timeout_s
        return random.choice(
            (random.uniform(0.01, 0.3), random.uniform(0.1, 1.0) * timeout_s, random.uniform(0.8, 1.2) * timeout_s,
             random.uniform(1.5, 3.0) * timeout_s)
        )  # fmt: skip

    def _anybody(self) -> Member | None:
        members = self._simulation.members
        return self._world.random.choice(list(members.values())) if members else None

    def _any_far_host(self) -> Host:
        """Not the store's own: processes there reach it whatever happens to the network."""
        return self._world.random.choice(self._simulation.hosts[1:])

    # --- processes --------------------------------------------------------------------------------------------------

    def _kill(self) -> None:
        if (member := self._anybody()) is not None:
            member.kill()

    def _leave(self) -> None:
        if (member := self._anybody()) is not None:
            member.leave_soon()

    def _stop(self) -> None:
        member = self._anybody()
        if member is not None and not member.is_stopped:
            member.stop()
            self._world.after(self._lasts_s(), member.go_on)

    def _reset(self) -> None:
        """Something on the way ends connections; the store hears of it later than the member, or at once."""
        member, random = self._anybody(), self._world.random
        if member is not None:
            member.disturb()
            self._world.note("connections of", member, "are reset")
            for connection in list(member.connections.values()):
                if random.random() < 0.7:
                    connection.reset(random.choice((0.0, random.uniform(0, 0.1), self._lasts_s())))

    def _newcomer(self) -> None:
        """Somebody who has no place in the plan, and leaves soon."""
        newcomer = self._simulation.newcomer()
        if newcomer is not None:
            self._world.after(self._lasts_s(), newcomer.leave_soon)

    # --- hosts ------------------------------------------------------------------------------------------------------

    def _cut(self) -> None:
        host, random = self._any_far_host(), self._world.random
        if host.is_cut or host.is_lost:
            return
        up, down = random.choice(((True, True), (True, True), (True, False), (False, True)))
        self._world.note(host.name, "is cut off:", "up" if up else "", "down" if down else "")
        host.cut(up, down)
        self._world.after(self._lasts_s(), self._heal, host)

    def _slow(self) -> None:
        host = self._any_far_host()
        if not host.is_cut and not host.is_lost:
            host.slow(SLOW_S)
            self._world.note(host.name, "is slow")
            self._world.after(self._lasts_s(), self._heal, host)

    def _heal(self, host: Host) -> None:
        if not host.is_lost:
            self._world.note(host.name, "is whole again")
            host.heal()

    def _freeze(self) -> None:
        """The whole machine, its network included."""
        host = self._any_far_host()
        if host.is_cut or host.is_lost:
            return
        lasts_s = self._lasts_s()
        host.cut(True, True)
        self._world.after(lasts_s, self._heal, host)
        for process in list(host.processes.values()):
            process.stop()
            self._world.after(lasts_s, process.go_on)

    def _lose_power(self) -> None:
        host = self._any_far_host()
        if host.is_lost:
            return
        self._world.note(host.name, "loses power")
        host.is_lost = True
        host.cut(True, True)
        for process in list(host.processes.values()):
            process.lose_power()
        self._world.after(self._lasts_s(), self._power, host)

    def _power(self, host: Host) -> None:
        host.is_lost = False
        self._heal(host)

    # --- the store --------------------------------------------------------------------------------------------------

    def _restart_store(self) -> None:
        server, random = self._simulation.server, self._world.random
        if server.state is not None:
            server.kill()
            away_s = random.choice((0.0, random.uniform(0, 0.5), self._lasts_s()))
            self._world.after(away_s, self._start_store)

    def _start_store(self) -> None:
        if self._simulation.server.state is None:
            self._simulation.server.start()

    def _stall_store(self) -> None:
        server = self._simulation.server
        if server.is_serving:
            server.stall()
            self._world.after(self._lasts_s(), server.go_on)
