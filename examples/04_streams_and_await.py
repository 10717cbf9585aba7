"""Copies beside the program: asynchronous with wait(), on streams, and awaited in an event loop."""

from __future__ import annotations

import asyncio
import sys

import numpy as np
from members import Barrier, run

import memfabric_hybrid as mf
from memfabric_hybrid import bm

RANKS, SIZE = 2, 16 << 20
ASYNCHRONOUS, ON_STREAM = 1, 4  # flags of a copy


def queue(pool: bm.BigMemory, parts: np.ndarray, target: int) -> None:
    for number, part in enumerate(parts):
        there = target + number * part.nbytes
        mf.check(pool.copy_data(part.ctypes.data, there, part.nbytes, bm.BmCopyType.H2G, flags=ASYNCHRONOUS))
    mf.check(pool.wait())  # 0, or the first failure of all of them; until then the parts must not change
    np.testing.assert_array_equal(pool.array(1, parts.shape, np.uint8), parts)
    print(f"wait: {len(parts)} asynchronous copies have arrived, in order")


async def stream(pool: bm.BigMemory, parts: np.ndarray, target: int) -> None:
    with mf.Stream() as one, mf.Stream() as two:  # ordered within a stream, independent of each other
        for number, part in enumerate(parts):
            there = target + (len(parts) - 1 - number) * part.nbytes
            chosen = (one, two)[number % 2]
            mf.check(pool.copy_data(part.ctypes.data, there, part.nbytes, bm.BmCopyType.H2G, ON_STREAM, chosen))
        mf.check(await one)  # the event loop goes on meanwhile
        mf.check(await two)
        print(f"await: {one.completed} copies on one stream, {two.completed} on the other")
    np.testing.assert_array_equal(pool.array(1, parts.shape, np.uint8), parts[::-1])


def member(store_url: str, together: Barrier) -> None:
    mf.check(bm.initialize(store_url, RANKS, 0, bm.BmConfig()))
    with bm.create(0, local_dram_size=SIZE) as pool:
        mf.check(pool.join())
        together.wait()
        if bm.bm_rank_id() == 0:
            parts = np.random.default_rng(5).integers(0, 256, (8, SIZE // 8), np.uint8)
            target = pool.peer_rank_ptr(1, bm.BmMemType.HOST)
            queue(pool, parts, target)
            asyncio.run(stream(pool, parts, target))
        together.wait()
    bm.uninitialize()


if __name__ == "__main__":
    sys.exit(run(member, RANKS))
