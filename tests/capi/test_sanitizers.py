"""The same programs under AddressSanitizer with UndefinedBehaviorSanitizer, library included, and under valgrind.

`test_mixed_worlds.py` has C members with the sanitizers among Python members.
"""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.store import connect, parse_url
from memfabric_hybrid.store.state import placement
from support import c_calls, c_examples, c_instrumented, campaigns
from support.c_examples import Spot
from support.c_member import CMember
from support.c_programs import run, run_together
from support.ports import reserved_port

Compile = Callable[..., Path]
pytestmark = [
    pytest.mark.plain_store("one of the programs turns TLS on itself"),
    pytest.mark.timeout(c_instrumented.BUILD_TIMEOUT_S),
]
VALGRIND_LIMIT = 0x2000_0000_0000  # addresses that valgrind can give
SUPPRESSIONS = Path(__file__).with_name("valgrind.supp")
ROOM = 256 << 30  # above it, for the filler's start


@pytest.mark.instrumented
@pytest.mark.parametrize("name", c_calls.NAMES)
def test_calls_with_asan(compiled: Compile, instrumented: dict[str, str], tmp_path: Path, name: str) -> None:
    program = c_calls.compiled_program(compiled, name, flags=c_instrumented.FLAGS)
    with c_calls.prepared(name, tmp_path) as runs:
        assert run_together(*((program, run) for run in runs), **instrumented) == ["good\n"] * len(runs)


@pytest.mark.instrumented
@pytest.mark.parametrize("name", c_examples.EXAMPLES)
def test_examples_with_asan(compiled: Compile, instrumented: dict[str, str], name: str) -> None:
    program = compiled(f"{name}.c", flags=c_instrumented.FLAGS)
    with reserved_port() as port:
        c_examples.EXAMPLES[name](program, (Spot(environment=instrumented),) * 3, port)


@pytest.mark.instrumented
def test_calls_after_main_with_asan(compiled: Compile, instrumented: dict[str, str], store_url: str) -> None:
    program = compiled("after_main.cpp", language="c++17", flags=c_instrumented.FLAGS)
    assert run(program, STORE_URL=store_url, **instrumented) == "good\n"


@pytest.mark.instrumented
def test_asan_watches_the_library_as_well(compiled: Compile, instrumented: dict[str, str], store_url: str) -> None:
    program = compiled("overread.c", flags=c_instrumented.FLAGS)
    with pytest.raises(AssertionError, match="ERROR: AddressSanitizer: heap-buffer-overflow") as ended:
        run(program, store_url, **instrumented)
    first, *outer = re.findall(r"#\d \w+ in (.*)", str(ended.value))
    assert "native/space" in first
    assert any(frame.startswith("smem_bm_copy_batch") for frame in outer)


@pytest.fixture
def valgrind() -> tuple[str, ...]:
    if shutil.which("valgrind") is None:
        pytest.skip("needs valgrind: scripts/install-missing valgrind")
    return "valgrind", "-q", "--error-exitcode=9", "--leak-check=no", f"--suppressions={SUPPRESSIONS}"


@contextmanager
def low_addresses(url: str) -> Iterator[None]:
    """A store there, whose objects all have addresses that valgrind can give: others are taken."""
    name, start = next(
        (name, start)
        for name in (f"offload/filler {number}" for number in itertools.count())
        if VALGRIND_LIMIT <= (start := placement.preferred(name)) < VALGRIND_LIMIT + ROOM
    )
    assert mf.create_config_store(url) == 0, mf.get_last_err_msg()
    store = connect(parse_url(url))
    try:
        store.claim_rank("offload/ranks", 1, b"", deadline=Deadline(20))  # or it would be in nobody's way
        assert store.hold_range(name, placement.REGION_END - start, deadline=Deadline(20)) == start
        yield
    finally:
        store.close()
        mf.uninitialize()


def test_all_of_it_with_valgrind(compiled: Compile, store_url: str, session: str, valgrind: tuple[str, ...]) -> None:
    """A pool, a heap and an engine, in one process."""
    with low_addresses(store_url), CMember(compiled("mixed_member.c"), prefix=valgrind) as member:
        assert member.call("enter_pool", store_url, 2) == 0, member.said
        assert member.call("create", 0) == 0, member.said
        assert member.call("join") == 0, member.said
        own = member.call("ptr", 0)
        assert member.call("put", own, 7, 5000) == 0, member.said
        assert member.call("get", own, 5000) == 7
        assert member.call("put", own + (2 << 20), 7, 5000) == -2014
        base = member.call("enter_heap", store_url, 1, 0)
        assert base > 0, member.said
        assert member.call("store", base + 5, 8) == 0
        assert member.call("barrier") == 0, member.said
        assert member.call("gather", 1, 9) == 9
        assert member.call("destroy_heap") == 0, member.said
        memory = member.call("open_engine", session)
        assert memory > 0, member.said
        assert member.call("write", session, memory, 9, 5000) == 0, member.said
        assert member.call("read", session, memory, 5000) == 9
        assert member.call("uninit") == 0
        member.end()


@pytest.mark.soak
def test_programs_with_valgrind(compiled: Compile, tmp_path: Path, valgrind: tuple[str, ...]) -> None:
    names = ["trans_calls", *c_examples.EXAMPLES, "process_calls", "bm_calls", "shm_calls", "tls_calls"]
    assert {*c_calls.NAMES, *c_examples.EXAMPLES} == set(names)
    for name in names[: campaigns.length("MF_C_VALGRIND", 1)]:
        if name in c_examples.EXAMPLES:
            with reserved_port() as port:
                c_examples.EXAMPLES[name](compiled(f"{name}.c"), (Spot(prefix=valgrind),) * 3, port)
        else:
            program = c_calls.compiled_program(compiled, name)
            with c_calls.prepared(name, tmp_path) as runs:
                watched = [(program, run) for run in runs]
                said = run_together(*watched, prefix=valgrind, timeout_s=c_examples.TIMEOUT_S)
            assert said == ["good\n"] * len(runs), name
