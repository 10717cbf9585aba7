"""Programs that call every function and check what it does, in C; `test_effects.py` runs them in C++."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support import c_calls
from support.c_programs import run_together

Compile = Callable[..., Path]
pytestmark = pytest.mark.plain_store("one of the programs turns TLS on itself")


@pytest.mark.parametrize("name", c_calls.NAMES)
def test_calls(compiled: Compile, tmp_path: Path, name: str) -> None:
    program = c_calls.compiled_program(compiled, name)
    with c_calls.prepared(name, tmp_path) as runs:
        assert run_together(*((program, run) for run in runs)) == ["good\n"] * len(runs)
