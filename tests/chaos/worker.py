"""One process of a campaign: what it takes part in, the threads that work there, and its orderly end."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

from chaos.call_checker import NEIGHBOURS_SHORTAGE, SHORTAGE, CallChecker, Work
from chaos.event_log import EventLog
from chaos.heap_work import HeapWork
from chaos.plan import SLOTS
from chaos.pool_work import PoolHome
from chaos.shared_state import Field, SharedState
from chaos.starvation import StarvationMeter
from chaos.transfer_work import EngineHome
from memfabric_hybrid import bm, shm

REST_S = 20.0  # until every thread has come back from its last call


class Worker:
    """A campaign's own kind makes the pool, the engine, the heap and the works."""

    pools: PoolHome
    engines: EngineHome
    heap: HeapWork
    works: list[Work]

    def __init__(self, slot: int, life: int, seed: int, folder: Path) -> None:
        self.slot = slot
        self.state = SharedState(folder / "shared_state")
        self.event_log = EventLog(folder / f"slot-{slot}.{life}.events", f"slot {slot}.{life} ({os.getpid()})")
        self.starvation = StarvationMeter()
        self.checker = CallChecker(self.event_log, self.starvation, self._shortage)
        self._choices = f"{seed}:{slot}:{life}"

    def choices(self, name: str) -> str:
        """The seed of one thread."""
        return f"{self._choices}:{name}"

    def _shortage(self) -> Collection[int]:
        if self.state.get(self.slot, Field.SHORT_OF_DESCRIPTORS):
            return SHORTAGE
        others = any(self.state.get(slot, Field.SHORT_OF_DESCRIPTORS) for slot in range(SLOTS))
        return NEIGHBOURS_SHORTAGE if others else ()

    def start(self) -> None:
        self.starvation.start()
        for work in self.works:
            work.start()

    def totals(self) -> dict[str, Any]:
        totals = self.checker.totals()
        totals["done"]["peer down told"] = self.engines.downs
        return totals

    def rest(self) -> list[str]:
        """All threads end their work; the objects stay. Who did not come back."""
        for work in self.works:
            work.stopping.set()
        ends_at = time.monotonic() + REST_S
        for work in self.works:
            work.join(max(0.0, ends_at - time.monotonic()))
        return [work.name for work in self.works if work.is_alive()]

    def leave(self, how: str) -> None:
        """Before an orderly exit: everything off, or nothing, with the threads still in their calls."""
        if how == "busy":
            self.checker.ending = True
            return
        late = self.rest()
        assert not late, f"did not end within {REST_S:g} s: {late}"
        self.checker.ending = True
        self.engines.engine.destroy()
        if self.heap.heap is not None:
            self.heap.heap.destroy()
        if self.pools.ready.is_set():
            self.pools.pool.destroy()
        shm.uninitialize()
        bm.uninitialize()
        self.starvation.stop()


class EntryWork(Work):
    """Becomes a member, and ends."""

    def __init__(self, worker: Worker) -> None:
        super().__init__("entry", worker.checker)
        self._worker = worker

    def step(self) -> None:
        self._worker.engines.enter(self.calls, self.stopping)
        self._worker.pools.enter(self.calls, self.stopping)
        self.stopping.set()


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
