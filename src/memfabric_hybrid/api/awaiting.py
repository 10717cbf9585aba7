"""Waiting for native work without blocking an event loop: one descriptor per loop, however much is awaited there.

The descriptor is there while something is awaited, so that a loop that ends leaves nothing behind.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from memfabric_hybrid._native import Notifier

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future


class _LoopWaits:
    """What one loop awaits, by token; only its thread comes here."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._tokens = itertools.count(1)
        self._notifier = Notifier.make()
        self.pending: dict[int, Future[None]] = {}
        loop.add_reader(self._notifier.fileno(), self._on_readable)

    def begin(self, notify: Callable[[Notifier, int], None]) -> tuple[int, Future[None]]:
        token = next(self._tokens)
        return token, self.ask(token, notify)

    def ask(self, token: int, notify: Callable[[Notifier, int], None]) -> Future[None]:
        """Again, if the future of an earlier time was cancelled."""
        ended = self._loop.create_future()
        notify(self._notifier, token)  # what has ended already is told in the loop's next turn
        self.pending[token] = ended
        return ended

    def _on_readable(self) -> None:
        for token in self._notifier.take():
            ended = self.pending.get(token)
            if ended is not None and not ended.done():
                ended.set_result(None)

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.remove_reader(self._notifier.fileno())
        self._notifier.close()


_waits: dict[AbstractEventLoop, _LoopWaits] = {}  # of loops in which something is awaited


async def notified(notify: Callable[[Notifier, int], None], cancel: Callable[[], None]) -> None:
    """Returns when what `notify(notifier, token)` asks to be told about has ended, or raises what that raises.

    Whoever is cancelled meanwhile has the work called off with `cancel()`, which must not block, and gets its
    CancelledError when the work has ended: from then on nobody touches the memory.
    """
    import asyncio  # here: most programs never await, and importing it takes longer than all of ours

    loop = asyncio.get_running_loop()
    waits = _waits.get(loop)
    if waits is None:
        waits = _waits[loop] = _LoopWaits(loop)
    token = 0
    try:
        token, ended = waits.begin(notify)
        try:
            await ended
        except asyncio.CancelledError:
            cancel()
            await _outlasted(waits, token, notify)
            raise
        except GeneratorExit:  # the loop ends without us
            cancel()
            raise
    finally:
        waits.pending.pop(token, None)
        if not waits.pending:
            _waits.pop(loop, None)
            waits.close()


async def _outlasted(waits: _LoopWaits, token: int, notify: Callable[[Notifier, int], None]) -> None:
    """Returns when it has ended, whoever else cancels us meanwhile: the memory is in use."""
    import asyncio

    while True:
        try:
            return await waits.ask(token, notify)
        except asyncio.CancelledError:
            continue
