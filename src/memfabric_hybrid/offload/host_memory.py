"""The memory of this process for caches, in blocks: what `malloc` hands out and `free` takes back.

Threads: any. `_lock` guards the blocks, for moments; `_growing` is taken first and lets one thread at a time add
memory, for which neighbours may have to be waited for, as long as the slot allows.
"""

from __future__ import annotations

import threading
from collections import deque

from memfabric_hybrid.address_space.layout import MIB, round_up
from memfabric_hybrid.errors import FabricError, InvalidParam, MallocFailed, NotExist, NotInit, ResourceInUse
from memfabric_hybrid.offload.blocks import Block, Blocks
from memfabric_hybrid.offload.slot import Slot, size_of, start_of

SMALLEST_STEP_BYTES = 64 * MIB
MOST_STEPS = 64  # of growth: a rank can show its neighbours some 200 segments


class HostMemory:
    """On a slot, which stays its maker's. `reserve_bytes` is how far it may grow."""

    def __init__(self, slot: Slot, reserve_bytes: int) -> None:
        self.slot = slot
        self._reserve_bytes = reserve_bytes
        self._start = start_of(slot.space)
        self._growing = threading.Lock()
        self._lock = threading.Lock()
        self._blocks = Blocks(size_of(slot.space))
        self._of_tensors: set[int] = set()  # starts of blocks that belong to tensors
        # Starts of blocks whose tensors are garbage. A destructor may run inside of any line of ours, also under the
        # lock: it leaves its block here, which takes none, and whoever has the lock next gives it back.
        self._dropped: deque[int] = deque()
        self._closed = False

    def close(self) -> None:
        """Nothing is handed out any more: the slot is about to end."""
        with self._lock:
            self._closed = True

    def malloc(self, size_bytes: int, *, for_tensor: bool = False) -> int:
        """The address of a new block. MallocFailed says what there is."""
        if size_bytes == 0:
            raise InvalidParam("size is 0 bytes, expected at least 1")
        block = self._take(size_bytes, for_tensor)
        if block is None:
            with self._growing:
                block = self._take(size_bytes, for_tensor)  # another thread may have added enough
                while block is None:
                    self._grow_for(size_bytes)
                    block = self._take(size_bytes, for_tensor)
        return self._start + block.start

    def free(self, address: int) -> None:
        """NotExist if no block begins there, ResourceInUse if it is a tensor's."""
        start = address - self._start
        with self._lock:
            self._give_back_dropped()
            if start in self._of_tensors:
                raise ResourceInUse(
                    f"{address:#x} is the memory of a tensor of empty(): it is free when the tensor is garbage"
                )
            if not self._blocks.give_back(start):
                raise NotExist(self._unknown(address))

    def drop(self, address: int) -> None:
        """The tensor whose block begins there is garbage. Runs in destructors: takes no lock."""
        self._dropped.append(address - self._start)

    def check_holds(self, address: int) -> None:
        """NotExist unless it is in a block of ours, or in the memory of a neighbour."""
        space = self.slot.space
        with self._lock:
            self._give_back_dropped()
            is_taken = self._blocks.holding(address - self._start) is not None
        is_own = self._start <= address < self._start + size_of(space)
        if not is_taken and (is_own or not space._addressable(address)):
            raise NotExist(f"{address:#x} lies in no memory of malloc() or empty()")

    def _take(self, size_bytes: int, for_tensor: bool) -> Block | None:
        with self._lock:
            self._check_open()
            self._give_back_dropped()
            block = self._blocks.take(size_bytes)
            if block is not None and for_tensor:
                self._of_tensors.add(block.start)
            return block

    def _grow_for(self, size_bytes: int) -> None:
        """Adds at least what is missing. Under `_growing`, and not under `_lock`."""
        with self._lock:
            usage, missing = self._blocks.usage(), self._blocks.missing(size_bytes)
        left = self._reserve_bytes - usage.span_bytes
        if missing > left:
            raise MallocFailed(
                f"{size_bytes} bytes were asked for: of the {self._reserve_bytes} bytes that are reserved, "
                f"{usage.taken_bytes} are taken (in blocks: {usage.blocks}), and the largest free piece has "
                f"{max(usage.largest_bytes, usage.last_bytes + left)}; free some, or raise reserve_size"
            )
        # An extension that neighbours did not take has failed, and its memory is there: it counts with the next one.
        there = size_of(self.slot.space) - usage.span_bytes
        step = round_up(max(missing, SMALLEST_STEP_BYTES, self._reserve_bytes // MOST_STEPS))
        try:
            self.slot.extend(max(0, min(step, left) - there))
        except FabricError:
            self._check_open()
            raise
        with self._lock:
            self._check_open()
            self._blocks.grow(size_of(self.slot.space) - usage.span_bytes)

    def _check_open(self) -> None:
        if self._closed:
            raise NotInit("offload memory was uninitialised meanwhile: call offload.initialize() again")

    def _give_back_dropped(self) -> None:
        """Under the lock."""
        while self._dropped:
            start = self._dropped.popleft()
            self._of_tensors.discard(start)
            self._blocks.give_back(start)

    def _unknown(self, address: int) -> str:
        """Under the lock."""
        holder = self._blocks.holding(address - self._start)
        if holder is None:
            return f"{address:#x} is not the address of memory from malloc(); it may have been freed already"
        begins = self._start + holder.start
        return f"{address:#x} lies inside of memory from malloc() that begins at {begins:#x}: pass that address"
