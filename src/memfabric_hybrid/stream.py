"""`Stream`: an ordered queue of copies that run beside the program."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import Any

from memfabric_hybrid import _native
from memfabric_hybrid.api import awaiting
from memfabric_hybrid.errors import failure_of


class Stream(_native.Stream):
    """Copies submitted to one stream run in their order, on a native thread of the stream's own.

    Pass it (or its integer handle, `int(stream)`) as `stream=` with `flags=4`. `wait()` blocks until everything
    submitted so far is done and returns the first failure since the last wait; `await stream` does the same without
    blocking the event loop. An `await` that is cancelled calls off what it waited for: copies that have not begun never
    do, the one that runs ends at its next chunk, and CancelledError comes when no byte moves any more; the next wait
    then returns -2003 or -2012.

    Usable as a context manager: leaving the block waits and closes, and raises the FabricError of a copy that failed,
    unless the block itself raises.
    """

    def __await__(self) -> Generator[Any, None, int]:
        return self._finished().__await__()

    async def _finished(self) -> int:
        submitted = self.submitted
        await awaiting.notified(
            lambda notifier, token: self._notify(notifier, token, submitted), lambda: self._cancel(submitted)
        )
        return self.wait()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            code = self.wait()
            sentence = _native.last_error() if code != 0 else ""
        finally:
            self.close()
        if code != 0 and error is None:
            raise failure_of(code, sentence)
