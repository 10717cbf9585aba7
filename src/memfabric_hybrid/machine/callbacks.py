"""Calls of the program's own functions: whatever they raise stays theirs.

A callback may call `sys.exit` or raise anything else. On a thread of ours that must end nothing but the callback: the
thread has others to serve. On a thread of the program an exit or an interrupt is the program's own and goes through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

from memfabric_hybrid import logs
from memfabric_hybrid.machine.service_thread import is_current_one_of_ours

P = ParamSpec("P")
log = logs.get(__name__)


def run(what: str, callback: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Calls it. What it raises is logged and ignored; `what` names the callback in the log."""
    try:
        callback(*args, **kwargs)
    except BaseException as raised:
        if not isinstance(raised, Exception) and not is_current_one_of_ours():
            raise
        log.error("%s raised %s, which is ignored", what, type(raised).__name__, exc_info=raised)
