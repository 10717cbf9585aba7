"""A prefill worker writes whole arrays, waits for none of them, and its peer hears when all bytes are there."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import numpy as np

import memfabric_hybrid as mf

BLOCKS, FLOATS = 8, 1 << 18


async def decode() -> None:
    """Registers its cache, tells where it is, and awaits words about what has come."""
    with mf.TransferEngine() as engine:
        mf.check(engine.initialize(None, "127.0.0.1:0", "Decode", 0))
        cache = np.zeros((BLOCKS, FLOATS), np.float32)
        mf.check(engine.register(cache))
        print(engine.session_id, cache.ctypes.data, flush=True)
        async for word in engine.notified():
            if word.data == b"that is all":
                break
            print(f"{word.data.decode()}: sum {cache[: int(word.data.split()[0])].sum():.0f}", flush=True)


async def prefill(session: str, cache: int) -> None:
    blocks = np.ones((BLOCKS, FLOATS), np.float32)
    there = [cache + block.nbytes * number for number, block in enumerate(blocks)]
    with mf.TransferEngine() as engine:
        mf.check(engine.initialize(None, "127.0.0.1:0", "Prefill", 0))
        engine.write(session, blocks[0], there[0], notify=b"1 block")  # the bytes are there when it returns
        tickets = [engine.submit_write(session, blocks[i], there[i]) for i in range(1, BLOCKS - 1)]
        await asyncio.gather(*(ticket.finished() for ticket in tickets))  # raises for one that failed
        await engine.submit_write(session, blocks[-1], there[-1], notify=b"8 blocks").finished()
        back = engine.read(session, np.empty_like(blocks), cache)
        np.testing.assert_array_equal(back, blocks)
        try:
            engine.write(session, blocks, cache + 4)
        except ValueError as error:
            print(f"beyond the cache: {error}")
        mf.check(engine.notify(session, b"that is all"))


async def main() -> None:
    command = [sys.executable, __file__, "decode"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        if worker.stdout is None:
            raise RuntimeError("it is a pipe")
        session, cache = worker.stdout.readline().split()
        await prefill(session, int(cache))
        print(worker.stdout.read(), end="")


if __name__ == "__main__":
    asyncio.run(decode() if "decode" in sys.argv else main())
