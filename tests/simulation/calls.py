"""What a thread of a simulated process does beside its program, one call after the other; as `call_queue.py`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from simulation.process import Process
from simulation.task import Steps, Task


class Calls:
    def __init__(self, process: Process) -> None:
        self._process = process
        self._calls: deque[Callable[[], Steps[None]]] = deque()
        self._thread: Task | None = None

    def post(self, call: Callable[[], Steps[None]]) -> None:
        self._calls.append(call)
        if self._thread is None or self._thread.is_over:
            self._thread = self._process.start(self._run())

    def _run(self) -> Steps[None]:
        while self._calls:
            yield from self._calls.popleft()()
