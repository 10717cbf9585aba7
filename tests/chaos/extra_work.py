"""Objects that come and go beside the lasting ones: pools, engines, streams, and the pool's own leave and join."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

import memfabric_hybrid as mf
from chaos.call_checker import RAISED, CallChecker, Work
from chaos.plan import CREATE_TIMEOUT_S, FAREWELL_S, MIB, OPERATION_TIMEOUT_S, TRANSFER_TIMEOUT_S, WORLD
from chaos.pool_work import G2H, H2G, HOST, PoolHome
from chaos.transfer_work import GONE, EngineHome
from memfabric_hybrid import bm

SHARED_ID = 1  # a pool of all extras together; the others are each slot's alone
EXTRA_BYTES = 2 * MIB


class ExtraWork(Work):
    """One such object at a time."""

    def __init__(self, pools: PoolHome, engines: EngineHome, checker: CallChecker, seed: str) -> None:
        super().__init__("extras", checker)
        self._pools = pools
        self._engines = engines
        self._random = random.Random(seed)
        self._data = np.arange(4096, dtype=np.uint8)

    def step(self) -> None:
        if not (self._pools.ready.wait(0.1) and self._engines.ready.wait(0.1)):
            return
        weights = {self._pool: 3, self._engine: 3, self._stream: 2, self._leave_and_join: 1}
        self._random.choices(list(weights), list(weights.values()))[0]()
        self.pause(self._random.uniform(0, 0.3))

    def _must_soon(self, kind: str, limit_s: float, allowed: tuple[int, ...], function: Callable[[], int]) -> bool:
        """Again while it fails as it may."""
        while self.calls.make(kind, limit_s, allowed, function):
            if self.stopping.is_set():
                return False
            self.pause(0.05)
        return True

    def _pool(self) -> None:
        object_id = self._random.choice([SHARED_ID, 10 + self._pools.slot])
        made: list[bm.BigMemory] = []

        def create() -> int:
            try:
                made.append(bm.create2(object_id, EXTRA_BYTES, EXTRA_BYTES))
            except RuntimeError:
                return RAISED
            return 0

        if self.calls.make("extra pool create", CREATE_TIMEOUT_S, (RAISED,), create) != 0:
            return
        [pool] = made
        if self._must_soon("extra pool join", OPERATION_TIMEOUT_S, (-2004,), lambda: pool.join()):
            for rank in range(WORLD):
                self._copy_there_and_back(pool, rank)
            if self._random.random() < 0.5:
                self.calls.make("extra pool leave", OPERATION_TIMEOUT_S, (), lambda: pool.leave())
        self.calls.make("extra pool destroy", FAREWELL_S, (), lambda: pool.destroy() or 0)  # type: ignore[func-returns-value]

    def _copy_there_and_back(self, pool: bm.BigMemory, rank: int) -> None:
        place, own = pool.peer_rank_ptr(rank, HOST) + self._pools.slot * 4096, self._data.ctypes.data
        back = np.empty_like(self._data)
        self.calls.make("extra copy", 0.0, (-2014,), lambda: pool.copy_data(own, place, 4096, H2G))
        self.calls.make("extra copy", 0.0, (-2014, -2012), lambda: pool.copy_data(place, back.ctypes.data, 4096, G2H))

    def _engine(self) -> None:
        """A peer in this very process, which the lasting engine meets and loses."""
        engine = mf.TransferEngine()
        if self._random.random() < 0.5:
            engine.set_peer_down_callback(lambda session: None)
        target = np.zeros(4096, np.uint8)
        if self.calls.make(
            "extra engine initialize", 0.0, (), lambda: engine.initialize(None, "127.0.0.1:0", "Prefill", 0)
        ):
            return
        self.calls.make("extra engine register", 0.0, (), lambda: engine.register(target))
        session, own, there = engine.session_id, self._data.ctypes.data, target.ctypes.data
        code = self.calls.make(
            "extra transfer",
            TRANSFER_TIMEOUT_S,
            (-2004,),
            lambda: self._engines.engine.transfer_sync_write(session, own, there, 4096),
        )
        if code == 0 and not np.array_equal(target, self._data):
            self.calls.violation("a transfer to an extra engine of this process did not arrive")
        self.calls.make(
            "extra transfer",
            TRANSFER_TIMEOUT_S,
            GONE,
            lambda: engine.send_probe(self._random.choice(self._engines.sessions)),
        )
        self.calls.make("extra engine destroy", TRANSFER_TIMEOUT_S + FAREWELL_S, (), lambda: engine.destroy() or 0)  # type: ignore[func-returns-value]

    def _stream(self) -> None:
        with mf.Stream() as stream:
            pools = self._pools
            found = np.empty(4096, np.uint8)
            place = pools.pool.peer_rank_ptr(pools.rank, HOST)
            pools.pool.copy_data(place, found.ctypes.data, 4096, G2H, 4, stream)
            self.calls.make("extra stream", 0.0, (-2014, -2012, -2003), lambda: stream.wait(5))

    def _leave_and_join(self) -> None:
        """Our bytes stay; the others lose us for a moment."""
        pools = self._pools
        pools.away = True
        pools.departures += 1
        if self.calls.make("leave", OPERATION_TIMEOUT_S, (), lambda: pools.pool.leave()) == 0:
            self.pause(self._random.uniform(0, 0.05))
        self._must_soon("join", OPERATION_TIMEOUT_S, (-2004,), lambda: pools.pool.join())
        pools.away = False
