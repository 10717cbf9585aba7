"""`mixed_member.c`, led step by step: a C member of a world whose other members are Python's."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Sequence
from pathlib import Path

from support.c_programs import Running

DEADLINE_S = 40.0


class CMember(Running):
    def __init__(self, program: Path, *, prefix: Sequence[str] = (), **environment: str) -> None:
        super().__init__(program, prefix=prefix, **environment)
        self.said = ""  # by the last call that failed

    def call(self, name: str, *arguments: object) -> int:
        """What the call answered; a negative number is a code, and `said` has its sentence."""
        self.ask(name, *arguments)
        return self.answer()

    def ask(self, name: str, *arguments: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, (name, *arguments))) + "\n")
        self.process.stdin.flush()

    def answer(self) -> int:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], DEADLINE_S)
        assert readable, f"no answer within {DEADLINE_S:g} s"
        line = self.line()
        assert line, f"the member ended: {self.process.wait(DEADLINE_S)}, {self._errors()}"
        number, _, self.said = line.strip().partition(" ")
        return int(number)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(DEADLINE_S)

    def _errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()
