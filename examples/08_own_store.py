"""A store as a program of its own; it is killed, copies go on, and another store takes its place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
from members import Barrier, free_url, run

import memfabric_hybrid as mf
from memfabric_hybrid import bm

RANKS = 3
LAUNCHER = "memfabric_hybrid.launch_ascend_mf_store"


def member(new_url: str, together: Barrier, old_url: str, old_store: int) -> None:
    config = bm.BmConfig()
    config.start_store = False  # a client only; it retries for init_timeout seconds
    mf.check(bm.initialize(old_url, RANKS, 0, config))
    rank = bm.bm_rank_id()
    with bm.create(0, local_dram_size=2 << 20) as pool:
        mf.check(pool.join())
        together.wait()
        if rank == 0:
            os.kill(old_store, signal.SIGKILL)
        together.wait()

        number = np.array([rank], np.int64)
        target = pool.peer_rank_ptr((rank + 1) % RANKS, bm.BmMemType.HOST)
        mf.check(pool.copy_data(number.ctypes.data, target, number.nbytes, bm.BmCopyType.H2G))
        together.wait()
        print(f"rank {rank}: copies need no store, rank {pool.array(rank, 1, np.int64)[0]} wrote to me")

        if rank == 0:
            mf.check(mf.create_config_store(new_url))  # in this process, until uninitialize() or its end
        mf.check(bm.update_store_url(new_url))
        mf.check(pool.leave())
        mf.check(pool.join())
        print(f"rank {rank}: left and joined again through the new store")
        together.wait()
    bm.uninitialize()
    together.wait()  # rank 0 serves until everybody is done


def main() -> int:
    url = free_url()
    with subprocess.Popen([sys.executable, "-m", LAUNCHER], env={**os.environ, "MF_CONFIG_STORE_URL": url}) as store:
        try:
            return run(member, RANKS, url, store.pid)
        finally:
            store.kill()


if __name__ == "__main__":
    sys.exit(main())
