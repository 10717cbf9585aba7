"""Logging: levels of the documents, the program's own function, and a clean exit with it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import logs

log = logs.get("memfabric_hybrid.some_module")
SAYING = {
    0: log.debug,
    1: log.info,
    2: log.warning,
    3: log.error,
    4: lambda text: log.log(logs.TRACE, text),
    5: log.critical,
}
SEVERITY = [4, 0, 1, 2, 3, 5]  # trace came later, hence its number


@pytest.fixture
def lines() -> Iterator[list[tuple[int, str]]]:
    """What the program's own function is given; everything is as before afterwards."""
    seen: list[tuple[int, str]] = []
    assert mf.set_extern_logger(lambda level, text: seen.append((level, text))) == 0
    yield seen
    logs.handler.extern = None
    mf.set_log_level(2)


@pytest.mark.parametrize("level", range(6))
def test_levels(lines: list[tuple[int, str]], level: int) -> None:
    assert mf.set_log_level(level) == 0
    for number, say in SAYING.items():
        say(f"line of level {number}")
    told = [number for number, _ in lines]
    assert set(told) == set(SEVERITY[SEVERITY.index(level) :])
    assert all(f"line of level {number}" in text for number, text in lines)


@pytest.mark.parametrize("level", [6, -1, 1000, 1 << 70])
def test_levels_that_do_not_exist(level: int) -> None:
    assert mf.set_log_level(level) == -2000
    assert f"{level}, expected 0..5" in mf.get_and_clear_last_err_msg()


def test_wrong_types() -> None:
    wrong: Any
    for wrong in ("1", 1.0, None):
        with pytest.raises(TypeError):
            mf.set_log_level(wrong)
    for wrong in ("1", 1.0):
        with pytest.raises(TypeError):
            mf.set_extern_logger(wrong)


def test_exception_in_the_function_is_swallowed_and_counted(lines: list[tuple[int, str]]) -> None:
    def fail(level: int, text: str) -> None:
        raise RuntimeError("in the program's logger")

    mf.set_extern_logger(fail)
    before = logs.handler.extern_failures
    log.error("one")
    log.error("two")
    assert logs.handler.extern_failures == before + 2


def test_function_that_calls_the_library_does_not_recurse() -> None:
    depth = []

    def noisy(level: int, text: str) -> None:
        depth.append(text)
        log.error("from inside")

    mf.set_extern_logger(noisy)
    try:
        log.error("from outside")
    finally:
        logs.handler.extern = None
    assert len(depth) == 1


def test_default_is_warnings_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    log.info("not shown")
    log.warning("shown")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "WARNING" in captured.err
    assert "memfabric_hybrid.some_module: shown" in captured.err
    assert "not shown" not in captured.err


PROGRAM = """
import sys
import memfabric_hybrid as mf
from memfabric_hybrid import bm

lines = []
def logger(level, text):
    lines.append(text)
    {body}
mf.set_log_level(4)
assert mf.set_extern_logger(logger) == 0
assert bm.initialize(sys.argv[1], 2, 0, bm.BmConfig()) == 0
pool = bm.create(0, 1)
assert pool.join() == 0
assert lines
{ending}
"""


@pytest.mark.parametrize("ending", ["", "mf.uninitialize()", "del logger", "sys.exit(0)"])
@pytest.mark.parametrize("body", ["pass", "raise ValueError(text)"])
def test_program_with_its_own_logger_exits_cleanly(store_url: str, ending: str, body: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM.format(body=body, ending=ending), store_url],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "MF_LOG_LEVEL": "0"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("name", "level", "told"), [("MF_LOG_LEVEL", "1", True), ("ASCEND_MF_LOG_LEVEL", "3", False)])
def test_level_of_the_environment(store_url: str, name: str, level: str, told: bool) -> None:
    program = (
        "import sys\nfrom memfabric_hybrid import bm\nassert bm.initialize(sys.argv[1], 2, 0, bm.BmConfig()) == 0\n"
    )
    environment = {key: value for key, value in os.environ.items() if "LOG_LEVEL" not in key}
    done = subprocess.run(
        [sys.executable, "-c", program, store_url],
        capture_output=True,
        text=True,
        timeout=30,
        env={**environment, name: level},
    )
    assert done.returncode == 0
    assert ("INFO" in done.stderr) == told


SOCKET_IN_ITS_PLACE = """
import os, socket
from memfabric_hybrid import logs

one, other = socket.socketpair()
other.setblocking(False)
os.dup2(one.fileno(), 2)  # standard error was closed, and a connection of somebody's has got its number
logs.get("memfabric_hybrid.anything").error("a line")
try:
    print(other.recv(100))
except BlockingIOError:
    print("nothing,", logs.Log.lost_lines, "lost")
"""


def test_no_line_goes_into_a_socket_that_got_the_number_of_standard_error() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SOCKET_IN_ITS_PLACE], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "nothing, 1 lost\n"


def test_a_program_whose_standard_error_is_a_socket_is_heard() -> None:
    ours, theirs = socket.socketpair()
    program = "from memfabric_hybrid import logs; logs.get('memfabric_hybrid.anything').error('a line')"
    with ours, theirs:
        subprocess.run([sys.executable, "-c", program], stderr=theirs, timeout=30, check=True)
        assert b"a line" in ours.recv(1000)
