"""One real Python process under a test's control: its pipe, its output, its life and its death.

`Worker` is used by one thread. The process is killed by the kernel when that thread ends (PR_SET_PDEATHSIG), so start
workers from a thread that lives at least as long as they should.
"""

from __future__ import annotations

import functools
import os
import signal
import tempfile
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import IO, Any

from support import processes
from support.fork_server import ForkServer, Request
from support.places import BESIDE_THE_TEST, Place

TESTS = Path(__file__).resolve().parent.parent
OUTPUT_SHOWN_BYTES = 16_384
STACKS_TIMEOUT_S = 2.0
HARMLESS_SIGNALS = (signal.SIGSTOP, signal.SIGCONT, signal.SIGUSR1)


class WorkerError(AssertionError):
    """A call failed in the worker, the worker died, or it did not answer; the text has everything that is known."""


class Worker:
    """`index` is its number in the cluster; it stays the same when the worker is started again after its death."""

    def __init__(
        self,
        index: int,
        target: str,
        script: str | None,
        environment: Mapping[str, str],
        place: Place = BESIDE_THE_TEST,
    ) -> None:
        self.index = index
        self._next_call = 1
        self._answers: dict[int, tuple[bool, Any, str]] = {}
        self._expected_death = False
        # Files without a name: the process may die at any moment and nothing stays behind.
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `close`)
        self.pipe: Connection
        self.pipe, remote = Pipe()
        with remote, tempfile.TemporaryFile() as script_file:
            fds = [self._output.fileno(), remote.fileno()]
            if script is not None:
                script_file.write(script.encode())
                script_file.seek(0)
                fds.append(script_file.fileno())
            whole = {**os.environ, **environment, "PYTHONPATH": _python_path(), "PYTHONUNBUFFERED": "1"}
            request = Request(os.getpid(), index, target, whole, os.getcwd(), place)
            try:
                self._process = fork_server().start(request, fds)
            except BaseException:
                self.pipe.close()
                self._output.close()
                raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """False as soon as it is dead, even if nobody has waited for it yet."""
        return self._process.returncode is None and processes.state(self.pid) not in ("", "Z", "X")

    def send(self, function: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """The number of the call, for `take_answer`."""
        number = self._next_call
        self._next_call += 1
        try:
            self.pipe.send((number, function, args, kwargs))
        except OSError:
            raise WorkerError(self.report(f"cannot take the call of {function}: it {self.wait_for_death()}")) from None
        return number

    def receive(self) -> bool:
        """Takes one message that is there; False if the worker is gone."""
        try:
            number, worked, value, trace = self.pipe.recv()
        except (EOFError, OSError):
            return False
        self._answers[number] = (worked, value, trace)
        return True

    def listen(self, number: int) -> bool:
        """Whether there is an answer to the call, or will never be one; does not wait."""
        while number not in self._answers:
            if not self.pipe.poll():
                return False
            if not self.receive():
                return True
        return True

    def take_answer(self, number: int) -> tuple[bool, Any, str] | None:
        """(worked, value or reason, remote traceback), once; None while it has not come."""
        return self._answers.pop(number, None)

    def send_signal(self, number: signal.Signals) -> None:
        """SIGKILL returns when the process is dead and forgotten, SIGSTOP when it stands still; others at once."""
        if number not in HARMLESS_SIGNALS:
            self._expected_death = True
        if self.alive:
            os.kill(self.pid, number)
        if number is signal.SIGSTOP and self.alive:  # all its threads; an end counts, too
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if number is signal.SIGKILL:
            self.wait_for_death()

    def wait_for_death(self, timeout_s: float = 5.0) -> str:
        """Waits for the end, kills what the process started, reaps it; says how it ended."""
        if self._process.returncode is None:
            if not processes.wait_until_dead(self.pid, timeout_s):
                return f"still runs {timeout_s:.1f} s after it should have ended"
            processes.kill_group(self.pid)
            self._process.wait()
        return processes.describe_exit(self._process.returncode)

    def output(self) -> str:
        """The end of what it wrote to standard output and standard error; "" once it has ended and was forgotten."""
        if self._output.closed:
            return ""
        size = os.fstat(self._output.fileno()).st_size
        shown = os.pread(self._output.fileno(), OUTPUT_SHOWN_BYTES, max(0, size - OUTPUT_SHOWN_BYTES))
        return shown.decode(errors="replace")

    def dump_stacks(self) -> None:
        """Makes a living worker write the stacks of all its threads to its output, and waits until they are there."""
        if not self.alive or processes.state(self.pid) == "T":
            return
        before = os.fstat(self._output.fileno()).st_size
        os.kill(self.pid, signal.SIGUSR1)
        deadline = time.monotonic() + STACKS_TIMEOUT_S
        size = before
        while time.monotonic() < deadline:
            time.sleep(0.02)
            grown = os.fstat(self._output.fileno()).st_size
            if grown == size > before:
                return
            size = grown

    def report(self, what: str) -> str:
        """A sentence about this worker with all it wrote."""
        output = self.output().rstrip()
        state = " (stopped)" if processes.state(self.pid) == "T" else ""
        lines = (
            f"\n--- output of worker {self.index}:\n{output}" if output else f"\n--- worker {self.index} wrote nothing"
        )
        return f"worker {self.index} (pid {self.pid}){state} {what}{lines}"

    def hang_up(self) -> None:
        """Asks it to end in an orderly way: no more calls will come."""
        self.pipe.close()

    def finish(self, timeout_s: float) -> str | None:
        """Waits for the orderly end after `hang_up`; a report if it was not one. Nothing is left in any case."""
        complaint: str | None = None
        how = self.wait_for_death(timeout_s)
        if self._process.returncode is None:
            self.dump_stacks()
            complaint = self.report(f"{how}: it was killed")
            processes.kill_group(self.pid)
            self._process.wait()
        elif self._process.returncode != 0 and not self._expected_death:
            complaint = self.report(how)
        self._expected_death = True  # it is told once
        self._output.close()
        return complaint

    def __repr__(self) -> str:
        return f"<Worker {self.index}, pid {self.pid}, {'alive' if self.alive else 'dead'}>"


@functools.cache
def _fork_server(pid: int) -> ForkServer:
    return ForkServer({"PYTHONPATH": _python_path(), "PYTHONUNBUFFERED": "1"})


def fork_server() -> ForkServer:
    """That of this process: a forked one needs another."""
    return _fork_server(os.getpid())


def _python_path() -> str:
    return os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
