"""A real control group with a memory limit, as a container has one; version 1 or 2, as the machine has it. Root's."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType

import pytest

from memfabric_hybrid.machine import memory_limits

_numbers = itertools.count()


class MemoryGroup:
    """Below this process's own group. Ends with its processes, which must have ended."""

    def __init__(self, limit_bytes: int) -> None:
        self._files, mount, below = _place()
        self.folder = mount / below / f"memfabric-test-{os.getpid()}-{next(_numbers)}"
        try:
            self.folder.mkdir()
            (self.folder / self._files.limit).write_text(str(limit_bytes))
        except OSError as error:
            if self.folder.is_dir():
                self.folder.rmdir()
            pytest.skip(f"needs root: and control groups for memory that it can make ({error})")

    def used_bytes(self) -> int:
        return int((self.folder / self._files.used).read_text())

    def start(self, program: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """A Python program that is in the group from its first instruction on."""
        enter = f'echo $$ > {self.folder / "cgroup.procs"} && exec "$@"'
        return subprocess.Popen(
            ["sh", "-c", enter, "sh", sys.executable, "-W", "error", "-c", program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **environment},
        )

    def __enter__(self) -> MemoryGroup:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.folder.rmdir()


def _place() -> tuple[memory_limits.Files, Path, str]:
    """Where this process's own group is, of the version that has memory's limits."""
    for files, mount, below in memory_limits._own_groups():
        if files is memory_limits.V1 or "memory" in (mount / below / "cgroup.subtree_control").read_text().split():
            return files, mount, below
    return pytest.skip("needs root: and control groups for memory, which this machine does not have")
