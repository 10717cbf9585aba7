"""The copy types: which address may stand where, what AUTO makes of it, and what a wrong one is told."""

from __future__ import annotations

import sys

import numpy as np
from members import Barrier, run

import memfabric_hybrid as mf
from memfabric_hybrid import bm

T = bm.BmCopyType
RANKS, SIZE = 3, 4096
PAIRS = ((T.L2G, T.G2L), (T.H2G, T.G2H), (T.L2GH, T.GH2L), (T.H2GH, T.GH2H), (T.AUTO, T.AUTO))


def copy(pool: bm.BigMemory) -> None:
    """L: local. H: local host. G: any rank's memory, DRAM or HBM. GH: any rank's DRAM."""
    mine = np.random.default_rng(1).integers(0, 256, SIZE, np.uint8)
    back = np.empty(SIZE, np.uint8)
    dram = pool.peer_rank_ptr(1, bm.BmMemType.HOST)
    for there, home in PAIRS:
        back[:] = 0
        mf.check(pool.copy_data(mine.ctypes.data, dram, SIZE, there))
        mf.check(pool.copy_data(dram, back.ctypes.data, SIZE, home))
        np.testing.assert_array_equal(back, mine)
        print(f"{there.name} to rank 1, {home.name} back: the same {SIZE} bytes")

    mf.check(pool.copy_data(dram, pool.peer_rank_ptr(2, bm.BmMemType.HOST), SIZE, T.G2G))
    np.testing.assert_array_equal(pool.array(2, SIZE, np.uint8), mine)
    print("G2G from rank 1 to rank 2, done by rank 0: the same bytes, and neither of them had to do anything")

    hbm = pool.peer_rank_ptr(1, bm.BmMemType.DEVICE)
    code = pool.copy_data(mine.ctypes.data, hbm, SIZE, T.H2GH)
    print(f"H2GH into HBM: {code}, {mf.get_and_clear_last_err_msg()}")


def member(store_url: str, together: Barrier) -> None:
    mf.check(bm.initialize(store_url, RANKS, 0, bm.BmConfig()))
    with bm.create(0, local_dram_size=2 << 20, local_hbm_size=2 << 20) as pool:
        mf.check(pool.join())
        together.wait()
        if bm.bm_rank_id() == 0:
            copy(pool)
        together.wait()
    bm.uninitialize()


if __name__ == "__main__":
    sys.exit(run(member, RANKS))
