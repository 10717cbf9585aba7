"""Programs are compiled once in a run of the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import c_programs
from support.ports import reserved_port

Compile = Callable[..., Path]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """`compiled("name.c", language=…, compiler=…, flags=…)`: of an example or a program of these tests."""
    folder = tmp_path_factory.mktemp("programs")

    def compile_named(name: str, **options: object) -> Path:
        source = next(place / name for place in (c_programs.EXAMPLES, c_programs.PROGRAMS) if (place / name).exists())
        return c_programs.compile_program(source, folder, **options)  # type: ignore[arg-type]

    return compile_named


@pytest.fixture
def session() -> Iterator[str]:
    """An address for an engine."""
    with reserved_port() as port:
        yield f"127.0.0.1:{port}"
