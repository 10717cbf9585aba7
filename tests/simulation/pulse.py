"""The heartbeats of all simulated processes. Those of many beat together: one event for all of them."""

from __future__ import annotations

from memfabric_hybrid.store.client.event_channel import BEATS_PER_TIMEOUT
from simulation.network import Connection
from simulation.world import World

MOST_PHASES = 256


class Pulse:
    """Every channel beats as often as in earnest; its phase follows from its number."""

    def __init__(self, world: World, heartbeat_timeout_s: float, processes: int) -> None:
        self._world = world
        self._interval_s = heartbeat_timeout_s / BEATS_PER_TIMEOUT
        self._phases: list[dict[int, Connection]] = [{} for _ in range(min(processes, MOST_PHASES))]
        for number, channels in enumerate(self._phases):
            world.after(self._interval_s * number / len(self._phases), self._beat, channels)

    def add(self, connection: Connection) -> None:
        self._phases[connection.number % len(self._phases)][connection.number] = connection

    def _beat(self, channels: dict[int, Connection]) -> None:
        over: list[int] = []
        for number, connection in channels.items():
            if connection.is_client_open and not connection.is_silent:
                connection.beat()
            else:
                over.append(number)
        for number in over:
            del channels[number]
        self._world.after(self._interval_s, self._beat, channels)
