"""A process of the scale benchmark: the store, a member, a process with many engines, or their initiator.

    scale_process.py store URL
    scale_process.py member URL RANKS RANK ADDRESS
    scale_process.py targets ADDRESS COUNT
    scale_process.py initiator ADDRESS

It prints "ready" and what others have to know as JSON, and ends with its standard input. The initiator reads lines of
sessions and addresses as JSON, writes to each of them once, and prints "ready" again.
"""

from __future__ import annotations

import json
import mmap
import sys
from typing import Any

import numpy as np

import memfabric_hybrid as mf
from memfabric_hybrid import bm, shm

POOL_BYTES = HEAP_BYTES = 2 << 20
REGISTERED_BYTES = 64 << 10
WRITTEN_BYTES = 4096
PATIENCE_S = 120
kept: list[Any] = []  # as long as the process lives


def must(code: int) -> None:
    if code != 0:
        raise SystemExit(f"{code}: {mf.get_last_err_msg()}")


def ready(told: Any) -> None:
    print("ready", json.dumps(told), flush=True)


def store(url: str) -> None:
    must(mf.create_config_store(url))
    ready(None)


def member(url: str, ranks: str, rank: str, address: str) -> None:
    """A pool, a heap and an engine."""
    pool_config = bm.BmConfig()
    pool_config.init_timeout = pool_config.create_timeout = pool_config.operation_timeout = PATIENCE_S
    pool_config.start_store = pool_config.auto_ranking = False
    pool_config.rank_id = int(rank)
    must(bm.initialize(url, int(ranks), 0, pool_config))
    pool = bm.create2(0, POOL_BYTES, max_dram_size=POOL_BYTES)
    must(pool.join())
    heap_config = shm.ShmConfig()
    heap_config.init_timeout = heap_config.create_timeout = heap_config.operation_timeout = PATIENCE_S
    heap_config.start_store = False
    must(shm.initialize(url, int(ranks), int(rank), 0, heap_config))
    heap = shm.create(0, int(ranks), int(rank), HEAP_BYTES)
    must(heap.barrier())
    kept.extend([pool, heap, engine_at(address)])
    ready(None)


def engine_at(address: str) -> mf.TransferEngine:
    engine = mf.TransferEngine()
    must(engine.initialize(None, f"{address}:0", "Decode", 0))
    return engine


def targets(address: str, count: str) -> None:
    """Each engine with memory of its own; the sessions and the memory's addresses."""
    told = []
    for _ in range(int(count)):
        engine = engine_at(address)
        memory = mmap.mmap(-1, REGISTERED_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        array = np.frombuffer(memory, np.uint8)
        must(engine.register_memory(array.ctypes.data, REGISTERED_BYTES))
        kept.extend([engine, memory, array])
        told.append([engine.session_id, array.ctypes.data])
    ready(told)


def initiator(address: str) -> None:
    engine = engine_at(address)
    source = np.ones(WRITTEN_BYTES, np.uint8)
    ready(None)
    for line in sys.stdin:
        for session, target in json.loads(line):
            must(engine.transfer_sync_write(session, source.ctypes.data, target, WRITTEN_BYTES))
        ready([])


if __name__ == "__main__":
    {"store": store, "member": member, "targets": targets, "initiator": initiator}[sys.argv[1]](*sys.argv[2:])
    sys.stdin.read()
