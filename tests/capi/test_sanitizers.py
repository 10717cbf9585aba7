"""The same programs under AddressSanitizer (with UndefinedBehaviorSanitizer) and valgrind."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid.store.state import placement
from support import c_programs
from support.c_member import CMember
from support.c_programs import run, run_together
from support.ports import reserved_port

Compile = Callable[..., Path]
ASAN = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
# The interpreter is never ended, and has its memory in arenas that are no roots for the search for leaks.
ASAN_OPTIONS = "detect_leaks=0:abort_on_error=0:detect_stack_use_after_return=1"
KERNEL_VIEW = (c_programs.PROGRAMS / "kernel_view.cpp",)
VALGRIND_LIMIT = 0x2000_0000_0000  # addresses that valgrind can give


def test_big_memory_with_asan(compiled: Compile, store_url: str) -> None:
    with reserved_port() as port:
        program = compiled("bm_calls.c", flags=ASAN)
        assert run(program, store_url, f"tcp://127.0.0.1:{port}", ASAN_OPTIONS=ASAN_OPTIONS) == "good\n"


def test_share_memory_with_asan(compiled: Compile, store_url: str) -> None:
    program = compiled("shm_calls.c", flags=ASAN, with_sources=KERNEL_VIEW)
    runs = ((program, (store_url, rank)) for rank in range(2))
    assert run_together(*runs, ASAN_OPTIONS=ASAN_OPTIONS) == ["good\n"] * 2


def test_transfer_with_asan(compiled: Compile, session: str) -> None:
    with reserved_port() as port:
        program = compiled("trans_calls.c", flags=ASAN)
        assert run(program, f"127.0.0.1:{port}", session, ASAN_OPTIONS=ASAN_OPTIONS) == "good\n"


def test_process_with_asan(compiled: Compile, store_url: str) -> None:
    assert run(compiled("process_calls.c", flags=ASAN), store_url, ASAN_OPTIONS=ASAN_OPTIONS) == "good\n"


@pytest.fixture
def valgrind() -> list[str]:
    if shutil.which("valgrind") is None:
        pytest.skip("needs valgrind: scripts/install-missing valgrind")
    return ["valgrind", "-q", "--error-exitcode=9", "--leak-check=no"]


@pytest.mark.timeout(300)
def test_transfer_with_valgrind(compiled: Compile, session: str, valgrind: list[str]) -> None:
    assert run(compiled("06_transfer_streams.c"), session, prefix=valgrind) == "32 pieces on a stream\n"


@pytest.mark.timeout(300)
def test_pool_with_valgrind(compiled: Compile, store_url: str, valgrind: list[str]) -> None:
    object_id = next(number for number in range(64) if placement.preferred(f"bm/{number}") < VALGRIND_LIMIT)
    assert mf.create_config_store(store_url) == 0
    try:
        with CMember(compiled("mixed_member.c"), prefix=valgrind) as member:
            assert member.call("enter_pool", store_url, 2) == 0
            assert member.call("create", object_id) == 0, member.said
            assert member.call("join") == 0, member.said
            own = member.call("ptr", 0)
            assert member.call("put", own, 7, 5000) == 0, member.said
            assert member.call("get", own, 5000) == 7
            assert member.call("put", own + (2 << 20), 7, 5000) == -2014
            assert member.call("uninit") == 0
            member.end()
    finally:
        mf.uninitialize()
