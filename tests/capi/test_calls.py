"""Programs that call every function and check what it does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support import c_programs
from support.c_programs import run, run_together
from support.ports import reserved_port

Compile = Callable[..., Path]
KERNEL_VIEW = (c_programs.PROGRAMS / "kernel_view.cpp",)


@pytest.fixture(params=c_programs.LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_process(compiled: Compile, language: str, store_url: str) -> None:
    assert run(compiled("process_calls.c", language=language), store_url) == "good\n"


def test_big_memory(compiled: Compile, language: str, store_url: str) -> None:
    with reserved_port() as port:
        assert run(compiled("bm_calls.c", language=language), store_url, f"tcp://127.0.0.1:{port}") == "good\n"


def test_share_memory(compiled: Compile, language: str, store_url: str) -> None:
    program = compiled("shm_calls.c", language=language, with_sources=KERNEL_VIEW)
    assert run_together(*((program, (store_url, rank)) for rank in range(2))) == ["good\n"] * 2


def test_transfer(compiled: Compile, language: str, session: str) -> None:
    with reserved_port() as port:
        assert run(compiled("trans_calls.c", language=language), f"127.0.0.1:{port}", session) == "good\n"
