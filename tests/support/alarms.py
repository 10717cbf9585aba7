"""An alarm of the program: its signal handler runs in the middle of whatever the test waits in."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

SOON_S = 5.0  # waits look every 0.1 s; a busy machine makes more of it
Handler = Callable[[int, object], object]


@contextmanager
def alarm(handler: Handler, after_s: float = 0.2) -> Iterator[None]:
    """While the block runs: the handler is called so much later, once."""
    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, after_s)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def left_by_alarm(
    kind: type[BaseException], handler: Handler, after_s: float = 0.2
) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """The block is left by the exception of that kind which the handler raises, soon after it was called."""
    began = time.monotonic()
    with alarm(handler, after_s), pytest.raises(kind) as raised:
        yield raised
    assert time.monotonic() - began < SOON_S
