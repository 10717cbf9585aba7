"""Every copy type, every way to copy, every pair of places, checked byte by byte against a model.

Whoever makes a `Field` copies: between its own plain memory, its own part of a pool, and the parts of the other ranks,
on whatever route they are. Sources lie in the first half of every place and targets in the second, so that ranges never
overlap.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

import memfabric_hybrid as mf
from memfabric_hybrid.bm import BigMemory, BmCopyType, BmMemType

HALF = 1 << 20
SIZE = 2 * HALF  # of every place
AROUND = 256  # bytes before and behind what was written, which are looked at as well
TIERS = {"DRAM": BmMemType.HOST, "HBM": BmMemType.DEVICE}
PLAIN = "plain"

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Place = str  # "plain", or rank and tier such as "2 HBM"
Pairs = dict[BmCopyType, list[tuple[Place, Place]]]


def pairs_between(own: int, ranks: Sequence[int]) -> Pairs:
    """Which places each type of copy goes between."""
    global_host = [f"{rank} DRAM" for rank in ranks]
    everywhere = [*global_host, *(f"{rank} HBM" for rank in ranks)]
    local, local_host = [PLAIN, f"{own} DRAM", f"{own} HBM"], [PLAIN, f"{own} DRAM"]
    sides = {
        BmCopyType.L2G: (local, everywhere),
        BmCopyType.G2L: (everywhere, local),
        BmCopyType.G2H: (everywhere, local_host),
        BmCopyType.H2G: (local_host, everywhere),
        BmCopyType.L2GH: (local, global_host),
        BmCopyType.GH2L: (global_host, local),
        BmCopyType.GH2H: (global_host, local_host),
        BmCopyType.H2GH: (local_host, global_host),
        BmCopyType.G2G: (everywhere, everywhere),
    }
    pairs = {copy_type: list(product(*places)) for copy_type, places in sides.items()}
    pairs[BmCopyType.AUTO] = [pair for pair in product([PLAIN, *everywhere], repeat=2) if pair != (PLAIN, PLAIN)]
    return pairs


class Field:
    """The pool, where all places are, and a model of what they must hold."""

    def __init__(self, pool: BigMemory, ranks: Sequence[int]) -> None:
        self.pool = pool
        self.pairs = pairs_between(pool.local_rank, ranks)
        self.plain: Bytes = np.zeros(SIZE, np.uint8)
        self._starts = {PLAIN: int(self.plain.ctypes.data)}
        for rank, (tier, mem_type) in product(ranks, TIERS.items()):
            self._starts[f"{rank} {tier}"] = pool.peer_rank_ptr(rank, mem_type)
        self.model: dict[Place, Bytes] = {}
        fill = np.random.default_rng(1)
        for place in self._starts:
            self.model[place] = fill.integers(0, 256, SIZE, np.uint8)
            self._set(place, self.model[place])

    def _set(self, place: Place, content: Bytes) -> None:
        if place == PLAIN:
            self.plain[:] = content
        else:
            start = int(content.ctypes.data)
            assert self.pool.copy_data(start, self.address(place, 0), SIZE, BmCopyType.H2G) == 0, mf.get_last_err_msg()

    def seen(self, place: Place, begin: int = 0, end: int = SIZE) -> Bytes:
        """What is there, as this process sees it."""
        if place == PLAIN:
            return self.plain[begin:end]
        content: Bytes = np.zeros(end - begin, np.uint8)
        code = self.pool.copy_data(self.address(place, begin), int(content.ctypes.data), end - begin, BmCopyType.G2H)
        assert code == 0, mf.get_last_err_msg()
        return content

    def address(self, place: Place, offset: int) -> int:
        return self._starts[place] + offset

    def expect(self, source: Place, source_at: int, target: Place, target_at: int, size: int) -> None:
        self.model[target][target_at : target_at + size] = self.model[source][source_at : source_at + size]

    def check(self, place: Place, begin: int = 0, end: int = SIZE) -> None:
        begin, end = max(begin, 0), min(end, SIZE)
        np.testing.assert_array_equal(
            self.seen(place, begin, end), self.model[place][begin:end], f"{place} differs from {begin} on"
        )

    def copy(self, source: Place, source_at: int, target: Place, target_at: int, size: int, *how: Any) -> None:
        code = self.pool.copy_data(self.address(source, source_at), self.address(target, target_at), size, *how)
        assert code == 0, mf.get_last_err_msg()
        self.expect(source, source_at, target, target_at, size)

    def batch(
        self, source: Place, target: Place, pieces: Sequence[tuple[int, int, int]], container: Any, *how: Any
    ) -> None:
        sources = container([self.address(source, source_at) for source_at, _, _ in pieces])
        targets = container([self.address(target, target_at) for _, target_at, _ in pieces])
        sizes = container([size for _, _, size in pieces])
        code = self.pool.copy_data_batch(sources, targets, sizes, len(pieces), *how)
        assert code == 0, mf.get_last_err_msg()
        for source_at, target_at, size in pieces:
            self.expect(source, source_at, target, target_at, size)

    def rectangle(
        self, source: Place, target: Place, pitches: tuple[int, int], width: int, height: int, *how: Any
    ) -> None:
        code = self.pool.copy_data_2d(
            self.address(source, 0), pitches[0], self.address(target, HALF), pitches[1], width, height, *how
        )
        assert code == 0, mf.get_last_err_msg()
        for row in range(height):
            self.expect(source, row * pitches[0], target, HALF + row * pitches[1], width)

    def wait(self) -> None:
        assert self.pool.wait() == 0, mf.get_last_err_msg()

    def exercise(self, seed: int = 2) -> None:
        """Every type between every pair of places, in every way to copy."""
        choose = random.Random(seed)
        for copy_type, pairs in self.pairs.items():
            for source, target in pairs:
                size = choose.choice((1, 7, 64, 4096, 40_000))
                source_at, target_at = choose.randrange(HALF - size), HALF + choose.randrange(HALF - size)
                self.copy(source, source_at, target, target_at, size, copy_type)
                self.copy(source, source_at + 1, target, target_at, size - 1 or 1, copy_type, 1)
                self.wait()  # what follows is not ordered with it
                pieces = [
                    (choose.randrange(HALF - 900), HALF + 1000 * i + choose.randrange(90), 900) for i in range(20)
                ]
                self.batch(source, target, pieces, list, copy_type)
                self.rectangle(source, target, (100, 130), 90, 50, copy_type)
                self.check(target, target_at - AROUND, target_at + size + AROUND)
                self.check(target, HALF - AROUND, HALF + 20 * 1000 + AROUND)
        for place in self.model:
            self.check(place)
        assert mf.get_last_err_msg() == "", "success leaves no last error"

    def digests(self) -> dict[Place, str]:
        """Of what every place must hold; `digest` of what its owner sees there has to be the same."""
        return {place: digest(content.tobytes()) for place, content in self.model.items() if place != PLAIN}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
