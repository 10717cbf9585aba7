"""A worker of the chaos campaign: pool, heap and engine in one process, many threads; the target of `Cluster`.

Its main thread obeys the driver; everything else happens on the threads that `begin` starts.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import memfabric_hybrid as mf
from chaos import worker
from chaos.extra_work import ExtraWork
from chaos.heap_work import HeapWork
from chaos.loose_work import LooseWork
from chaos.plan import MAIN_LANE, WORLD
from chaos.pool_work import PoolHome, PoolWork, pool_config
from chaos.transfer_work import EngineHome, TransferWork
from chaos.worker import EntryWork, Worker
from support import forked_child

SIGNALS_LATE_S = 10.0  # the driver may be held up
footprint = worker.footprint


class ChaosWorker(Worker):
    """Everything of this process."""

    def __init__(self, slot: int, life: int, seed: int, store_url: str, ports: list[int], folder: Path) -> None:
        super().__init__(slot, life, seed, folder)
        state, checker, own = self.state, self.checker, self.choices
        self.store_url = store_url
        self.pools = PoolHome(slot, store_url, state)
        self.engines = EngineHome(slot, ports, state)
        self.heap = HeapWork(slot, store_url, state, checker, own("heap"))
        self.main_pool = PoolWork(self.pools, MAIN_LANE, checker, own("main pool"))
        self.main_transfer = TransferWork(self.engines, MAIN_LANE, checker, own("main transfer"))
        self.works = [
            EntryWork(self),
            PoolWork(self.pools, 0, checker, own("pool 0")),
            PoolWork(self.pools, 1, checker, own("pool 1"), asynchronous=True),
            PoolWork(self.pools, 2, checker, own("pool 2")),
            self.heap,
            TransferWork(self.engines, 0, checker, own("transfer 0")),
            TransferWork(self.engines, 1, checker, own("transfer 1")),
            LooseWork(self.engines, checker, own("loose")),
            ExtraWork(self.pools, self.engines, checker, own("extras")),
        ]


class Interrupted(Exception):
    """What the raising signal handler raises."""


_worker: ChaosWorker | None = None


def current() -> ChaosWorker:
    assert _worker is not None
    return _worker


def begin(slot: int, life: int, seed: int, store_url: str, ports: list[int], folder: str) -> None:
    global _worker
    # Standard error will be closed, and its number given to something else: stacks need a file of their own.
    output = os.fdopen(os.dup(2), "w")
    faulthandler.enable(output)
    faulthandler.register(signal.SIGUSR1, output, all_threads=True)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # until somebody waits for it
    _worker = ChaosWorker(slot, life, seed, store_url, ports, Path(folder))
    _worker.start()


def totals() -> dict[str, Any]:
    return current().totals()


# ---- faults that need our help -------------------------------------------------------------------------------------


def take_signals(seconds: float, raising: bool) -> int:
    """Copies and transfers on the main thread while signals come; how many came. Handlers may raise."""
    me = current()
    seen: Counter[str] = Counter()
    armed = [False]  # a handler raises only inside the calls below, and once

    def handler(number: int, frame: FrameType | None) -> None:
        seen["came"] += 1
        if armed[0]:
            armed[0] = False
            raise Interrupted

    signal.signal(signal.SIGUSR2, handler)
    ends_at = time.monotonic() + seconds
    while time.monotonic() < (ends_at if seen["came"] else ends_at + SIGNALS_LATE_S):
        if not (me.pools.ready.is_set() and me.engines.ready.is_set()):
            continue
        try:
            armed[0] = raising
            me.main_pool.once()
            me.main_transfer.once()
            armed[0] = False
        except Interrupted:
            seen["raised"] += 1
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    return seen["came"]


def lose_stderr(how: str) -> None:
    """Whatever the library says from now on is said to nobody. It says much."""
    sys.stderr.flush()
    read, write = os.pipe()  # either end may have the number, if it was lost before
    os.dup2(write, 2)
    for end in {read, write} - {2}:
        os.close(end)
    if how == "close":
        os.close(2)
    mf.set_log_level(1)


def fork_child(how: str) -> None:
    me = current()
    tell = me.event_log.violation
    if how == "check":
        pool = me.pools.pool if me.pools.ready.is_set() else None
        engine, heap = me.engines.engine, me.heap.heap
        forked_child.run_in_child(lambda: forked_child.check_inherited(pool, engine, heap), tell)
    else:
        config = pool_config()
        forked_child.run_in_child(
            lambda: forked_child.use_anew(me.store_url, config, WORLD, store_may_be_away=True), tell
        )


# ---- the end --------------------------------------------------------------------------------------------------------


def rest() -> list[str]:
    return current().rest()


def leave(how: str) -> None:
    current().leave(how)
