"""One of join, leave and re-announce at a time: turns of the threads of a simulated process."""

from __future__ import annotations

from memfabric_hybrid.errors import Code
from simulation.failed import Failed
from simulation.process import Process
from simulation.task import Signal, Steps


class Turns:
    def __init__(self, process: Process) -> None:
        self._process = process
        self._is_taken = False
        self._is_over = Signal()

    def take(self, until: float) -> Steps[None]:
        """Failed when it is too late."""
        while self._is_taken:
            if self._process.world.now >= until:
                raise Failed(Code.TIMEOUT, "another thread is inside join or leave")
            yield from self._is_over.wait(self._process.current, until)
        self._is_taken = True

    def end(self) -> None:
        self._is_taken = False
        self._is_over.notify()
