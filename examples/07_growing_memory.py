"""Ranks of different sizes that grow: create2 sets the limits, extend_local_mem moves within them."""

from __future__ import annotations

import sys

import numpy as np
from members import Barrier, run

import memfabric_hybrid as mf
from memfabric_hybrid import bm

RANKS, MIB = 2, 1 << 20


def member(store_url: str, together: Barrier) -> None:
    mf.check(bm.initialize(store_url, RANKS, 0, bm.BmConfig()))
    rank = bm.bm_rank_id()
    # Rank 0 contributes nothing, rank 1 four MiB; a slot has room for 16 MiB, and then the next one begins.
    with bm.create2(0, local_dram_size=rank * 4 * MIB, max_dram_size=16 * MIB) as pool:
        mf.check(pool.join())
        together.wait()
        if rank == 1:
            print(f"rank 1 starts with {pool.local_mem_size(bm.BmMemType.HOST) // MIB} MiB of 16 MiB")
            mf.check(pool.extend_local_mem(bm.BmMemType.HOST, 8 * MIB))  # when it returns, everybody can use it
            print(f"rank 1 has {pool.local_mem_size(bm.BmMemType.HOST) // MIB} MiB now")
        together.wait()

        if rank == 0:
            page = np.full(MIB, 7, np.uint8)
            last = pool.peer_rank_ptr(1, bm.BmMemType.HOST) + 11 * MIB
            mf.check(pool.copy_data(page.ctypes.data, last, MIB, bm.BmCopyType.H2G))
            print("rank 0, without memory of its own in the pool, wrote to the new end of rank 1")
            code = pool.copy_data(page.ctypes.data, last + MIB, MIB, bm.BmCopyType.H2G)
            print(f"behind that end: {code}, {mf.get_and_clear_last_err_msg()}")
        together.wait()

        if rank == 1:
            np.testing.assert_array_equal(pool.array(1, MIB, np.uint8, offset=11 * MIB), 7)
            code = pool.extend_local_mem(bm.BmMemType.HOST, 8 * MIB)
            print(f"beyond the limit: {code}, {mf.get_and_clear_last_err_msg()}")
        together.wait()
    bm.uninitialize()


if __name__ == "__main__":
    sys.exit(run(member, RANKS))
