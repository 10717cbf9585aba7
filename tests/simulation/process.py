"""A simulated process: its threads, its connections and the links to its neighbours; it may be stopped and killed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from memfabric_hybrid.store import messages as m
from simulation.host import Host
from simulation.network import Connection
from simulation.task import Steps, Task
from simulation.world import FOREVER, World


class Process:
    def __init__(self, world: World, host: Host, instance: int, heartbeat_timeout_s: float) -> None:
        self.world = world
        self.host = host
        self.instance = instance
        self.heartbeat_timeout_s = heartbeat_timeout_s
        self.is_alive = True
        self.is_stopped = False
        self.disturbed_until = 0.0  # FOREVER: now
        self.current: Task | None = None  # the thread that runs
        self._tasks: list[Task] = []
        self.connections: dict[int, Connection] = {}  # to the store, open at our end
        self._backlog: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()  # for when it goes on
        host.processes[instance] = self

    def __repr__(self) -> str:
        return f"process {self.instance}"

    def run(self, action: Callable[..., object], *arguments: Any) -> None:
        """Whatever moves a process comes this way."""
        if self.is_stopped:
            self._backlog.append((action, arguments))
        elif self.is_alive:
            action(*arguments)

    def start(self, steps: Steps[None]) -> Task:
        task = Task(self, steps)
        self._tasks = [one for one in self._tasks if not one.is_over]
        self._tasks.append(task)
        self.world.after(0.0, task.start)
        return task

    def stop(self) -> None:
        if self.is_alive and not self.is_stopped:
            self.world.note(self, "is stopped")
            self.is_stopped = True
            self.disturbed_until = FOREVER

    def go_on(self) -> None:
        if not self.is_stopped:
            return
        self.world.note(self, "goes on")
        self.is_stopped = False
        self.disturbed_until = self.world.now
        self.beat()
        while self._backlog and not self.is_stopped and self.is_alive:
            action, arguments = self._backlog.popleft()
            action(*arguments)

    def on_session(self, refused: tuple[m.Refusal, ...]) -> None:
        """The store is there (again), and would not take these back."""

    def on_session_lost(self) -> None:
        """It is away."""

    def beat(self) -> None:
        """The heartbeat thread sleeps until a certain moment: who was stopped beats at once."""

    def disturb(self) -> None:
        """Something happened to it that is over by now."""
        self.disturbed_until = max(self.disturbed_until, self.world.now)

    def kill(self) -> None:
        """The kernel closes what it had."""
        self._end()
        for connection in list(self.connections.values()):
            connection.close()

    def lose_power(self) -> None:
        """With its whole host: nobody closes anything."""
        self._end()
        for connection in list(self.connections.values()):
            connection.drop()

    def _end(self) -> None:
        if not self.is_alive:
            return
        self.world.note(self, "ends")
        self.is_alive = False
        self.is_stopped = False
        self._backlog.clear()
        for task in self._tasks:
            if task is not self.current:  # which is about to end by itself
                task.end()
        self.host.processes.pop(self.instance, None)
        for name in [name for name, holder in self.host.rank_sockets.items() if holder is self]:
            del self.host.rank_sockets[name]
        self.ended()

    def ended(self) -> None:
        """For what else a process has."""
