"""Threads, forks, loaders, and what happens before and after `main`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from support import c_programs
from support.c_programs import run
from support.ports import reserved_port

Compile = Callable[..., Path]


def test_many_threads_begin_together(compiled: Compile, store_url: str) -> None:
    assert run(compiled("threads.c"), store_url) == "good\n"


def test_forks_of_a_busy_member(compiled: Compile, store_url: str) -> None:
    assert run(compiled("forks.c"), store_url) == "good\n"


def test_loaded_into_a_scope_of_its_own(compiled: Compile, store_url: str) -> None:
    assert run(compiled("loader.c", linked=False), c_programs.library(), store_url) == "good\n"


def test_loaded_by_its_versioned_name(compiled: Compile, store_url: str) -> None:
    named = c_programs.library().with_name("libmf_smem.so.1")
    assert run(compiled("loader.c", linked=False), named, store_url) == "good\n"


def test_static_initialisers(compiled: Compile, store_url: str) -> None:
    program = compiled("static_initialiser.cpp", language="c++17")
    assert run(program, STORE_URL=store_url) == "good\n"


def test_calls_without_memory(compiled: Compile, store_url: str, session: str) -> None:
    assert run(compiled("no_memory.cpp", language="c++17"), store_url, session) == "good\n"


def test_calls_after_main(compiled: Compile, store_url: str) -> None:
    assert run(compiled("after_main.cpp", language="c++17"), STORE_URL=store_url) == "good\n"


def test_callbacks_end(compiled: Compile, store_url: str) -> None:
    with reserved_port() as own, reserved_port() as peer:
        sessions = f"127.0.0.1:{own}", f"127.0.0.1:{peer}"
        assert run(compiled("callback_ends.c"), store_url, *sessions) == "good\n"
