"""Whole programs, run as a user would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys

TIMEOUT_S = 30.0
_FAILURE = re.compile(r"ERROR \[\d+\] memfabric_hybrid: \S+ failed, -\d+ ")


def run_python(
    program: str, *arguments: str, timeout_s: float = TIMEOUT_S, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a program's text; warnings are errors, but for the one that says what the fork tests are about."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore:.*fork:DeprecationWarning", "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, **environment},
    )


def besides_failures(text: str) -> str:
    """What a program said beside the lines of calls that failed, which it provoked on purpose."""
    return "".join(line for line in text.splitlines(keepends=True) if not _FAILURE.search(line))
