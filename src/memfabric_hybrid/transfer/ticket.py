"""`Ticket`: a transfer that runs beside the program, to be asked for, waited for, awaited or taken back."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from memfabric_hybrid import _native
from memfabric_hybrid.api import awaiting


class Ticket:
    """Made by `TransferEngine.submit_write` and `submit_read`. Keeps its engine alive.

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

    def cancel(self) -> bool:
        """Takes the transfer back. True if it will never begin; False if it is running or over."""
        return self._native.cancel()

    def __await__(self) -> Generator[Any, None, int]:
        return self._finished().__await__()

    async def _finished(self) -> int:
        if not self.done:
            await awaiting.notified(self._native._notify, self._native._cut)
        return self.wait()

    def __repr__(self) -> str:
        return f"<Ticket, {'done' if self.done else 'under way'}>"
