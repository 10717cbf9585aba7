"""Every C example compiles as C11 and C++17, with gcc and clang, without a warning, and does what it says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support import c_examples, c_programs
from support.ports import reserved_port

Compile = Callable[..., Path]


@pytest.mark.parametrize("name", c_examples.EXAMPLES)
@pytest.mark.parametrize(("compiler", "language"), c_programs.BUILDS)
def test_example(compiled: Compile, name: str, compiler: str, language: str) -> None:
    if not c_programs.has(compiler):
        pytest.skip(f"needs {compiler}: scripts/install-missing {compiler}")
    program = compiled(f"{name}.c", compiler=compiler, language=language)
    with reserved_port() as port:
        c_examples.EXAMPLES[name](program, c_examples.HERE, port)
