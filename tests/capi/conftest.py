"""Programs are compiled once in a run of the tests."""

from __future__ import annotations

import faulthandler
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import c_instrumented, c_programs
from support.c_observer import Observer
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


@pytest.fixture(scope="session")
def instrumented(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment variables of programs that use the library with the sanitizers."""
    faulthandler.cancel_dump_traceback_later()  # building takes longer than any test may
    return c_instrumented.install(tmp_path_factory.mktemp("instrumented"))


@pytest.fixture
def observer(tmp_path: Path) -> Observer:
    return Observer(tmp_path)


@pytest.fixture
def session() -> Iterator[str]:
    """An address for an engine."""
    with reserved_port() as port:
        yield f"127.0.0.1:{port}"
