"""A process that copies, transfers and meets the others in barriers without a pause, and forks meanwhile.

The target of `Cluster` in the campaign of forks. Whatever fails in its threads is kept and told by `progress`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

import numpy as np

import memfabric_hybrid as mf
from memfabric_hybrid import bm, shm
from support import forked_child, pool_worker

SIZE = 64 * 1024
WORLD = 6  # the workers, and children that become members
KINDS = 4  # of work that `work` begins

engine = mf.TransferEngine()
heaps: list[shm.ShareMemory] = []
done: Counter[str] = Counter()
wrong: list[str] = []
stopping = threading.Event()
threads: list[threading.Thread] = []
_addresses: list[np.ndarray] = []


def enter(store_url: str, rank: int, ranks: int) -> tuple[str, int, int]:
    """Pool, heap and engine; (session, address of its memory, rank in the pool)."""
    rank_in_pool = pool_worker.take_part(store_url, WORLD, dram=4 << 20, settings={"start_store": False})
    config = shm.ShmConfig()
    config.start_store = False
    config.init_timeout = config.create_timeout = config.operation_timeout = 20
    pool_worker.must(shm.initialize(store_url, ranks, rank, 0, config))
    heaps.append(shm.create(0, ranks, rank, 2 << 20))
    pool_worker.must(engine.initialize(None, "127.0.0.1:0", "Decode", 0))
    memory = np.zeros(SIZE, np.uint8)
    _addresses.append(memory)
    pool_worker.must(engine.register(memory))
    return engine.session_id, memory.ctypes.data, rank_in_pool


def work(session: str, address: int, rank_in_pool: int) -> None:
    """Threads that use the peer's session and memory, its rank in the pool, and the heap."""
    pool, heap = pool_worker.pools[0], heaps[0]
    place = pool.peer_rank_ptr(rank_in_pool, bm.BmMemType.HOST)
    data, back = np.arange(SIZE, dtype=np.uint8), np.empty(SIZE, np.uint8)

    def there_and_back() -> int:
        code = pool.copy_data(data.ctypes.data, place, SIZE, bm.BmCopyType.H2G)
        return code or pool.copy_data(place, back.ctypes.data, SIZE, bm.BmCopyType.G2H) or -int((back != data).any())

    calls: dict[str, Callable[[], int]] = {
        "copy": there_and_back,
        "queued copy": lambda: pool.copy_data(data.ctypes.data, place, SIZE, bm.BmCopyType.H2G, 1) or pool.wait(),
        "transfer": lambda: engine.transfer_sync_write(session, data.ctypes.data, address, SIZE),
        "barrier": heap.barrier,
    }
    for name, call in calls.items():
        threads.append(threading.Thread(target=_repeat, args=(name, call), name=name, daemon=True))
        threads[-1].start()


def _repeat(name: str, call: Callable[[], int]) -> None:
    while not stopping.is_set():
        code = call()
        if code != 0:
            wrong.append(f"{name} returned {code}: {mf.get_last_err_msg()}")
            return
        done[name] += 1
        stopping.wait(0.0005)


def fork(store_url: str, *, anew: bool) -> None:
    """A child that finds everything closed and, if wanted, uses the library anew."""
    config = bm.BmConfig()
    config.start_store = False
    config.init_timeout = config.create_timeout = config.operation_timeout = 10

    def child() -> None:
        forked_child.check_inherited(pool_worker.pools[0], engine, heaps[0])
        if anew:
            forked_child.use_anew(store_url, config, WORLD)

    forked_child.run_in_child(child, lambda text: os.write(sys.stderr.fileno(), text.encode()) and None)


def progress() -> tuple[dict[str, int], list[str]]:
    """(what was done how often, what went wrong)."""
    return dict(done), list(wrong)


def goes_on(before: dict[str, int], timeout_s: float) -> tuple[bool, tuple[dict[str, int], list[str]]]:
    """Whether every kind of work is done once more in time, and the progress then."""

    def all_done_once_more() -> bool:
        return len(done) == KINDS and all(times > before.get(kind, 0) for kind, times in dict(done).items())

    give_up_at = time.monotonic() + timeout_s
    while not wrong and not all_done_once_more() and time.monotonic() < give_up_at:
        time.sleep(0.001)
    return all_done_once_more(), progress()


def stop(leaves: bool) -> None:
    """Ends the threads; the last one to arrive in a barrier is waited for no more once somebody `leaves`."""
    stopping.set()
    if leaves:
        heaps.pop().destroy()
    for thread in threads:
        thread.join()
