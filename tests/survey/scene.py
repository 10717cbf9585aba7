"""One of everything in one process, alive and well: what the survey calls wrongly, and must find unchanged."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import memfabric_hybrid as mf
from memfabric_hybrid import bm, offload, shm

MIB = 1 << 20
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def must(code: int) -> None:
    assert code == 0, mf.get_last_err_msg()


class Scene:
    """A pool, a heap, two engines of which one has registered memory, a stream; and closed ones of each."""

    def __init__(self, store_url: str) -> None:
        self.store_url = store_url
        config = bm.BmConfig(init_timeout=20, create_timeout=20, operation_timeout=20)
        must(bm.initialize(store_url, 4, 0, config))
        self.pool = bm.create2(0, 4 * MIB, 8 * MIB, 2 * MIB, 2 * MIB)
        must(self.pool.join())
        self.closed_pool = bm.create(1, 2 * MIB)
        self.closed_pool.destroy()
        heap_config = shm.ShmConfig(init_timeout=20, create_timeout=20, operation_timeout=20)
        must(shm.initialize(store_url, 1, 0, 0, heap_config))
        self.heap = shm.create(0, 1, 0, 2 * MIB)
        self.closed_heap = shm.create(1, 1, 0, 2 * MIB)
        must(self.closed_heap.destroy())
        self.own: Bytes = np.full(4096, 7, np.uint8)
        self.peers: Bytes = np.full(4096, 7, np.uint8)
        self.peer = mf.TransferEngine()
        must(self.peer.initialize(None, "127.0.0.1:0", "Decode", 0))
        must(self.peer.register(self.peers))
        self.engine = mf.TransferEngine()
        must(self.engine.initialize(None, "127.0.0.1:0", "Prefill", 0))
        self.arena = self.engine.trans_malloc(4096)
        cache = offload.OffloadConfig()
        cache.reserve_size = cache.alloc_size = 4 * MIB
        must(offload.initialize(cache))
        self.block = offload.malloc(4096)
        self.numbers = np.zeros(1, np.uint64)
        self.unopened = mf.TransferEngine()
        self.destroyed = mf.TransferEngine()
        must(self.destroyed.initialize(None, "127.0.0.1:0", "Decode", 0))
        self.destroyed.destroy()
        self.stream = mf.Stream()
        self.closed_stream = mf.Stream()
        self.closed_stream.close()
        self.dram = self.pool.peer_rank_ptr(0, bm.BmMemType.HOST)
        self.plain = int(self.own.ctypes.data)
        self.there = int(self.peers.ctypes.data)
        # What is made with the first use is made now: later calls change nothing.
        self.engine.submit_write(self.peer.session_id, self.own, self.there).result(20)
        self.ticket = self.engine.submit_read(self.peer.session_id, self.plain, self.there, 64)
        self.ticket.result(20)
        must(self.engine.notify(self.peer.session_id, b"first"))
        self.pool.array(0, 4 * MIB, np.uint8)[:] = 1
        self.heap.array(0, 2 * MIB, np.uint8)[:] = 2

    def state(self) -> tuple[object, ...]:
        """Everything that a call could have changed."""
        memory = [self.pool.array(0, 4 * MIB, np.uint8), self.heap.array(0, 2 * MIB, np.uint8), self.own, self.peers]
        return (
            [hashlib.blake2b(part).hexdigest() for part in memory],
            repr(self.pool),
            repr(self.heap),
            bm.bm_rank_id(),
            self.engine.session_id,
            self.peer.session_id,
            self.engine._registration_count,
            self.peer._registration_count,
            self.stream.submitted,
            offload.get_dva(self.block),
            self.heap.symmetric_size,
            self.pool.wait(),
            self.stream.wait(),
        )

    def close(self) -> None:
        self.stream.close()
        self.engine.destroy()
        self.peer.destroy()
        mf.uninitialize()


@contextmanager
def scene(store_url: str) -> Iterator[Scene]:
    made = Scene(store_url)
    try:
        yield made
    finally:
        made.close()
        mf.get_and_clear_last_err_msg()
