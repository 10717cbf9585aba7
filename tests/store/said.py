"""What the log said during a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from memfabric_hybrid import logs, settings

INFO = 1


@contextmanager
def said(level: int | None = None) -> Iterator[list[str]]:
    """The lines of that level (of the default one) and above, as they come."""
    lines: list[str] = []
    before = logs.handler.extern
    logs.handler.extern = lambda level, text: lines.append(text)
    if level is not None:
        logs.set_level(level)
    try:
        yield lines
    finally:
        logs.handler.extern = before
        logs.set_level(settings.log_level())
