"""Where log lines go: standard error by default, the program's own function after `set_extern_logger`.

Owns the `memfabric_hybrid` logger of the standard library and its one handler. Modules log with
`logs.get(__name__)`; levels of the documents (0 debug … 5 fatal) exist only at this edge.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable

from memfabric_hybrid import settings

ROOT = "memfabric_hybrid"
TRACE = 5
ExternLogger = Callable[[int, str], None]

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
        self._inside = threading.local()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s [%(process)d] %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        extern = self.extern
        if extern is None:
            sys.stderr.write(text + "\n")
            return
        if getattr(self._inside, "active", False):
            return  # the extern logger called into us and we logged: do not recurse into it
        self._inside.active = True
        try:
            extern(_DOCUMENTED.get(record.levelno, 1), text)
        except Exception:
            self.extern_failures += 1
        finally:
            self._inside.active = False


handler = EdgeHandler()


def get(module: str) -> logging.Logger:
    """The logger of a module of this package."""
    return logging.getLogger(module)


def set_level(documented: int) -> None:
    """Raises KeyError for a number the documents do not know."""
    logging.getLogger(ROOT).setLevel(LEVELS[documented])


def install() -> None:
    """Called once by the package: our handler, and the level of the environment."""
    logging.addLevelName(TRACE, "TRACE")
    root = logging.getLogger(ROOT)
    if handler not in root.handlers:
        root.addHandler(handler)
    root.propagate = False
    set_level(settings.log_level())
