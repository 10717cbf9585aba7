"""Many pieces in one call: a batch scattered over another rank's memory, and a tile cut out of a matrix."""

from __future__ import annotations

import sys

import numpy as np
from members import Barrier, run

import memfabric_hybrid as mf
from memfabric_hybrid import bm

RANKS, COUNT, SIZE = 2, 1024, 4096


def scatter(pool: bm.BigMemory, target: int) -> None:
    """Numpy's 64-bit arrays of addresses and sizes are used where they are; lists work too."""
    pieces = np.random.default_rng(3).integers(0, 256, (COUNT, SIZE), np.uint8)
    order = np.random.default_rng(4).permutation(COUNT)
    sources = pieces.ctypes.data + np.arange(COUNT) * SIZE
    targets, sizes = target + order * SIZE, np.full(COUNT, SIZE)
    mf.check(pool.copy_data_batch(sources, targets, sizes, COUNT, bm.BmCopyType.H2G))
    np.testing.assert_array_equal(pool.array(1, (COUNT, SIZE), np.uint8)[order], pieces)
    print(f"batch: {COUNT} pieces of {SIZE} bytes, each where it belongs")

    targets[-1] += 16 << 20  # outside of rank 1; all pieces are checked before the first byte moves
    code = pool.copy_data_batch(sources, targets, sizes, COUNT, bm.BmCopyType.H2G)
    print(f"batch with one bad piece: {code}, {mf.get_and_clear_last_err_msg()}")


def cut_a_tile(pool: bm.BigMemory, target: int) -> None:
    matrix = pool.array(1, (512, 512), np.float32)
    matrix[:] = np.arange(512 * 512).reshape(512, 512)
    tile = np.zeros((64, 32), np.float32)  # rows 100 to 163, columns 200 to 231
    corner = target + (100 * 512 + 200) * 4
    mf.check(pool.copy_data_2d(corner, 512 * 4, tile.ctypes.data, 32 * 4, 32 * 4, 64, bm.BmCopyType.G2H))
    np.testing.assert_array_equal(tile, matrix[100:164, 200:232])
    print("2D: a tile of 64 rows and 32 columns out of a matrix of 512 by 512")


def member(store_url: str, together: Barrier) -> None:
    mf.check(bm.initialize(store_url, RANKS, 0, bm.BmConfig()))
    with bm.create(0, local_dram_size=16 << 20) as pool:
        mf.check(pool.join())
        together.wait()
        if bm.bm_rank_id() == 0:
            target = pool.peer_rank_ptr(1, bm.BmMemType.HOST)
            scatter(pool, target)
            cut_a_tile(pool, target)
        together.wait()
    bm.uninitialize()


if __name__ == "__main__":
    sys.exit(run(member, RANKS))
