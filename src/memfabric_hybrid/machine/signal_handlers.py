"""What the program's signal handlers raise while they happen to run in our code: the program's, whatever its kind.

Programs limit calls with an alarm that raises, often TimeoutError. Whoever waits in here and takes exceptions of such
kinds for its own asks first.
"""

from __future__ import annotations

import functools
import signal
import threading
import traceback
from types import CodeType


def raised(failure: BaseException) -> bool:
    """Whether a signal handler raised it: one of its frames runs the code of one."""
    if threading.current_thread() is not threading.main_thread():
        return False
    codes = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    return bool(codes) and any(frame.f_code in codes for frame, _ in traceback.walk_tb(failure.__traceback__))


def pass_on(failure: BaseException) -> None:
    """Raises it again if it is a signal handler's."""
    if raised(failure):
        raise failure


def _code(handler: object) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    if callable(handler) and not hasattr(handler, "__code__"):
        handler = type(handler).__call__
    code = getattr(handler, "__code__", None)
    return code if isinstance(code, CodeType) else None
