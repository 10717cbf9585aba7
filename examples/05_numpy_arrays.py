"""The pool as numpy arrays: loads and stores at global addresses, without a single copy call."""

from __future__ import annotations

import sys

import numpy as np
from members import Barrier, run

import memfabric_hybrid as mf
from memfabric_hybrid import bm

RANKS, COUNT = 4, 100_000


def member(store_url: str, together: Barrier) -> None:
    """Every rank adds up its part of a series; rank 0 finds the results where the others stored them."""
    mf.check(bm.initialize(store_url, RANKS, 0, bm.BmConfig()))
    rank = bm.bm_rank_id()
    with bm.create(0, local_dram_size=4 << 20) as pool:
        mf.check(pool.join())
        together.wait()
        if rank == 0:
            for peer in range(RANKS):  # written by rank 0, straight into the memory of each rank
                pool.array(peer, COUNT, np.float64)[:] = np.arange(peer * COUNT, (peer + 1) * COUNT) + 1.0
        together.wait()

        terms = pool.array(rank, COUNT, np.float64)
        sums = pool.array(0, RANKS, np.float64, offset=2 << 20)  # on rank 0, seen by all
        sums[rank] = (1.0 / terms**2).sum()
        print(f"rank {rank}: terms {terms[0]:.0f} to {terms[-1]:.0f}")
        together.wait()

        if rank == 0:
            print(f"1/1² + 1/2² + … + 1/{RANKS * COUNT}² = {sums.sum():.5f}; π²/6 = {np.pi**2 / 6:.5f}")
            np.testing.assert_allclose(sums.sum(), np.pi**2 / 6, atol=1e-5)
        together.wait()
    print(f"rank {rank}: the array outlives the pool: {terms[-1]:.0f}")
    bm.uninitialize()


if __name__ == "__main__":
    sys.exit(run(member, RANKS))
