"""A prefill worker pushes KV blocks into a decode worker, which does nothing for it, and says how fast that was."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np

import memfabric_hybrid as mf

LAYERS, BLOCK_BYTES, BLOCKS = 61, 144 << 10, 8  # one layer's part of a block; blocks in the cache


def decode() -> None:
    """Registers its cache, tells where it is, and sleeps until the other side is done."""
    with mf.TransferEngine() as engine:
        mf.check(engine.initialize(None, "127.0.0.1:0", "Decode", 0))
        cache = np.zeros((LAYERS, BLOCKS, BLOCK_BYTES), np.uint8)
        mf.check(engine.register(cache))
        print("private", engine.session_id, cache.ctypes.data, flush=True)
        print("trans_malloc", engine.session_id, engine.trans_malloc(cache.nbytes), flush=True)
        sys.stdin.read()


def prefill(session: str, kind: str, base: int) -> None:
    """Pushes block after block, each scattered over all layers, and checks one of them."""
    layers = np.arange(LAYERS, dtype=np.uint64)
    keys = np.random.default_rng(1).integers(0, 256, (LAYERS, BLOCK_BYTES), np.uint8)
    own = keys.ctypes.data + layers * np.uint64(BLOCK_BYTES)
    sizes = np.full(LAYERS, BLOCK_BYTES, np.uint64)
    with mf.TransferEngine() as engine:
        mf.check(engine.initialize(None, "127.0.0.1:0", "Prefill", 0))
        there = np.uint64(base) + layers * np.uint64(BLOCKS * BLOCK_BYTES)  # of block 0
        took_s = 0.0
        for _ in range(2):  # the first time connects and touches the pages
            began = time.perf_counter()
            for block in range(BLOCKS):
                mf.check(engine.batch_transfer_sync_write(session, own, there + np.uint64(block * BLOCK_BYTES), sizes))
            took_s = time.perf_counter() - began
        back = np.zeros_like(keys)
        into = back.ctypes.data + layers * np.uint64(BLOCK_BYTES)
        mf.check(engine.batch_transfer_sync_read(session, into, there, sizes))
        np.testing.assert_array_equal(back, keys)
    speed = BLOCKS * keys.nbytes / took_s / 1e9
    print(f"{kind}: {BLOCKS} blocks of {LAYERS} layers, {speed:.1f} GB/s, all bytes right")


if __name__ == "__main__":
    if "decode" in sys.argv:
        decode()
        sys.exit()
    command = [sys.executable, __file__, "decode"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdin and worker.stdout  # noqa: PT018  (they are pipes)
        for _ in range(2):
            name, its_session, where = worker.stdout.readline().split()
            prefill(its_session, name, int(where))
        worker.stdin.close()
