"""Every C example compiles as C11 and C++17, with gcc and clang, without a warning, and does what it says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from support import c_programs
from support.c_programs import Running, run, run_together

BUILDS = [
    pytest.param({"language": language, "compiler": compiler}, id=f"{compiler}-{language}")
    for compiler in c_programs.DRIVERS
    for language in c_programs.LANGUAGES
]
Compile = Callable[..., Path]


@pytest.fixture(params=BUILDS)
def example(request: pytest.FixtureRequest, compiled: Compile) -> Callable[[str], Path]:
    if not c_programs.has(request.param["compiler"]):
        pytest.skip(f"needs {request.param['compiler']}: scripts/install-missing {request.param['compiler']}")
    return lambda name: compiled(name, **request.param)


def test_first_release(example: Callable[[str], Path], store_url: str) -> None:
    program = example("01_pool_first_release.c")
    said = "".join(run_together(*[(program, (store_url, 3))] * 3))
    for rank in range(3):
        assert f"rank {rank} with 2097152 bytes got: hello from rank {(rank - 1) % 3}\n" in said
        assert f"rank {rank} is done\n" in said


def test_second_generation(example: Callable[[str], Path], store_url: str) -> None:
    program = example("02_pool_batches.c")
    said = run_together(*((program, (store_url, 2, rank)) for rank in range(2)))
    assert said == [f"rank {rank} got 64 pieces of 4096 bytes\n" for rank in range(2)]


def test_third_generation(example: Callable[[str], Path], store_url: str) -> None:
    program = example("03_pool_options.c")
    said = "".join(run_together(*[(program, (store_url, 3))] * 3))
    for rank in range(3):
        assert f"rank {rank} saw 2 others join\n" in said
        assert f"rank {rank} heard from all 3\n" in said


def test_heap(example: Callable[[str], Path], store_url: str) -> None:
    program = example("04_heap.c")
    said = run_together(*((program, (store_url, 2, rank)) for rank in range(2)))
    sums = [re.fullmatch(rf"rank {rank} got a row from rank {1 - rank}; the sums begin with (\d+)\n", said[rank])
            for rank in range(2)]  # fmt: skip
    assert sums[0] is not None
    assert sums[1] is not None
    assert sums[0][1] == sums[1][1]


def test_transfer(example: Callable[[str], Path], session: str) -> None:
    program = example("05_transfer.c")
    with Running(program, "target", session) as target:
        address = target.line().split()[1]
        assert run(program, "source", session, address) == "wrote and read 1048576 bytes\n"
        assert target.end() == "the first byte is 5, the last one -2\n"


def test_transfer_on_streams(example: Callable[[str], Path], session: str) -> None:
    assert run(example("06_transfer_streams.c"), session) == "32 pieces on a stream\n"
