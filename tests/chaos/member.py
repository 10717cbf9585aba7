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
from collections.abc import Collection
from pathlib import Path
from types import FrameType
from typing import Any

import memfabric_hybrid as mf
from chaos.call_checker import NEIGHBOURS_SHORTAGE, SHORTAGE, CallChecker, Work
from chaos.event_log import EventLog
from chaos.extra_work import ExtraWork
from chaos.heap_work import HeapWork
from chaos.loose_work import LooseWork
from chaos.plan import MAIN_LANE, SLOTS, WORLD
from chaos.pool_work import PoolHome, PoolWork, pool_config
from chaos.shared_state import Field, SharedState
from chaos.starvation import StarvationMeter
from chaos.transfer_work import EngineHome, TransferWork
from memfabric_hybrid import bm, shm
from support import forked_child

SIGNALS_LATE_S = 10.0  # the driver may be held up
REST_S = 20.0  # until every thread has come back from its last call


class Worker:
    """Everything of this process."""

    def __init__(self, slot: int, life: int, seed: int, store_url: str, ports: list[int], folder: Path) -> None:
        self.slot = slot
        self.state = state = SharedState(folder / "shared_state")
        self.event_log = EventLog(folder / f"slot-{slot}.{life}.events", f"slot {slot}.{life} ({os.getpid()})")
        self.store_url = store_url
        self.starvation = StarvationMeter()
        self.checker = CallChecker(self.event_log, self.starvation, self._shortage)
        self.pools = PoolHome(slot, store_url, state)
        self.engines = EngineHome(slot, ports, state)

        def own(name: str) -> str:
            return f"{seed}:{slot}:{life}:{name}"

        self.heap = HeapWork(slot, store_url, state, self.checker, own("heap"))
        self.main_pool = PoolWork(self.pools, MAIN_LANE, self.checker, own("main pool"))
        self.main_transfer = TransferWork(self.engines, MAIN_LANE, self.checker, own("main transfer"))
        self.works: list[Work] = [
            EntryWork(self),
            PoolWork(self.pools, 0, self.checker, own("pool 0")),
            PoolWork(self.pools, 1, self.checker, own("pool 1"), asynchronous=True),
            PoolWork(self.pools, 2, self.checker, own("pool 2")),
            self.heap,
            TransferWork(self.engines, 0, self.checker, own("transfer 0")),
            TransferWork(self.engines, 1, self.checker, own("transfer 1")),
            LooseWork(self.engines, self.checker, own("loose")),
            ExtraWork(self.pools, self.engines, self.checker, own("extras")),
        ]

    def _shortage(self) -> Collection[int]:
        if self.state.get(self.slot, Field.SHORT_OF_DESCRIPTORS):
            return SHORTAGE
        others = any(self.state.get(slot, Field.SHORT_OF_DESCRIPTORS) for slot in range(SLOTS))
        return NEIGHBOURS_SHORTAGE if others else ()

    def start(self) -> None:
        self.starvation.start()
        for work in self.works:
            work.start()


class EntryWork(Work):
    """Becomes a member, and ends."""

    def __init__(self, worker: Worker) -> None:
        super().__init__("entry", worker.checker)
        self._worker = worker

    def step(self) -> None:
        self._worker.engines.enter(self.calls, self.stopping)
        self._worker.pools.enter(self.calls, self.stopping)
        self.stopping.set()


class Interrupted(Exception):
    """What the raising signal handler raises."""


_worker: Worker | None = None


def current() -> Worker:
    assert _worker is not None
    return _worker


def begin(slot: int, life: int, seed: int, store_url: str, ports: list[int], folder: str) -> None:
    global _worker
    # Standard error will be closed, and its number given to something else: stacks need a file of their own.
    output = os.fdopen(os.dup(2), "w")
    faulthandler.enable(output)
    faulthandler.register(signal.SIGUSR1, output, all_threads=True)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # until somebody waits for it
    _worker = Worker(slot, life, seed, store_url, ports, Path(folder))
    _worker.start()


def totals() -> dict[str, Any]:
    worker = current()
    totals = worker.checker.totals()
    totals["done"]["peer down told"] = worker.engines.downs
    return totals


# ---- faults that need our help -------------------------------------------------------------------------------------


def take_signals(seconds: float, raising: bool) -> int:
    """Copies and transfers on the main thread while signals come; how many came. Handlers may raise."""
    worker = current()
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
        if not (worker.pools.ready.is_set() and worker.engines.ready.is_set()):
            continue
        try:
            armed[0] = raising
            worker.main_pool.once()
            worker.main_transfer.once()
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
    worker = current()
    tell = worker.event_log.violation
    if how == "check":
        pool = worker.pools.pool if worker.pools.ready.is_set() else None
        engine, heap = worker.engines.engine, worker.heap.heap
        forked_child.run_in_child(lambda: forked_child.check_inherited(pool, engine, heap), tell)
    else:
        config = pool_config()
        forked_child.run_in_child(
            lambda: forked_child.use_anew(worker.store_url, config, WORLD, store_may_be_away=True), tell
        )


# ---- the end --------------------------------------------------------------------------------------------------------


def rest() -> list[str]:
    """All threads end their work; the objects stay. Who did not come back."""
    worker = current()
    for work in worker.works:
        work.stopping.set()
    ends_at = time.monotonic() + REST_S
    for work in worker.works:
        work.join(max(0.0, ends_at - time.monotonic()))
    return [work.name for work in worker.works if work.is_alive()]


def footprint() -> dict[str, int]:
    """What this process holds, by kind."""
    found: Counter[str] = Counter()
    for number in os.listdir("/proc/self/fd"):
        try:
            found["descriptor of " + os.readlink(f"/proc/self/fd/{number}").split(":")[0].split(" ")[0]] += 1
        except FileNotFoundError:
            continue
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            if "/memfd:" in line:
                found["mapping of " + line[line.index("/memfd:") :].split(" ")[0]] += 1
    found["threads"] = len(os.listdir("/proc/self/task"))
    return dict(found)


def leave(how: str) -> None:
    """Before an orderly exit: everything off, or nothing, with the threads still in their calls."""
    worker = current()
    if how == "busy":
        worker.checker.ending = True
        return
    late = rest()
    assert not late, f"did not end within {REST_S:g} s: {late}"
    worker.checker.ending = True
    worker.engines.engine.destroy()
    if worker.heap.heap is not None:
        worker.heap.heap.destroy()
    if worker.pools.ready.is_set():
        worker.pools.pool.destroy()
    shm.uninitialize()
    bm.uninitialize()
    worker.starvation.stop()
