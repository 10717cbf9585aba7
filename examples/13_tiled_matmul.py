"""A matrix multiplication whose tiles live on different ranks: each rank computes the tiles of C that it owns."""

from __future__ import annotations

import sys

import numpy as np
from heap_ranks import run
from numba import njit

import memfabric_hybrid as mf
from memfabric_hybrid import device, shm

RANKS, TILES, TILE = 2, 4, 64  # matrices of 4 × 4 tiles of 64 × 64 float64
TILE_BYTES, B, C = TILE * TILE * 8, 1 << 20, 2 << 20  # A's tiles are at offset 0


@njit
def tile(row: int, column: int, matrix: int) -> np.ndarray:
    """Tile (row, column) of a matrix, on whichever rank it lives: they are dealt round the ranks."""
    number = row * TILES + column
    ranks = device.rank_size()
    return device.array(number % ranks, (TILE, TILE), np.float64, matrix + number // ranks * TILE_BYTES)


@njit(nogil=True)
def multiply() -> None:
    for row in range(TILES):
        for column in range(TILES):
            if (row * TILES + column) % device.rank_size() == device.rank():
                out = tile(row, column, C)
                for inner in range(TILES):
                    left, right = tile(row, inner, 0), tile(inner, column, B)
                    for i in range(TILE):
                        for k in range(TILE):
                            for j in range(TILE):
                                out[i, j] += left[i, k] * right[k, j]


def tiles_of(heap: shm.ShareMemory, matrix: int) -> list[np.ndarray]:
    places = [(number % RANKS, matrix + number // RANKS * TILE_BYTES) for number in range(TILES * TILES)]
    return [heap.array(rank, (TILE, TILE), np.float64, offset) for rank, offset in places]


def member(heap: shm.ShareMemory) -> None:
    a, b = (np.random.default_rng(seed).random((TILES * TILE, TILES * TILE)) for seed in (1, 2))
    if heap.local_rank == 0:  # writes into everybody's memory
        for number in range(TILES * TILES):
            row, column = (slice(n * TILE, (n + 1) * TILE) for n in divmod(number, TILES))
            tiles_of(heap, 0)[number][:], tiles_of(heap, B)[number][:] = a[row, column], b[row, column]
    mf.check(heap.barrier())
    multiply()
    mf.check(heap.barrier())
    c = tiles_of(heap, C)
    np.testing.assert_allclose(np.block([c[row * TILES : (row + 1) * TILES] for row in range(TILES)]), a @ b)
    print(f"rank {heap.local_rank}: {TILES * TILES // RANKS} tiles computed here, all {TILES * TILES} as numpy says")


if __name__ == "__main__":
    sys.exit(run(member, RANKS))
