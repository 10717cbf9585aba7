"""A member of the demo: the steps it can do, and the loop that does them when the director says so.

A rank's DRAM in the demo: 4 MiB of blocks, one for each writer; 4 MiB of work area; the rest for measuring.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

import memfabric_hybrid as mf
from memfabric_hybrid.bm import BigMemory, BmConfig, BmCopyType, BmMemType, bm_rank_id, create, initialize, uninitialize

KIB, MIB = 1 << 10, 1 << 20
BLOCK, HBM_BLOCK = 64 * KIB, 32 * KIB
WORK, MEASURED = 4 * MIB, 8 * MIB  # where these areas begin
PIECES, PIECE = 512, 4 * KIB
SIDE = 256  # of the matrix
ASYNCHRONOUS, ON_STREAM = 1, 4
CALLS = 1000  # of a small copy make one sample

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Measurement = tuple[str, float, float, int, str]


def pattern(size: int, *seed: int) -> Bytes:
    """Bytes that writer and reader can both make; every seed gives others."""
    return np.frombuffer(np.random.default_rng(seed).bytes(size), np.uint8)


def require(code: int) -> None:
    if code != 0:
        raise RuntimeError(f"a call returned {code}: {mf.get_last_err_msg()}")


def compare(what: str, got: Bytes, expected: Bytes) -> int:
    """The number of bytes compared; an exception that names the first difference."""
    different = np.flatnonzero(got.ravel() != expected.ravel())
    if different.size:
        first = int(different[0])
        raise RuntimeError(
            f"{what}: {different.size} of {expected.size} bytes differ, the first at {first}: "
            f"{got.ravel()[first]} instead of {expected.ravel()[first]}"
        )
    return expected.size


class Member:
    """Steps come in pairs: one writes, and when everybody has written, the other compares."""

    pool: BigMemory
    failure: tuple[int, float, str, int]

    def ready(self) -> int:
        return os.getpid()

    def enter(self, store_url: str, ranks: int, size_mib: int) -> tuple[int, int, int, int]:
        require(initialize(store_url, ranks, 0, BmConfig()))
        self.pool = create(0, local_dram_size=MEASURED + size_mib * MIB, local_hbm_size=2 * MIB)
        require(self.pool.join())
        self.rank = bm_rank_id()
        self.ranks = ranks
        self.size = size_mib * MIB
        return self.rank, os.getpid(), self.dram(self.rank), self.pool.peer_rank_ptr(self.rank, BmMemType.DEVICE)

    def leave(self) -> None:
        self.pool.destroy()
        uninitialize()

    def dram(self, rank: int) -> int:
        return self.pool.peer_rank_ptr(rank % self.ranks, BmMemType.HOST)

    def work_area(self, size: int) -> Bytes:
        return self.pool.array(self.rank, size, np.uint8, offset=WORK)

    # ---- copies ----------------------------------------------------------------------------------------------------

    def write_to_all(self, present: list[int], turn: int) -> None:
        for peer in present:
            block = pattern(BLOCK, turn, self.rank, peer)
            hbm = self.pool.peer_rank_ptr(peer, BmMemType.DEVICE) + self.rank * HBM_BLOCK
            require(self.pool.copy_data(block.ctypes.data, self.dram(peer) + self.rank * BLOCK, BLOCK, BmCopyType.H2G))
            require(self.pool.copy_data(block.ctypes.data, hbm, HBM_BLOCK, BmCopyType.L2G))

    def verify_from_all(self, present: list[int], turn: int) -> int:
        checked = 0
        for writer in present:  # what everybody wrote into our memory
            got = self.pool.array(self.rank, BLOCK, np.uint8, offset=writer * BLOCK)
            checked += compare(f"rank {writer} → {self.rank}", got, pattern(BLOCK, turn, writer, self.rank))
        back = np.empty(BLOCK, np.uint8)
        for owner in present:  # what the first of them wrote into everybody's
            writer = present[0]
            expected = pattern(BLOCK, turn, writer, owner)
            require(self.pool.copy_data(self.dram(owner) + writer * BLOCK, back.ctypes.data, BLOCK, BmCopyType.G2H))
            checked += compare(f"rank {writer} → {owner}, read by {self.rank}", back, expected)
            hbm = self.pool.peer_rank_ptr(owner, BmMemType.DEVICE) + writer * HBM_BLOCK
            require(self.pool.copy_data(hbm, back.ctypes.data, HBM_BLOCK, BmCopyType.G2L))
            checked += compare(f"HBM {writer} → {owner}, read by {self.rank}", back[:HBM_BLOCK], expected[:HBM_BLOCK])
        return checked

    def write_batch(self) -> None:
        pieces = pattern(PIECES * PIECE, 1, self.rank)
        sources = pieces.ctypes.data + np.arange(PIECES) * PIECE
        targets = self.dram(self.rank + 1) + WORK + self.scattered() * PIECE
        sizes = np.full(PIECES, PIECE)
        require(self.pool.copy_data_batch(sources, targets, sizes, PIECES, BmCopyType.H2G))

    def scattered(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.random.default_rng(2).permutation(PIECES)

    def expected_batch(self) -> Bytes:
        expected = np.empty((PIECES, PIECE), np.uint8)
        expected[self.scattered()] = pattern(PIECES * PIECE, 1, (self.rank - 1) % self.ranks).reshape(PIECES, PIECE)
        return expected

    def verify_batch(self) -> int:
        return compare("batch", self.work_area(PIECES * PIECE), self.expected_batch())

    def write_tile(self) -> None:
        """Rows 100 to 163, columns 20 to 51 of a matrix of bytes that lies in the next rank's work area."""
        tile = pattern(64 * 32, 3, self.rank)
        corner = self.dram(self.rank + 1) + WORK + 100 * SIDE + 20
        require(self.pool.copy_data_2d(tile.ctypes.data, 32, corner, SIDE, 32, 64, BmCopyType.H2G))

    def verify_tile(self) -> int:
        expected = self.expected_batch().ravel()[: SIDE * SIDE].reshape(SIDE, SIDE)  # around the tile nothing changed
        expected[100:164, 20:52] = pattern(64 * 32, 3, (self.rank - 1) % self.ranks).reshape(64, 32)
        return compare("tile", self.work_area(SIDE * SIDE), expected)

    def write_queued(self) -> None:
        """Each target is written twice: the order of the queue decides which bytes stay."""
        target = self.dram(self.rank + 1) + WORK
        for turn in (0, 1):
            blocks = pattern(16 * BLOCK, 4, turn, self.rank)
            for start in range(0, blocks.size, BLOCK):
                source = blocks.ctypes.data + start
                require(self.pool.copy_data(source, target + start, BLOCK, BmCopyType.H2G, flags=ASYNCHRONOUS))
            require(self.pool.wait())
        halves = pattern(16 * BLOCK, 5, self.rank)
        with mf.Stream() as one, mf.Stream() as two:
            for stream, start in ((one, 0), (two, 8 * BLOCK)):
                there, here = target + 16 * BLOCK + start, halves.ctypes.data + start
                require(self.pool.copy_data(here, there, 8 * BLOCK, BmCopyType.H2G, ON_STREAM, stream))
            require(one.wait())
            require(two.wait())

    def verify_queued(self) -> int:
        before = (self.rank - 1) % self.ranks
        expected = np.concatenate([pattern(16 * BLOCK, 4, 1, before), pattern(16 * BLOCK, 5, before)])
        return compare("queued copies", self.work_area(expected.size), expected)

    def store_directly(self) -> None:
        for peer in range(self.ranks):
            self.pool.array(peer, (self.ranks, 512), np.int64, offset=WORK)[self.rank] = self.rank * 1000 + peer

    def verify_stores(self) -> int:
        checked = 0
        for owner in range(self.ranks):
            got = self.pool.array(owner, (self.ranks, 512), np.int64, offset=WORK)
            expected = np.repeat(np.arange(self.ranks) * 1000 + owner, 512)
            checked += compare(f"stores on rank {owner}", got.view(np.uint8), expected.view(np.uint8))
        return checked

    def copy_between_others(self) -> None:
        source, target = self.dram(self.rank + 1), self.dram(self.rank + 2) + WORK
        require(self.pool.copy_data(source, target, BLOCK, BmCopyType.G2G))

    def verify_between_others(self) -> int:
        source = self.pool.array((self.rank - 1) % self.ranks, BLOCK, np.uint8)
        return compare("copy between two other ranks", self.work_area(BLOCK), source)

    # ---- measuring -------------------------------------------------------------------------------------------------

    def measure(self) -> list[Measurement]:
        """Between the same addresses in turns, so that both see the same caches and the same noise."""
        source, target = pattern(self.size, 6), self.dram(1) + MEASURED
        there = self.pool.array(1, self.size, np.uint8, offset=MEASURED)
        count = min(4096, self.size // (2 * PIECE))
        steps = np.arange(count) * 2 * PIECE  # every other page
        sources, targets, sizes = source.ctypes.data + steps, target + steps, np.full(count, PIECE)
        from_rows, to_rows = (a[: count * 2 * PIECE].reshape(count, -1)[:, :PIECE] for a in (source, there))
        copy, batch, memmove = self.pool.copy_data, self.pool.copy_data_batch, ctypes.memmove
        start, kind = source.ctypes.data, int(BmCopyType.H2G)

        def calls() -> None:
            for _ in range(CALLS):
                copy(start, target, PIECE, kind)

        small = in_turns(100, calls, lambda: np.copyto(repeated(there), repeated(source)))
        large = in_turns(15, lambda: copy(start, target, self.size, kind), lambda: memmove(target, start, self.size))
        many = in_turns(15, lambda: batch(sources, targets, sizes, count, kind), lambda: np.copyto(to_rows, from_rows))
        return [
            ("4 KiB", small[0] / CALLS, small[1] / CALLS, PIECE, f"{CALLS} Python calls; memcpy in a C loop"),
            (f"{self.size // MIB} MiB", *large, self.size, "one call each"),
            (f"batch of {count} × 4 KiB", *many, count * PIECE, "one call; memcpy in a C loop"),
        ]

    # ---- a death ---------------------------------------------------------------------------------------------------

    def leave_last_words(self) -> Bytes:
        words = pattern(BLOCK, 7, os.getpid())
        self.work_area(BLOCK)[:] = words
        return words

    def hold_array(self, rank: int) -> None:
        self.held = self.pool.array(rank, BLOCK, np.uint8, offset=WORK)

    def read_array(self, words: Bytes) -> int:
        held = self.held
        del self.held  # an array pins the memory of the dead
        return compare("last words", held, words)

    def start_copying(self, rank: int) -> None:
        """Copies on a thread of its own until a copy fails; returns when the first ones are done."""
        under_way = threading.Event()
        source, target = np.zeros(PIECE, np.uint8), self.dram(rank) + MEASURED

        def run() -> None:
            copies = 0
            while (code := self.pool.copy_data(source.ctypes.data, target, PIECE, BmCopyType.H2G)) == 0:
                copies += 1
                if copies == 1000:
                    under_way.set()
            self.failure = code, time.monotonic(), mf.get_last_err_msg(), copies
            under_way.set()

        self.copying = threading.Thread(target=run)
        self.copying.start()
        under_way.wait(10)

    def report_failure(self) -> tuple[int, float, str, int]:
        self.copying.join(10)
        return self.failure


def repeated(memory: Bytes) -> np.ndarray[Any, Any]:
    """The first piece, many times: copying one such array to another is a C loop of memcpy between two addresses."""
    return np.lib.stride_tricks.as_strided(memory[:PIECE].view(f"V{PIECE}"), (CALLS,), (0,))


def in_turns(rounds: int, ours: Callable[[], Any], theirs: Callable[[], Any]) -> tuple[float, float]:
    """Median seconds of both, after two rounds that only warm up."""
    samples: list[list[float]] = [[], []]
    for _ in range(rounds + 2):
        for function, taken in zip((ours, theirs), samples, strict=True):
            begun = time.perf_counter()
            function()
            taken.append(time.perf_counter() - begun)
    return statistics.median(samples[0][2:]), statistics.median(samples[1][2:])


def serve(director: Connection) -> None:
    """Steps come as (name, arguments); answers go as (worked, value or reason). Ends when the director hangs up."""
    mf.set_log_level(3)  # errors only: the demo says itself what happens
    member = Member()
    while True:
        try:
            name, arguments = director.recv()
        except EOFError:
            return
        try:
            director.send((True, getattr(member, name)(*arguments)))
        except Exception as failure:
            director.send((False, f"{name}: {failure}"))
