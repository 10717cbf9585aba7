"""A simulated host: the names of its processes' sockets, and its way to the store, which can be cut and slowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.world import FOREVER, World

if TYPE_CHECKING:
    from simulation.network import Connection
    from simulation.process import Process

RETRANSMIT_S = 1.0  # the longest time until TCP has repeated what was lost, once the way is whole again


class Host:
    """`name` is what its processes call their host. `delay_s`: usual time of a packet to the store."""

    def __init__(self, world: World, name: str, delay_s: float) -> None:
        self.world = world
        self.name = name
        self.usual_delay_s = self.delay_s = delay_s
        self.is_up_cut = self.is_down_cut = False  # towards the store, and from there
        self.is_lost = False  # without power: nothing runs here
        self.disturbed_until = 0.0  # FOREVER: now
        self.processes: dict[int, Process] = {}  # the living, by instance
        self.rank_sockets: dict[tuple[str, int], Process] = {}  # group and rank: the kernel gives a name to one process
        self.connections: dict[int, Connection] = {}  # those with something left to be done

    @property
    def is_cut(self) -> bool:
        return self.is_up_cut or self.is_down_cut

    def cut(self, up: bool, down: bool) -> None:
        self.is_up_cut, self.is_down_cut = self.is_up_cut or up, self.is_down_cut or down
        self.disturbed_until = FOREVER

    def heal(self) -> None:
        """Whole and fast again. What was lost meanwhile is repeated soon."""
        self.is_up_cut = self.is_down_cut = False
        self.delay_s = self.usual_delay_s
        self.disturbed_until = self.world.now + RETRANSMIT_S
        for connection in list(self.connections.values()):
            connection.whole_again(self.world.random.uniform(0, RETRANSMIT_S))

    def slow(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.disturbed_until = FOREVER

    def bind(self, group: str, rank: int, process: Process) -> bool:
        """False: a living process of this host has that name."""
        return self.rank_sockets.setdefault((group, rank), process) is process

    def free(self, group: str, rank: int, process: Process) -> None:
        if self.rank_sockets.get((group, rank)) is process:
            del self.rank_sockets[group, rank]
