"""What happened, line by line, in a file that outlives its writer: "<seconds> <who>: <what>".

No locks and no buffers: threads, forked children and signal handlers write whole lines, and a killed process's last
line is there. A line that begins with VIOLATION is a failure of the campaign.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

VIOLATION = "VIOLATION"


class EventLog:
    """One file; any number of processes may write to it."""

    def __init__(self, path: Path, who: str) -> None:
        self._who = who
        self.fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, what: str) -> None:
        line = f"{time.monotonic():.3f} {self._who}: " + what.replace("\n", "\n    ")
        os.write(self.fd, line.encode(errors="replace") + b"\n")

    def violation(self, what: str) -> None:
        self.write(f"{VIOLATION} {what}")

    def close(self) -> None:
        os.close(self.fd)


class EventLogReader:
    """Reads on where it stopped the last time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_to = 0

    def new_violations(self) -> list[str]:
        """Whole lines only: a line may be half-written."""
        with self._path.open("rb") as file:
            file.seek(self._read_to)
            text = file.read()
        text = text[: text.rfind(b"\n") + 1]
        self._read_to += len(text)
        return [entry for entry in entries(text.decode(errors="replace")) if f": {VIOLATION} " in entry]


def entries(text: str) -> list[str]:
    """Lines, each with the indented ones that go on with it."""
    found: list[str] = []
    for line in text.splitlines():
        if line.startswith("    ") and found:
            found[-1] += "\n" + line
        else:
            found.append(line)
    return found


def latest(paths: list[Path], count: int) -> list[str]:
    """The last entries of several event logs, each with what it goes on for, in the order of time."""
    shown: list[str] = []
    for path in paths:
        shown += entries(path.read_text(errors="replace"))[-count:]
    return sorted(shown, key=_seconds)


def _seconds(entry: str) -> float:
    try:
        return float(entry.split(" ", 1)[0])
    except ValueError:
        return 0.0
