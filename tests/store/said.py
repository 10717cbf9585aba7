"""What the log said during a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from memfabric_hybrid import logs


@contextmanager
def said() -> Iterator[list[str]]:
    """The lines of the default level and above, as they come."""
    lines: list[str] = []
    before = logs.handler.extern
    logs.handler.extern = lambda level, text: lines.append(text)
    try:
        yield lines
    finally:
        logs.handler.extern = before
