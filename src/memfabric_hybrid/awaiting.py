"""Waiting for native work without blocking an event loop."""

from __future__ import annotations

import os


async def readable(fd: int) -> None:
    """Returns when the descriptor can be read; takes it over and closes it, also when the wait is cancelled."""
    import asyncio  # here: most programs never await, and importing it takes longer than all of ours

    loop = asyncio.get_running_loop()
    finished = asyncio.Event()
    loop.add_reader(fd, finished.set)
    try:
        await finished.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)
