"""The shapes every path is measured in: single pieces, one KV block, and many pages.

kv122 is one block of a DeepSeek-R1 KV cache: 61 layers, each a piece of 128 KiB and one of 16 KiB, scattered.
Cold shapes cycle through eight layouts, so that no copy finds its bytes in the caches.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

KIB, MIB = 1 << 10, 1 << 20
REGION_BYTES = 512 * MIB
LAYOUTS = 8

Offsets = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Layout:
    """Pieces as (source offset, target offset, size), three arrays of one length."""

    sources: Offsets
    targets: Offsets
    sizes: Offsets


@dataclass(frozen=True)
class Shape:
    """`operations` of it are one sample; the layouts are used in turn."""

    name: str
    operations: int
    layouts: tuple[Layout, ...]

    @property
    def pieces(self) -> int:
        return len(self.layouts[0].sizes)

    @property
    def total_bytes(self) -> int:
        return int(self.layouts[0].sizes.sum())


def single(name: str, size_bytes: int, operations: int, layouts: int) -> Shape:
    made = [_layout([(i * size_bytes, i * size_bytes, size_bytes)]) for i in range(layouts)]
    return Shape(name, operations, tuple(made))


def kv122() -> Shape:
    def one(seed: int) -> Layout:
        rng = random.Random(seed)
        half = REGION_BYTES // 2
        large = [(a * 128 * KIB, b * 128 * KIB, 128 * KIB) for a, b in _pairs(rng, 61, half // (128 * KIB))]
        small = [(half + a * 16 * KIB, half + b * 16 * KIB, 16 * KIB) for a, b in _pairs(rng, 61, half // (16 * KIB))]
        return _layout([piece for layer in zip(large, small, strict=True) for piece in layer])

    return Shape("kv122", 16, tuple(one(100 + i) for i in range(LAYOUTS)))


def pages() -> Shape:
    def one(seed: int) -> Layout:
        rng = random.Random(seed)
        size = 4 * KIB
        return _layout([(a * size, b * size, size) for a, b in _pairs(rng, 4096, REGION_BYTES // size)])

    return Shape("4096x4KiB", 8, tuple(one(200 + i) for i in range(LAYOUTS)))


def all_shapes() -> list[Shape]:
    return [
        single("4KiB", 4 * KIB, 2000, 1),
        single("64KiB", 64 * KIB, 1000, 1),
        single("1MiB", MIB, 200, 1),
        single("64MiB", 64 * MIB, 8, LAYOUTS),
        kv122(),
        pages(),
    ]


def network_sizes() -> list[Shape]:
    """For a curve: every power of four between those above."""
    sizes = [4 * KIB * 4**i for i in range(8)]
    return [single(_name(size), size, max(8, min(1000, 256 * MIB // size)), 1) for size in sizes]


def _name(size_bytes: int) -> str:
    return f"{size_bytes // MIB} MiB" if size_bytes >= MIB else f"{size_bytes // KIB} KiB"


def _pairs(rng: random.Random, count: int, limit: int) -> list[tuple[int, int]]:
    return list(zip(rng.sample(range(limit), count), rng.sample(range(limit), count), strict=True))


def _layout(pieces: list[tuple[int, int, int]]) -> Layout:
    table = np.array(pieces, dtype=np.uint64)
    return Layout(*(np.ascontiguousarray(table[:, column]) for column in range(3)))
