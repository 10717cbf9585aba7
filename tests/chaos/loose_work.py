"""Memory that is registered and unregistered while others write to it: when `unregister` returns 0, nobody does."""

from __future__ import annotations

import random

from chaos.call_checker import CallChecker, Work
from chaos.patterns import Bytes
from chaos.plan import LOOSE_BYTES, TRANSFER_TIMEOUT_S
from chaos.shared_state import Field
from chaos.transfer_work import EngineHome, private_memory


class LooseWork(Work):
    """Owns the loose memory of this process's engine."""

    def __init__(self, home: EngineHome, checker: CallChecker, seed: str) -> None:
        super().__init__("loose memory", checker)
        self._home = home
        self._random = random.Random(seed)
        self._memory = private_memory(LOOSE_BYTES)
        self._never_safe: list[Bytes] = []  # somebody stands inside: it may not be freed

    def step(self) -> None:
        home, memory = self._home, self._memory
        if not home.ready.wait(0.1):
            return
        start = memory.ctypes.data
        if self.calls.make("register", 0.0, (), lambda: home.engine.register_memory(start, LOOSE_BYTES)):
            self.pause(0.05)
            return
        home.state.set(home.slot, Field.LOOSE, start)
        self.pause(self._random.uniform(0, 0.1))
        # -2004: a peer that is inside does not go on; it may write when it does.
        if self.calls.make("unregister", TRANSFER_TIMEOUT_S, (-2004,), lambda: home.engine.unregister_memory(start)):
            self._never_safe.append(memory)
            self._memory = private_memory(LOOSE_BYTES)
            return
        memory[:] = 0
        self.pause(self._random.uniform(0, 0.02))
        if memory.any():
            self.calls.violation(f"{int((memory != 0).sum())} bytes arrived after unregister_memory had returned 0")
