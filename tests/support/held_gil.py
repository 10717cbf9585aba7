"""A worker whose Python does not run: a C function holds the interpreter, for as long as the test's block lasts."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.threads import wait_until
from support.workers import Cluster


@contextmanager
def held_gil(cluster: Cluster, index: int) -> Iterator[None]:
    """The worker needs `hold_gil`. While the block runs it answers nothing."""
    with tempfile.TemporaryDirectory() as folder:
        sign, gate = Path(folder, "held"), Path(folder, "gate")
        os.mkfifo(gate)
        holding = cluster.begin(index, "hold_gil", str(sign), str(gate))
        try:
            wait_until(sign.exists)
            yield
        finally:
            opened = os.open(gate, os.O_RDONLY | os.O_NONBLOCK)
            try:
                holding.result()
            finally:
                os.close(opened)


def hold_gil(sign: str, gate: str) -> None:
    """In the worker: makes the folder `sign`, then stands before the pipe `gate` until somebody opens it."""
    without_others = ctypes.PyDLL(None)
    assert without_others.mkdir(sign.encode(), 0o700) == 0
    os.close(without_others.open(gate.encode(), os.O_WRONLY))
