"""The truth about every slot, in a file that the driver and all workers map: who lives, where, since when.

Single words, each written by one side: the driver says who lives and who is stopped, a worker says where it is.
Whoever needs several words that belong together reads the life before and after.
"""

from __future__ import annotations

import mmap
import time
from enum import IntEnum
from pathlib import Path

import numpy as np

from chaos.plan import FALSE_SUCCESS_S, SLOTS, VALUES


class Field(IntEnum):
    """A word of a slot's row. Times are monotonic nanoseconds, 0 for never."""

    LIFE = 0  # the driver: counts the processes in this slot
    DYING = 1  # the driver, before it kills or dismisses it
    DEAD_SINCE = 2  # the driver, after the process has ended
    STOPPED_SINCE = 3
    LAST_STOPPED = 4  # when it was last seen stopped for longer than the heartbeat time-out
    SHORT_OF_DESCRIPTORS = 5
    POOL_LIFE = 6  # the worker: counts its memories in the pool
    POOL_RANK = 7  # plus 1
    ENGINE_LIFE = 8  # the worker: counts its engines at the slot's session
    ARENA = 9
    PRIVATE = 10
    LOOSE = 11
    ENTERED_AT = 12  # the worker: it has joined


_ROWS = SLOTS


class SharedState:
    """`SharedState.make(path)` once, then `SharedState(path)` in every process."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._mapping = mmap.mmap(file.fileno(), 0)
        words = np.frombuffer(self._mapping, np.int64)
        self._words = words[: _ROWS * len(Field)].reshape(_ROWS, len(Field))
        self._values = words[_ROWS * len(Field) :].reshape(VALUES, SLOTS)

    @classmethod
    def make(cls, path: Path) -> SharedState:
        path.write_bytes(bytes(8 * (_ROWS * len(Field) + VALUES * SLOTS)))
        return cls(path)

    def close(self) -> None:
        del self._words, self._values
        self._mapping.close()

    def get(self, slot: int, field: Field) -> int:
        return int(self._words[slot, field])

    def set(self, slot: int, field: Field, value: int) -> None:
        self._words[slot, field] = value

    def now(self, slot: int, field: Field) -> None:
        self.set(slot, field, time.monotonic_ns())

    def add(self, slot: int, field: Field) -> None:
        self._words[slot, field] += 1

    # ---- who is where -----------------------------------------------------------------------------------------------

    def pool_home(self, slot: int) -> tuple[int, int] | None:
        """(rank, life) of the slot's memory in the pool."""
        life = self.get(slot, Field.POOL_LIFE)
        rank = self.get(slot, Field.POOL_RANK) - 1
        return (rank, life) if rank >= 0 and life == self.get(slot, Field.POOL_LIFE) else None

    def engine_home(self, slot: int, field: Field) -> tuple[int, int] | None:
        """(address, life) of one of the memories of the slot's engine."""
        life = self.get(slot, Field.ENGINE_LIFE)
        address = self.get(slot, field)
        return (address, life) if address and life == self.get(slot, Field.ENGINE_LIFE) else None

    def still_pool_home(self, slot: int, home: tuple[int, int]) -> bool:
        return self.pool_home(slot) == home and not self.get(slot, Field.DYING)

    def still_engine_home(self, slot: int, field: Field, home: tuple[int, int]) -> bool:
        return self.engine_home(slot, field) == home and not self.get(slot, Field.DYING)

    def begin_life(self, slot: int) -> None:
        """The driver, before it starts a process in the slot."""
        for field in (
            Field.POOL_RANK,
            Field.ARENA,
            Field.PRIVATE,
            Field.LOOSE,
            Field.STOPPED_SINCE,
            Field.ENTERED_AT,
        ):
            self.set(slot, field, 0)
        self.drop_values(slot)
        self.set(slot, Field.SHORT_OF_DESCRIPTORS, 0)
        self.add(slot, Field.LIFE)
        self.set(slot, Field.DYING, 0)
        self.set(slot, Field.DEAD_SINCE, 0)

    def long_dead(self, slot: int) -> int:
        """The life that ended so long ago that nobody may reach it any more; 0 while there is none."""
        dead_since = self.get(slot, Field.DEAD_SINCE)
        if dead_since and time.monotonic_ns() - dead_since > FALSE_SUCCESS_S * 1e9:
            return self.get(slot, Field.LIFE)
        return 0

    def all_long_dead_of_rank(self, rank: int) -> tuple[int, ...] | None:
        """The lives of all slots if nobody who ever had the rank in the pool lives or has died just now."""
        holders = [slot for slot in range(SLOTS) if self.get(slot, Field.POOL_RANK) == rank + 1]
        if not holders or not all(self.long_dead(slot) for slot in holders):
            return None
        return tuple(self.get(slot, Field.LIFE) for slot in range(SLOTS))

    # ---- atomic values ----------------------------------------------------------------------------------------------

    def hold_value(self, value: int, slot: int) -> None:
        self._values[value, slot] = time.monotonic_ns()

    def drop_value(self, value: int, slot: int) -> None:
        self._values[value, slot] = 0

    def drop_values(self, slot: int) -> None:
        self._values[:, slot] = 0

    def other_holders(self, value: int, slot: int) -> list[int]:
        """Slots that hold the value as well and have neither ended nor been silent since they got it."""
        return [
            other
            for other in range(SLOTS)
            if other != slot
            and (since := int(self._values[value, other]))
            and not self.get(other, Field.DYING)
            and not self.get(other, Field.STOPPED_SINCE)
            and self.get(other, Field.LAST_STOPPED) < since
        ]
