"""`Ticket`: a transfer that runs beside the program, to be asked for, waited for, awaited or taken back."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator
from typing import Any

from memfabric_hybrid import _native
from memfabric_hybrid.api import awaiting, boundary
from memfabric_hybrid.errors import FabricError

_under_way: deque[tuple[_native.TransferTicket, object]] = deque()  # the oldest first
_lock = threading.Lock()


def keep_alive(native: _native.TransferTicket, buffer: object) -> None:
    """Until the transfer is over, whoever forgets its ticket, and a little longer: until a later one begins."""
    with _lock:
        while _under_way and _under_way[0][0].done:
            _under_way.popleft()
        _under_way.append((native, buffer))


class Ticket:
    """Made by `TransferEngine.submit_write` and `submit_read`. Keeps its engine alive.

    `wait()` and `await ticket` give a code; `result()` and `await ticket.finished()` raise.

    An `await` that is cancelled calls the transfer off: one that has not begun never does, one that runs ends at its
    next chunk, and CancelledError comes when no byte moves any more. Shield it (`asyncio.shield`) to let it go on.
    """

    def __init__(self, native: _native.TransferTicket, kept: object) -> None:
        self._native = native
        self._kept = kept

    @property
    def done(self) -> bool:
        """Whether the transfer has ended, well or not, or was cancelled."""
        return self._native.done

    def wait(self, timeout: float | None = None, *, timeout_s: float | None = None) -> int:
        """The transfer's code; -2004 if it has not ended after `timeout` seconds; -2003 if it was cancelled.

        `timeout_s` is another name of `timeout`.
        """
        return self._native.wait(timeout if timeout_s is None else timeout_s)

    def result(self, timeout: float | None = None) -> None:
        """As `wait`, for programs that like exceptions: returns when all bytes have moved, raises the FabricError of a
        transfer that failed (errors.NotStarted if it was cancelled), errors.TimedOut if it has not ended.
        """
        try:
            self._native._result(timeout)
        except Exception as failure:
            boundary.report("Ticket.result", failure)
            raise

    @property
    def error(self) -> FabricError | None:
        """Why the transfer failed; None if it did not, and while it is under way."""
        if not self.done:
            return None
        try:
            self._native._result(0)
        except FabricError as failure:
            return failure
        return None

    async def finished(self) -> None:
        """`result` without blocking the event loop; cancelled, it does what a cancelled `await` of the ticket does."""
        await self._ended()
        self.result()

    def cancel(self) -> bool:
        """Takes the transfer back. True if it will never begin; False if it is running or over."""
        return self._native.cancel()

    def __await__(self) -> Generator[Any, None, int]:
        return self._finished().__await__()

    async def _finished(self) -> int:
        await self._ended()
        return self.wait()

    async def _ended(self) -> None:
        if not self.done:
            await awaiting.notified(self._native._notify, self._native._cut)

    def __repr__(self) -> str:
        return f"<Ticket, {'done' if self.done else 'under way'}>"
