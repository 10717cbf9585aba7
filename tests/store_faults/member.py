"""A member of the campaign against the store: pool, heap and a named engine in one process, one thread each that moves
stamped bytes, and one that makes, extends, joins and leaves another pool; the target of `Cluster`.

Its log goes to a file beside its event log, where the driver looks for an explanation of each fault.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import memfabric_hybrid as mf
from chaos import worker
from chaos.call_checker import RAISED, CallChecker, CheckedCalls, FailedCall, Work
from chaos.event_log import EventLog
from chaos.heap_work import HeapWork
from chaos.plan import CREATE_TIMEOUT_S, FAREWELL_S, MIB, OPERATION_TIMEOUT_S, TRANSFER_TIMEOUT_S
from chaos.pool_work import HOST, PoolHome, PoolWork
from chaos.shared_state import Field, SharedState
from chaos.transfer_work import EngineHome, TransferWork
from chaos.worker import EntryWork, Worker
from memfabric_hybrid import bm
from memfabric_hybrid.bm import runtime
from store_faults.plan import HEARTBEAT_S, SLOTS, STARVED_S

OTHER_ID = 1  # of the pool that comes and goes
OTHER_BYTES = 2 * MIB
INFO = 1
ENGINE_ENTERS_S = 2 * HEARTBEAT_S + 2.0 + 2 * TRANSFER_TIMEOUT_S  # a name whose engine is dead is waited for
LATE = (-2004,)
footprint = worker.footprint


class FollowingPoolHome(PoolHome):
    """Where the store is now may have changed while this process entered at its old place."""

    def create(self) -> int:
        bm.update_store_url(self.store_url)
        return super().create()


class NamedEngineHome(EngineHome):
    """An engine that others find by its name, in the store."""

    def __init__(self, slot: int, store_url: str, state: SharedState) -> None:
        super().__init__(slot, [], state)
        self.sessions = [f"slot-{number}" for number in range(SLOTS)]
        self.store_url = store_url

    def initialize(self, calls: CheckedCalls) -> int:
        session = self.sessions[self.slot]
        return calls.make(
            "engine initialize",
            ENGINE_ENTERS_S,
            LATE,
            lambda: self.engine.initialize(self.store_url, session, "Prefill", 0),
        )


class CopyWork(PoolWork):
    """Copies to everybody, on whichever host: those may wait for a host that says nothing."""

    limit_s = OPERATION_TIMEOUT_S
    allowed = (-2014, -2012, -2004)

    def __init__(self, home: PoolHome, lane: int, checker: CallChecker, seed: str) -> None:
        super().__init__(home, lane, checker, seed)
        self.steps = [self.write_and_read_back, self.read_somebody, self.batch, self.rectangle]


class ControlWork(Work):
    """Another pool, of whoever has it just now: every call about it needs the store."""

    def __init__(self, home: PoolHome, checker: CallChecker, seed: str) -> None:
        super().__init__("control", checker)
        self._home = home
        self._random = random.Random(seed)

    def step(self) -> None:
        if not self._home.ready.wait(0.1):
            return
        pool = self._create()
        if pool is not None:
            self._use(pool)
            self.calls.make("other pool destroy", FAREWELL_S, (), lambda: pool.destroy() or 0)  # type: ignore[func-returns-value]
        self.pause(self._random.uniform(0, 0.3))

    def _create(self) -> bm.BigMemory | None:
        made: list[bm.BigMemory] = []

        def create() -> int:
            try:
                made.append(bm.create2(OTHER_ID, OTHER_BYTES, 4 * OTHER_BYTES))
            except RuntimeError:
                return RAISED
            return 0

        return made[0] if self.calls.make("other pool create", CREATE_TIMEOUT_S, (RAISED,), create) == 0 else None

    def _use(self, pool: bm.BigMemory) -> None:
        if self.calls.make("other pool join", OPERATION_TIMEOUT_S, LATE, lambda: pool.join()):
            return
        for _ in range(self._random.randrange(3)):
            self.calls.make(
                "other pool extend", OPERATION_TIMEOUT_S, LATE, lambda: pool.extend_local_mem(HOST, OTHER_BYTES)
            )
            self.pause(self._random.uniform(0, 0.1))
        if self._random.random() < 0.5:
            self.calls.make("other pool leave", OPERATION_TIMEOUT_S, (), lambda: pool.leave())


class StoreWorker(Worker):
    def __init__(self, slot: int, life: int, seed: int, store_url: str, folder: Path) -> None:
        super().__init__(slot, life, seed, folder)
        self.log = EventLog(folder / f"slot-{slot}.{life}.log", f"slot {slot}.{life} ({os.getpid()})")
        mf.set_log_level(INFO)
        mf.set_extern_logger(lambda level, text: self.log.write(text))
        state, checker, own = self.state, self.checker, self.choices
        self.pools = FollowingPoolHome(slot, store_url, state)
        self.engines = self.named_engines = NamedEngineHome(slot, store_url, state)
        self.heap = HeapWork(slot, store_url, state, checker, own("heap"))
        self.works = [
            StoreEntry(self),
            CopyWork(self.pools, 0, checker, own("copies")),
            TransferWork(self.engines, 0, checker, own("transfers")),
            self.heap,
            ControlWork(self.pools, checker, own("control")),
        ]


class StoreEntry(EntryWork):
    """Says when it was done: from then on nobody may miss this process."""

    def step(self) -> None:
        super().step()
        if self._worker.pools.ready.is_set():
            self._worker.state.now(self._worker.slot, Field.ENTERED_AT)


_worker: StoreWorker | None = None


def current() -> StoreWorker:
    assert _worker is not None
    return _worker


def begin(slot: int, life: int, seed: int, store_url: str, folder: str) -> None:
    global _worker
    _worker = StoreWorker(slot, life, seed, store_url, Path(folder))
    _worker.start()


def totals() -> dict[str, Any]:
    return current().totals()


def take_failures() -> list[FailedCall]:
    """Those since the last time."""
    failures = current().checker.failures
    return [failures.popleft() for _ in range(len(failures))]


def take_starvation() -> list[tuple[float, float]]:
    """When this process did not get the processor for long: from, until; since the last time."""
    return current().starvation.take_spans(STARVED_S)


def ranks() -> dict[str, int]:
    """Those that this process believes to have."""
    me = current()
    return {"bm": bm.bm_rank_id(), "shm": me.slot}


def move(store_url: str) -> int:
    """The store is elsewhere: whatever uses it goes there, and what begins later begins there."""
    me = current()
    me.pools.store_url = me.named_engines.store_url = me.heap.store_url = store_url
    return bm.update_store_url(store_url)


def etcd_endpoint() -> str:
    """The node at which this process's membership is."""
    store = runtime.current_node().member.store
    host, port = store._endpoints.in_order[0]  # type: ignore[attr-defined]
    return f"{host}:{port}"


def rest() -> list[str]:
    return current().rest()


def leave(how: str) -> None:
    current().leave(how)
    mf.set_extern_logger(None)
