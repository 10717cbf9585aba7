"""Everybody who moves bytes between the two hosts: a target process on one, an initiator on the other.

A target prints "ready" and what the initiator has to know. An initiator prints "ready"; then a line "shape operations"
makes it write that shape so many times, and it answers "samples" with the microseconds of each. Some know flows as
well: "flow size streams window operations" is answered by "flowed" and the seconds for all of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from support import certificates, peers
from support.two_hosts import INITIATOR, TARGET, TwoHosts

SCRIPTS = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Program:
    """`target` gets its address, `initiator` its own address and what the target said."""

    name: str
    target: Sequence[str]
    initiator: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    polls: bool = False  # it burns cores all the time, which the others need when it is their turn


class Driver:
    """A running pair. `run` takes one sample."""

    def __init__(self, program: Program, target: subprocess.Popen[str], initiator: subprocess.Popen[str]) -> None:
        self.name = program.name
        self._polls = program.polls
        self._target = target
        self._initiator = initiator
        self._signal(signal.SIGSTOP)

    def run(self, shape: int, operations: int) -> list[float]:
        return [float(us) for us in json.loads(" ".join(self._ask(f"{shape} {operations}", "samples")))]

    def flow(self, size: int, streams: int, window: int, operations: int) -> float:
        """Bytes per second."""
        (seconds,) = self._ask(f"flow {size} {streams} {window} {operations}", "flowed")
        return size * operations / float(seconds)

    def _ask(self, line: str, answer: str) -> list[str]:
        assert self._initiator.stdin is not None
        self._signal(signal.SIGCONT)
        print(line, file=self._initiator.stdin, flush=True)
        words = _answer(self._initiator, self.name, answer)
        self._signal(signal.SIGSTOP)
        return words

    def _signal(self, number: signal.Signals) -> None:
        if self._polls:
            self._target.send_signal(number)
            self._initiator.send_signal(number)


@contextlib.contextmanager
def started(program: Program, hosts: TwoHosts) -> Iterator[Driver]:
    with _process(hosts.on(TARGET, *program.target, TARGET), program) as target:
        told = _answer(target, program.name, "ready")
        with _process(hosts.on(INITIATOR, *program.initiator, INITIATOR, *told), program) as initiator:
            _answer(initiator, program.name, "ready")
            yield Driver(program, target, initiator)


@contextlib.contextmanager
def _process(command: list[str], program: Program) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SCRIPTS.parent), **program.environment},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _answer(process: subprocess.Popen[str], name: str, word: str) -> list[str]:
    """The rest of the next line that starts with the word; libraries write lines of their own as well."""
    output: IO[str] | None = process.stdout
    assert output is not None
    for line in output:
        if line.startswith(word):
            return line.split()[1:]
    raise SystemExit(f"{name}: its process ended")


def ours(route: str = "tcp") -> Program:
    script = str(SCRIPTS / "network_ours.py")
    return Program("ours", (sys.executable, script, "target", route), (sys.executable, script, "initiator", route))


def ours_by_ucx(environment: Mapping[str, str]) -> Program:
    """The route that RDMA devices have, over whatever the environment tells UCX to take."""
    return dataclasses.replace(ours("ucx"), name="ours by UCX", environment=environment)


def ours_with_tls(folder: Path) -> Program:
    """With certificates that are made in the folder."""
    environment = {"MF_CONFIG_STORE_TLS_INFO": certificates.info(folder)}
    return dataclasses.replace(ours(), name="ours, TLS", environment=environment)


def native(name: str, binary: Path, layouts: Path) -> Program:
    """A program of benchmarks/native."""
    return Program(name, (str(binary), "target"), (str(binary), "initiator", str(layouts)))


def peer(name: str, package: str, environment: Mapping[str, str]) -> Program | None:
    """One that scripts/peers installs; None, and a word, if it is not there."""
    if not peers.has_package(package):
        print(f"{name} is not measured, there is no {package}: {peers.REMEDY}")
        return None
    script = str(SCRIPTS / f"network_{package}.py")
    python = str(peers.PYTHON)
    return Program(name, (python, script, "target"), (python, script, "initiator"), environment, polls=True)
