"""`Stream`: an ordered queue of copies that run beside the program."""

from __future__ import annotations

import os
from collections.abc import Generator
from types import TracebackType
from typing import Any

from memfabric_hybrid import _native


class Stream(_native.Stream):
    """Copies submitted to one stream run in their order, on a native thread of the stream's own.

    Pass it (or its integer handle, `int(stream)`) as `stream=` with `flags=4`. `wait()` blocks until everything
    submitted so far is done and returns the first failure since the last wait; `await stream` does the same without
    blocking the event loop. Usable as a context manager: leaving the block waits and closes.
    """

    def __await__(self) -> Generator[Any, None, int]:
        return self._finished().__await__()

    async def _finished(self) -> int:
        import asyncio  # here: most programs never await, and importing it takes longer than all of ours

        loop = asyncio.get_running_loop()
        fd = self.notify_fd(self.submitted)
        finished = asyncio.Event()
        loop.add_reader(fd, finished.set)
        try:
            await finished.wait()
        finally:
            loop.remove_reader(fd)
            os.close(fd)
        return self.wait()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wait()
        self.close()
