"""Runs a program of the documents or an example as a user would, in one of the ways in which users run programs."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from docs.pages import Program

DOCUMENTED_URL = "tcp://127.0.0.1:9000"
DEADLINE_S = 600 if os.environ.get("MF_ALL_WAYS") else 110  # many at a time
PEERS = {"docs/big_memory.md": 2}  # so many other ranks are in the cluster of that page's program
PEER = """
import sys
import memfabric_hybrid as mf
from memfabric_hybrid import bm
config = bm.BmConfig()
config.auto_ranking, config.rank_id, config.start_store = False, int(sys.argv[2]), False
mf.check(bm.initialize(sys.argv[1], 4, 0, config))
pool = bm.create2(0, 32 << 20, 64 << 20, 2 << 20, 2 << 20)
mf.check(pool.join())
sys.stdin.read()
pool.destroy()
bm.uninitialize()
"""


class Way(NamedTuple):
    """Options of the interpreter; how processes are started, None: as the program says."""

    options: tuple[str, ...] = ()
    start_method: str | None = None

    @property
    def name(self) -> str:
        return " ".join([*self.options, self.start_method or ""])

    def command(self) -> list[str]:
        return [sys.executable, *self.options]

    def environment(self) -> dict[str, str]:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        if self.start_method:
            environment["MF_START_METHOD"] = self.start_method
            environment["PYTHONPATH"] = str(Path(__file__).with_name("start_method"))
        return environment


AS_IT_IS = Way()
OPTIMISED, STRICT = ("-O",), ("-X", "dev", "-W", "error")
METHODS = ("spawn", "fork", "forkserver")
ALL = [Way(options, method) for options, method in itertools.product((OPTIMISED, STRICT), METHODS)]
TOGETHER = [Way((*OPTIMISED, *STRICT), method) for method in METHODS]  # says less about what fails, in half the time


def run(way: Way, *command: str, launcher: tuple[str, ...] = (), **variables: str) -> str:
    """What the program wrote; a failure shows all of it."""
    finished = subprocess.run(
        [*launcher, *way.command(), *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
        env=way.environment() | variables,
    )
    assert finished.returncode == 0, f"{command} exited with {finished.returncode}:\n{finished.stdout}"
    for word in ("Traceback", "Error in sitecustomize"):
        assert word not in finished.stdout, finished.stdout
    return finished.stdout


@contextmanager
def peers(count: int, url: str) -> Iterator[None]:
    """Ranks 1 to `count`; they wait for the store, which the page's program starts as rank 0."""
    quiet = {**os.environ, "MF_LOG_LEVEL": "3"}  # the program of the page ends before its peers, and they say so
    with ExitStack() as stack:
        processes = []
        for rank in range(1, count + 1):
            command = [sys.executable, "-c", PEER, url, str(rank)]
            processes.append(stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, env=quiet)))
        try:
            yield
        finally:
            for process in processes:
                process.kill()


def run_program(program: Program, url: str, folder: Path, way: Way = AS_IT_IS) -> str:
    file = folder / "program.py"
    file.write_text(program.text.replace(DOCUMENTED_URL, url), encoding="utf-8")
    with peers(PEERS.get(program.page, 0), url):
        return run(way, str(file))
