"""Several real processes under a test's control.

    with Cluster(4, target="support.pool_worker") as cluster:
        cluster.call_all("join", store_url)         # on all at the same time: a list, in order of index
        cluster.call(2, "copy", 4096)               # on one
        pending = cluster.begin(1, "copy_for", 3.0) # go on here while it works
        cluster.kill(2)
        cluster.start(2)

    with Cluster(6, target="support.pool_worker", places=network.places(2)) as cluster: ...  # see `support.hosts`

Functions are those of the target module (or of `script`, a module's text); state lives in its globals. A worker finds
its number in the environment variable MF_WORKER_INDEX. Arguments and results are pickled. Every answer has a deadline.
What fails, dies or hangs raises `WorkerError` with the remote traceback, the output, and the stacks of who is late.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from multiprocessing import connection
from types import TracebackType
from typing import Any

from support.places import BESIDE_THE_TEST, Place
from support.worker import Worker, WorkerError

__all__ = ["Cluster", "Pending", "WorkerError"]

CALL_TIMEOUT_S = 30.0
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
# When one of several calls has failed, the others may be waiting for it: they get this long, not their whole time.
GRACE_S = 2.0


class Pending:
    """A call that was sent; `result` waits for its answer."""

    def __init__(self, worker: Worker, function: str, number: int) -> None:
        self.worker = worker
        self.function = function
        self.number = number

    def result(self, timeout_s: float = CALL_TIMEOUT_S) -> Any:
        return _collect([self], timeout_s)[0]

    def ready(self) -> bool:
        """Whether `result` returns or raises at once."""
        return self.worker.listen(self.number)

    def __repr__(self) -> str:
        return f"<Pending {self.function} of {self.worker!r}>"


class Cluster:
    """Owns its workers: all are gone, with everything they started, when the `with` block ends."""

    def __init__(
        self,
        count: int,
        target: str = "worker_script",
        *,
        script: str | None = None,
        environment: Mapping[str, str] | None = None,
        places: Sequence[Place] | None = None,
    ) -> None:
        self.count = count
        self.places = list(places or [BESIDE_THE_TEST] * count)  # by index; counts at the next start of that worker
        if len(self.places) != count:
            raise ValueError(f"{count} workers have {len(self.places)} places: name one for each")
        self._target = target
        self._script = script
        self._environment = dict(environment or {})
        self._workers: dict[int, Worker] = {}

    def __enter__(self) -> Cluster:
        try:
            for index in range(self.count):
                self._launch(index)
            _collect([Pending(worker, "import of its target", 0) for worker in self._workers.values()], START_TIMEOUT_S)
        except BaseException:
            self._stop(grace_s=0.0)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        complaints = self._stop(STOP_TIMEOUT_S if error is None else GRACE_S)
        if complaints and error is None:
            raise WorkerError("\n".join(complaints))

    def begin(self, index: int, function: str, *args: Any, **kwargs: Any) -> Pending:
        """Sends a call and does not wait. A worker does its calls one after the other."""
        worker = self._workers[index]
        return Pending(worker, function, worker.send(function, args, kwargs))

    def call(self, index: int, function: str, *args: Any, timeout_s: float = CALL_TIMEOUT_S, **kwargs: Any) -> Any:
        """What `function(*args, **kwargs)` returns in worker `index`."""
        return self.begin(index, function, *args, **kwargs).result(timeout_s)

    def call_all(
        self,
        function: str,
        *args: Any,
        indices: Iterable[int] | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
        **kwargs: Any,
    ) -> list[Any]:
        """The same call in all workers (or in those of `indices`) at the same time; their results in that order."""
        chosen = range(self.count) if indices is None else indices
        return _collect([self.begin(index, function, *args, **kwargs) for index in chosen], timeout_s)

    def kill(self, index: int, number: signal.Signals = signal.SIGKILL) -> None:
        """A signal to one worker. After SIGKILL it is dead (`start` brings it back), after SIGSTOP it stands still."""
        self._workers[index].send_signal(number)

    def start(self, index: int) -> None:
        """A new process in the place of a dead one; returns when it takes calls."""
        self.begin_start(index).result(START_TIMEOUT_S)

    def begin_start(self, index: int) -> Pending:
        """`start` without waiting. Calls may be sent at once: they are done when the process is ready."""
        worker = self._workers[index]
        if worker.alive:
            raise WorkerError(worker.report("is started again although it is alive"))
        worker.hang_up()
        complaint = worker.finish(timeout_s=STOP_TIMEOUT_S)
        if complaint:
            raise WorkerError(complaint)
        return Pending(self._launch(index), "import of its target", 0)

    def dismiss(self, index: int, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """An orderly end of one worker: no more calls will come. `start` brings it back."""
        worker = self._workers[index]
        worker.hang_up()
        complaint = worker.finish(timeout_s)
        if complaint:
            raise WorkerError(complaint)

    def report(self, index: int, what: str) -> str:
        """A sentence about a worker with its stacks and all it wrote."""
        worker = self._workers[index]
        worker.dump_stacks()
        return worker.report(what)

    def alive(self, index: int) -> bool:
        return self._workers[index].alive

    def pid(self, index: int) -> int:
        return self._workers[index].pid

    def output(self, index: int) -> str:
        """The end of what the worker wrote so far."""
        return self._workers[index].output()

    def _launch(self, index: int) -> Worker:
        environment = {**self._environment, "MF_WORKER_INDEX": str(index), "MF_WORKER_COUNT": str(self.count)}
        worker = Worker(index, self._target, self._script, environment, self.places[index])
        self._workers[index] = worker
        return worker

    def _stop(self, grace_s: float) -> list[str]:
        deadline = time.monotonic() + grace_s
        for worker in self._workers.values():
            if worker.alive:
                worker.send_signal(signal.SIGCONT)
            worker.hang_up()
        reports = [worker.finish(max(0.0, deadline - time.monotonic())) for worker in self._workers.values()]
        self._workers.clear()
        return [report for report in reports if report]


def _collect(pending: list[Pending], timeout_s: float) -> list[Any]:
    """Answers in the order of the calls; raises one WorkerError about all that failed, died or did not answer."""
    deadline = time.monotonic() + timeout_s
    results: dict[Pending, Any] = {}
    failures: list[str] = []
    waiting = list(pending)
    while waiting:
        still_waiting = []
        for call in waiting:
            answer = call.worker.take_answer(call.number)
            if answer is None:
                still_waiting.append(call)
            elif answer[0]:
                results[call] = answer[1]
            else:
                failures.append(call.worker.report(f"failed in {call.function}: {answer[1]}\n{answer[2].rstrip()}"))
        waiting = still_waiting
        if failures:
            deadline = min(deadline, time.monotonic() + GRACE_S)
        if not waiting:
            break
        ready = connection.wait({call.worker.pipe for call in waiting}, max(0.0, deadline - time.monotonic()))
        if not ready:
            when = (
                f"within {timeout_s:g} s" if not failures else f"within {GRACE_S:g} s after another worker had failed"
            )
            failures += [_did_not_answer(call, when) for call in waiting]
            break
        for worker in {call.worker for call in waiting if call.worker.pipe in ready}:
            if not worker.receive():
                function = next(call.function for call in waiting if call.worker is worker)
                failures.append(worker.report(f"died during {function}: it {worker.wait_for_death()}"))
                waiting = [call for call in waiting if call.worker is not worker]
    if failures:
        raise WorkerError("\n\n".join(failures))
    return [results[call] for call in pending]


def _did_not_answer(call: Pending, when: str) -> str:
    call.worker.dump_stacks()
    return call.worker.report(f"did not answer {call.function} {when}; its stacks are in its output")
