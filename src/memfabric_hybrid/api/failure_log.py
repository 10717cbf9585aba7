"""Every failure of a public call is one line in the log: programs print "it failed" and never ask for the reason.

Calls that fail in a loop say the first few, then one a second and how many were left out. Nothing is done while calls
succeed. Native calls come here as well, with the interpreter lock held.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from memfabric_hybrid import logs
from memfabric_hybrid.errors import Code

BURST = 5  # lines of one call at once
INTERVAL_S = 1.0  # between two lines afterwards
_NAMES = {int(code): code.name for code in Code}
_log = logs.get(logs.ROOT)


class RateLimit:
    """Whose turn it is to be logged, for each call by its name. Any thread.

    There is no lock, which a fork could leave held: threads that meet here log a line more or a line less.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._credit: dict[str, tuple[float, float]] = {}  # lines that may be logged now, and when that was so
        self._left_out: dict[str, int] = {}

    def admit(self, call: str) -> int | None:
        """None: not now. Otherwise how many were left out since the last one."""
        now = self._clock()
        lines, since = self._credit.get(call, (float(BURST), now))
        lines = min(float(BURST), lines + (now - since) / INTERVAL_S)
        if lines < 1:
            self._left_out[call] = self._left_out.get(call, 0) + 1
            return None
        self._credit[call] = (lines - 1, now)
        return self._left_out.pop(call, 0)


_limit = RateLimit()
_closed = False


def report(call: str, code: int, sentence: str) -> None:
    """One line for the failure, unless this call has said enough for now."""
    left_out = None if _closed else _limit.admit(call)
    if left_out is None:
        return
    name = _NAMES.get(code, Code.ERROR.name)
    if left_out:
        _log.error("%s failed, %d %s: %s (%d more since the last line)", call, code, name, sentence, left_out)
    else:
        _log.error("%s failed, %d %s: %s", call, code, name, sentence)


def close() -> None:
    """The program ends: its daemon threads, which fail now, must not be found writing when the interpreter goes."""
    global _closed
    _closed = True
