"""What else happens in a heap: subgroups, and values that one rank at a time can have."""

from __future__ import annotations

import random
import threading

import memfabric_hybrid as mf
from chaos.call_checker import CallChecker, Work
from chaos.plan import OPERATION_TIMEOUT_S, SLOTS, VALUES
from chaos.shared_state import SharedState
from memfabric_hybrid import shm
from memfabric_hybrid.errors import FabricError


def gather_code(failure: RuntimeError) -> int:
    """An all-gather that fails says no code: its cause does, or the sentence of a time-out, which names the missing."""
    if isinstance(failure.__cause__, FabricError):
        return int(failure.__cause__.code)
    return -2004 if "did not arrive" in mf.get_last_err_msg() else -2014


class SubgroupWork(Work):
    """The ranks of our parity meet: barriers and all-gathers in turn, all with the same key."""

    def __init__(
        self,
        heap: shm.ShareMemory,
        slot: int,
        state: SharedState,
        checker: CallChecker,
        seed: str,
        broken: threading.Event,
    ) -> None:
        super().__init__("subgroup", checker)
        self._heap = heap
        self._key = f"parity {slot % 2}"
        self._members = list(range(slot % 2, SLOTS, 2))
        self._place = self._members.index(slot)
        self._rounds = 0

    def step(self) -> None:
        code = self._barrier() if self._rounds % 3 else self._gather()
        if code == 0:
            self._rounds += 1
        elif code != -2004:
            self.stopping.set()  # the heap's own thread will notice as well
        self.pause(0.002)

    def _barrier(self) -> int:
        return self.calls.make(
            "subgroup barrier",
            OPERATION_TIMEOUT_S,
            (-2004, -2014),
            lambda: self._heap.subgroup_barrier(self._key, len(self._members), self._place),
        )

    def _gather(self) -> int:
        parts = [f"{member} {self._rounds:8}".encode() for member in self._members]

        def gather() -> int:
            try:
                result = self._heap.subgroup_all_gather(self._key, len(self._members), self._place, parts[self._place])
            except RuntimeError as failure:
                return gather_code(failure)
            if result != b"".join(parts):
                self.calls.violation(f"subgroup_all_gather gave {result!r}, expected {parts}")
            return 0

        return self.calls.make("subgroup all_gather", OPERATION_TIMEOUT_S, (-2004, -2014), gather)


class ValueWork(Work):
    """Takes and releases atomic values; nobody else that lives may have one of ours."""

    def __init__(
        self,
        heap: shm.ShareMemory,
        slot: int,
        state: SharedState,
        checker: CallChecker,
        seed: str,
        broken: threading.Event,
    ) -> None:
        super().__init__("values", checker)
        self._heap = heap
        self._slot = slot
        self._state = state
        self._broken = broken
        self._random = random.Random(seed)
        self._held: list[int] = []

    def step(self) -> None:
        if len(self._held) < 2 and self._random.random() < 0.6:
            self._take()
        elif self._held:
            self._release(self._held.pop())
        self.pause(self._random.uniform(0, 0.05))

    def _take(self) -> None:
        value = self.calls.make(
            "value taken", OPERATION_TIMEOUT_S, (-2002, -2004), lambda: self._heap.atomic_alloc_value(VALUES)
        )
        if value < 0:
            return
        self._held.append(value)
        self._state.hold_value(value, self._slot)
        others = self._state.other_holders(value, self._slot)
        if others and not self._broken.is_set():
            self.calls.violation(f"value {value} was given to us, but the slots {others} hold it and live")

    def _release(self, value: int) -> None:
        self._state.drop_value(value, self._slot)
        self.calls.make("value released", OPERATION_TIMEOUT_S, (-2004,), lambda: self._heap.atomic_release_value(value))
