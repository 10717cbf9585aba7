"""Two processes, one pool: each leaves a greeting in the memory of the other."""

from __future__ import annotations

import multiprocessing
import socket
import sys
from multiprocessing.synchronize import Barrier

import numpy as np

import memfabric_hybrid as mf
from memfabric_hybrid import bm

RANKS = 2


def member(store_url: str, together: Barrier) -> None:
    """What each process does. Whoever comes first runs the store, and the store gives each process its rank."""
    mf.check(bm.initialize(store_url, RANKS, 0, bm.BmConfig()))
    rank = bm.bm_rank_id()
    with bm.create(0, local_dram_size=2 << 20) as pool:
        mf.check(pool.join())
        peer = 1 - rank
        pool.wait_for([peer])  # join() does not wait for the others; this does

        greeting = f"hello from rank {rank}".encode()
        pool.put(greeting, peer)
        together.wait(20)

        mine = pool.array(rank, len(greeting), np.uint8)  # my own memory: I had nothing to do to receive
        home = pool.peer_rank_ptr(rank, bm.BmMemType.HOST)  # the same number in every process
        print(f"rank {rank} with its memory at {home:#x} got: {bytes(mine).decode()}")
        together.wait(20)
    bm.uninitialize()


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as probe:
        url = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(RANKS)
    members = [context.Process(target=member, args=(url, barrier), daemon=True) for _ in range(RANKS)]
    for process in members:
        process.start()
    for process in members:
        process.join(60)
    sys.exit(int(any(process.exitcode != 0 for process in members)))
