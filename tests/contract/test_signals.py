"""Signals belong to the program: none of our native threads may take one away from it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm, shm

TASKS = Path("/proc/self/task")


@pytest.fixture
def native_threads(store_url: str) -> Iterator[list[Path]]:
    """Those of a pool with a stream and a copy that takes several threads, of a heap, and of an engine."""
    others = set(TASKS.iterdir()) - {task for task in TASKS.iterdir() if name_of(task).startswith("mf-")}
    assert bm.initialize(store_url, 1, 0, bm.BmConfig()) == 0, mf.get_last_err_msg()
    pool = bm.create(0, 64 << 20)
    assert pool.join() == 0
    place = pool.peer_rank_ptr(0, bm.BmMemType.HOST)
    with mf.Stream() as stream, mf.TransferEngine() as engine:
        source = np.ones(32 << 20, np.uint8)
        address = source.ctypes.data
        assert pool.copy_data(address, place, source.nbytes, bm.BmCopyType.H2GH) == 0, mf.get_last_err_msg()
        assert pool.copy_data(address, place, 8, bm.BmCopyType.H2GH, 4, stream) == 0, mf.get_last_err_msg()
        assert engine.initialize(None, "127.0.0.1:0", "Prefill", 0) == 0, mf.get_last_err_msg()
        engine.submit_write(engine.session_id, b"own", engine.trans_malloc(8)).result(20)
        assert shm.initialize(store_url, 1, 0, 0, shm.ShmConfig()) == 0, mf.get_last_err_msg()
        shm.create(0, 1, 0, 2 << 20)
        pythons = {TASKS / str(thread.native_id) for thread in threading.enumerate()}
        yield sorted(set(TASKS.iterdir()) - others - pythons)
    mf.uninitialize()


def name_of(task: Path) -> str:
    return (task / "comm").read_text().strip()


def blocked_signals(task: Path) -> int:
    [line] = [line for line in (task / "status").read_text().splitlines() if line.startswith("SigBlk:")]
    return int(line.split()[1], 16)


def test_native_threads_take_no_signals(native_threads: list[Path]) -> None:
    names = {name_of(task) for task in native_threads}
    assert names >= {"mf-heartbeat", "mf-liveness", "mf-stream", "mf-submitted", "mf-session", "mf-lease", "mf-copy-0"}
    # These two can be blocked by nobody; 32 and 33 are the C library's own.
    free = 1 << (signal.SIGKILL - 1) | 1 << (signal.SIGSTOP - 1) | 0b11 << 31
    everything = (1 << 64) - 1 & ~free
    assert not [name_of(task) for task in native_threads if blocked_signals(task) & everything != everything]
