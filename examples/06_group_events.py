"""Who comes and who goes: group events, a member that is killed, and its rank given to a newcomer."""

from __future__ import annotations

import queue
import sys
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import numpy as np
from members import free_url, spawn

import memfabric_hybrid as mf
from memfabric_hybrid import bm

RANKS = 4


def other_member(store_url: str, pipe: Connection) -> None:
    mf.check(bm.initialize(store_url, RANKS, 0, bm.BmConfig()))
    with bm.create(0, local_dram_size=2 << 20) as pool:
        mf.check(pool.join())
        pipe.recv()  # stays until it is told to leave
    bm.uninitialize()


def invite(store_url: str) -> tuple[BaseProcess, Connection]:
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=other_member, args=(store_url, theirs), daemon=True)
    process.start()
    return process, ours


def main(store_url: str) -> int:
    mf.check(bm.initialize(store_url, RANKS, 0, bm.BmConfig()))
    events: queue.Queue[str] = queue.Queue()  # the handler runs on a thread of its own
    with bm.create(0, local_dram_size=2 << 20) as pool:
        pool.set_group_event_handler(lambda rank, event: events.put(f"rank {rank}: {event.name}"))
        mf.check(pool.join())
        victim, _ = invite(store_url)
        print(events.get(timeout=20))
        victim.kill()  # SIGKILL: no goodbye
        print(events.get(timeout=20))

        page, target = np.zeros(4096, np.uint8), pool.peer_rank_ptr(1, bm.BmMemType.HOST)
        code = pool.copy_data(page.ctypes.data, target, page.nbytes, bm.BmCopyType.H2G)
        print(f"copy to the dead: {code}, {mf.get_and_clear_last_err_msg()}")

        newcomer, pipe = invite(store_url)
        print(f"{events.get(timeout=20)}, which is the newcomer")
        mf.check(pool.copy_data(page.ctypes.data, target, page.nbytes, bm.BmCopyType.H2G))
        pipe.send("leave")
        print(events.get(timeout=20))
        newcomer.join(20)
    bm.uninitialize()
    return int(newcomer.exitcode != 0)


if __name__ == "__main__":
    sys.exit(main(free_url()))
