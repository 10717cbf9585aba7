"""Mooncake's transfer engine over TCP on one host, its only route here, in the shapes that ours is measured in.

Two processes of our own making: a target that registers memory, and an initiator that obeys one line per sample; both
run apart from the benchmark's process, so that neither library sees the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from typing import IO

from support.peers import PYTHON, REMEDY, has_package
from support.shapes import REGION_BYTES, Shape

TARGET = """
import sys
import numpy as np
from mooncake.engine import TransferEngine
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
memory = np.full(int(sys.argv[1]), 1, np.uint8)
assert engine.register_memory(memory.ctypes.data, memory.size) == 0
print("ready", engine.get_rpc_port(), memory.ctypes.data, flush=True)
sys.stdin.read()
"""
INITIATOR = """
import json, sys, time
import numpy as np
from mooncake.engine import TransferEngine
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
memory = np.full(int(sys.argv[1]), 2, np.uint8)
assert engine.register_memory(memory.ctypes.data, memory.size) == 0
peer, base, there = sys.argv[2], int(memory.ctypes.data), int(sys.argv[3])
print("ready", flush=True)
for line in sys.stdin:
    operations, layouts = json.loads(line)
    calls = [([base + a for a in s], [there + b for b in t], n) for s, t, n in layouts]
    samples = []
    for i in range(operations):
        sources, targets, sizes = calls[i % len(calls)]
        start = time.perf_counter_ns()
        if len(sizes) == 1:
            code = engine.transfer_sync_write(peer, sources[0], targets[0], sizes[0])
        else:
            code = engine.batch_transfer_sync_write(peer, sources, targets, sizes)
        samples.append((time.perf_counter_ns() - start) / 1e3)
        assert code == 0, code
    print("samples", json.dumps(samples), flush=True)
"""
# Its defaults refuse batches of 4096 pieces.
ENVIRONMENT = {
    "MC_TCP_BIND_ADDRESS": "127.0.0.1",
    "MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER": "8192",
    "MC_TCP_MAX_PENDING_ADMISSIONS_PER_PEER": "8192",
}
MOST_OPERATIONS = 50  # of one sample: its 4 KiB write takes as long as our 64 KiB one


class Mooncake:
    """The initiator's pipe."""

    def __init__(self, initiator: subprocess.Popen[str]) -> None:
        self._initiator = initiator

    @classmethod
    @contextlib.contextmanager
    def started(cls, wanted: bool) -> Iterator[Mooncake | None]:
        """None when it is not wanted or not installed."""
        if not wanted:
            yield None
            return
        if not has_package("mooncake"):
            print(f"Mooncake is not measured, there is no mooncake: {REMEDY}")
            yield None
            return
        with _process(TARGET, str(REGION_BYTES)) as target:
            port, address = _answer(target, "ready")
            with _process(INITIATOR, str(REGION_BYTES), f"127.0.0.1:{port}", address) as initiator:
                _answer(initiator, "ready")
                yield cls(initiator)

    def run(self, shape: Shape) -> list[float]:
        """One sample's microseconds."""
        layouts = [[one.sources.tolist(), one.targets.tolist(), one.sizes.tolist()] for one in shape.layouts]
        assert self._initiator.stdin is not None
        print(json.dumps([min(shape.operations, MOST_OPERATIONS), layouts]), file=self._initiator.stdin, flush=True)
        return [float(us) for us in json.loads(" ".join(_answer(self._initiator, "samples")))]


@contextlib.contextmanager
def _process(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [str(PYTHON), "-c", program, *arguments]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **ENVIRONMENT},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _answer(process: subprocess.Popen[str], word: str) -> list[str]:
    """The rest of the next line that starts with the word; the library itself writes lines as well."""
    output: IO[str] | None = process.stdout
    assert output is not None
    for line in output:
        if line.startswith(word):
            return line.split()[1:]
    raise SystemExit("Mooncake's process ended")
