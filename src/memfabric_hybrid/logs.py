"""Where log lines go: standard error by default, the program's own function after `set_extern_logger`.

Owns the `memfabric_hybrid` logger of the standard library and its one handler. Modules log with
`logs.get(__name__)`; levels of the documents (0 debug … 5 fatal) exist only here.

Saying something never raises: a thread of ours must not end because standard error is closed, or because the program's
function, or a handler that the program added, raises or exits.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from memfabric_hybrid import settings

ROOT = "memfabric_hybrid"
TRACE = 5
STANDARD_ERROR = 2
ExternLogger = Callable[[int, str], object]
_standard_error_at_start = ""

# The documents' numbers on the left; trace and fatal came later, hence the order.
LEVELS: dict[int, int] = {
    0: logging.DEBUG,
    1: logging.INFO,
    2: logging.WARNING,
    3: logging.ERROR,
    4: TRACE,
    5: logging.CRITICAL,
}
_DOCUMENTED = {standard: documented for documented, standard in LEVELS.items()}


class EdgeHandler(logging.Handler):
    """Hands every line to the extern logger if there is one, else to standard error."""

    def __init__(self) -> None:
        super().__init__()
        self.extern: ExternLogger | None = None
        self.extern_failures = 0  # exceptions the extern logger raised; they never reach the library
        self._told_of_exit = False
        self._inside = threading.local()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s [%(process)d] %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        extern = self.extern
        if extern is None:
            self._write(text)
            return
        if getattr(self._inside, "active", False):
            return  # the extern logger called into us and we logged: do not recurse into it
        self._inside.active = True
        try:
            extern(_DOCUMENTED.get(record.levelno, 1), text)
        except BaseException as raised:
            self.extern_failures += 1
            if not isinstance(raised, Exception):
                _pass_on_interrupt(raised)
                if not self._told_of_exit:  # once: it is called for every line
                    self._told_of_exit = True
                    self._write(f"memfabric_hybrid: the extern logger raised {type(raised).__name__}, which is ignored")
        finally:
            self._inside.active = False

    def hand_to(self, extern: ExternLogger | None) -> None:
        """Returns when no other thread is inside the function before."""
        self.extern = extern
        self.acquire()  # as whoever calls `emit` has done
        self.release()

    def _write(self, text: str) -> None:
        """A line that cannot be written is counted; the program's other handlers still get it."""
        if sys.stderr is None:  # the program was started without one
            return
        try:
            if _is_written_to(sys.stderr):
                sys.stderr.write(text + "\n")
            else:
                Log.lost_lines += 1
        except (OSError, ValueError):  # closed, full, or its reader is gone
            Log.lost_lines += 1


def _is_written_to(stream: TextIO) -> bool:
    """Not what only has standard error's number: a program may close it, and what is opened next gets that number.

    Of ours that is memory, sockets and the like, for the moment before it is moved away. Programs whose standard error
    is a socket were started with it.
    """
    try:
        number = stream.fileno()
    except (OSError, ValueError, AttributeError):
        return True  # an object of the program's own, without a descriptor
    target = _target_of(number)
    if target.startswith(("/memfd:", "anon_inode:")):
        return False
    return not (target.startswith("socket:") and number <= STANDARD_ERROR and target != _standard_error_at_start)


def _target_of(number: int) -> str:
    return os.readlink(f"/proc/self/fd/{number}")


handler = EdgeHandler()


def _pass_on_interrupt(raised: BaseException) -> None:
    """The interrupt key is pressed for the program's main thread, which happens to be in here."""
    if isinstance(raised, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        raise raised


class Log:
    """What one module says, as `logging.Logger` takes it. No method raises."""

    lost_lines = 0  # of all modules: those that could not be written, whoever's fault it was

    def __init__(self, module: str) -> None:
        self._logger = logging.getLogger(module)

    def debug(self, text: str, *values: object) -> None:
        self.log(logging.DEBUG, text, *values)

    def info(self, text: str, *values: object) -> None:
        self.log(logging.INFO, text, *values)

    def warning(self, text: str, *values: object) -> None:
        self.log(logging.WARNING, text, *values)

    def error(self, text: str, *values: object, exc_info: BaseException | None = None) -> None:
        self.log(logging.ERROR, text, *values, exc_info=exc_info)

    def critical(self, text: str, *values: object, exc_info: BaseException | None = None) -> None:
        self.log(logging.CRITICAL, text, *values, exc_info=exc_info)

    def exception(self, text: str, *values: object) -> None:
        """With the traceback of the exception that is being handled."""
        self.log(logging.ERROR, text, *values, exc_info=sys.exc_info()[1])

    def log(self, level: int, text: str, *values: object, exc_info: BaseException | None = None) -> None:
        if not self._logger.isEnabledFor(level):
            return
        try:
            self._logger.log(level, text, *values, exc_info=exc_info)
        except BaseException as raised:
            Log.lost_lines += 1
            _pass_on_interrupt(raised)


def get(module: str) -> Log:
    """What a module of this package says."""
    return Log(module)


def set_level(documented: int) -> None:
    """Raises KeyError for a number the documents do not know."""
    logging.getLogger(ROOT).setLevel(LEVELS[documented])


def install() -> None:
    """Called once by the package: our handler, and the level of the environment."""
    global _standard_error_at_start
    with suppress(OSError):  # it may be closed
        _standard_error_at_start = _target_of(STANDARD_ERROR)
    logging.addLevelName(TRACE, "TRACE")
    root = logging.getLogger(ROOT)
    if handler not in root.handlers:
        root.addHandler(handler)
    root.propagate = False
    set_level(settings.log_level())
