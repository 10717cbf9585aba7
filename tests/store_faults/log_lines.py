"""What members say: does a line explain each fault to those whom it concerns, and does nobody say too much? Pure."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from store_faults.plan import FLOOD_LINES, FLOOD_S

_NUMBERS = re.compile(r"0x[0-9a-f]+|[0-9a-f]{12,}|(?<!rank )(?<![\d.])\d+(\.\d+)?")
_QUOTED = re.compile(r"'[^']*'")


class Line(NamedTuple):
    at: float
    text: str


class Expected(NamedTuple):
    """A line that somebody has to say, `pattern`, because of `event`; `needs_store`: if that is whole meanwhile."""

    event: str
    pattern: str
    since: float
    needs_store: bool = False


def parse(text: str) -> list[Line]:
    """Of a file that `EventLog` has written."""
    found = []
    for line in text.splitlines():
        at, _, said = line.partition(" ")
        if at.replace(".", "", 1).isdigit():
            found.append(Line(float(at), said))
    return found


def unexplained(lines: Sequence[Line], expected: Iterable[Expected]) -> list[str]:
    """The events that nobody has explained, each with what was looked for."""
    return [
        f"no line of the log explains: {one.event} (looked for {one.pattern!r})"
        for one in expected
        if not any(one.since <= line.at and re.search(one.pattern, line.text) for line in lines)
    ]


def kind_of(text: str) -> str:
    """The line without what differs from one time to the next; about another rank it is another line."""
    return _NUMBERS.sub("#", _QUOTED.sub("'…'", text))


def floods(lines: Iterable[Line]) -> list[str]:
    """Kinds of lines that came too often within a short time."""
    recent: dict[str, deque[float]] = defaultdict(deque)
    found: dict[str, str] = {}
    for line in lines:
        kind = kind_of(line.text)
        times = recent[kind]
        times.append(line.at)
        while times[0] < line.at - FLOOD_S:
            times.popleft()
        if len(times) > FLOOD_LINES:
            found.setdefault(kind, f"{len(times)} lines within {FLOOD_S:g} s like: {line.text}")
    return list(found.values())
