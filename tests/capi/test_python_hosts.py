"""Python programs whose C libraries use the C interface: the interpreter was there before, and ends earlier."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support import c_programs

Compile = Callable[..., Path]
BEGIN = """
import ctypes, os, signal, sys, threading
url, smem, host = sys.argv[1], ctypes.CDLL(sys.argv[2]), ctypes.CDLL(sys.argv[3])
smem.smem_get_last_err_msg.restype = smem.smem_bm_create.restype = ctypes.c_void_p
def enter(world_size):
    config = ctypes.create_string_buffer(8192)
    assert smem.smem_bm_config_init(config) == 0
    assert smem.smem_bm_init(url.encode(), world_size, 0, config) == 0
def pool(id):
    made = ctypes.c_void_p(smem.smem_bm_create(id, 1, 1, ctypes.c_uint64(1 << 21), ctypes.c_uint64(0), 0))
    assert made.value and smem.smem_bm_join(made, 0) == 0
    return made
"""


@pytest.fixture
def host(compiled: Compile) -> Path:
    return compiled("python_host.c", flags=("-shared", "-fPIC"))


def run_python(program: str, url: str, host: Path, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program, url, str(c_programs.library()), str(host)],
        capture_output=True, text=True, timeout=60, env={**os.environ, "MF_LOG_LEVEL": "5"},
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_calls_after_the_interpreter_has_ended(host: Path, store_url: str) -> None:
    assert run_python("enter(1); host.keep(pool(0))", store_url, host) == "good\n"


def test_forks_that_python_does_not_see(host: Path, store_url: str) -> None:
    """Another thread has the interpreter's lock meanwhile, and does not exist in the child."""
    program = """
enter(1)
is_over = False
def be_busy():
    while not is_over: pass
threads = [threading.Thread(target=be_busy) for _ in range(2)]
for each in threads: each.start()
found = [host.fork_and_call() for _ in range(20)]
is_over = True
for each in threads: each.join()
assert found == [0] * 20, found
assert os.fork() or os._exit(smem.smem_bm_get_rank_id() != -1)
assert os.wait()[1] == 0
assert smem.smem_bm_get_rank_id() == 0
print("good")
"""
    assert run_python(program, store_url, host) == "good\n"


WAITING = """
def interrupt():
    is_inside = lambda frame: frame and (frame.f_code.co_name == "shm_create" or is_inside(frame.f_back))
    while not is_inside(sys._current_frames()[threading.main_thread().ident]): pass
    os.kill(os.getpid(), signal.SIGUSR1)
config, gva = ctypes.create_string_buffer(64), ctypes.c_void_p()
assert smem.smem_shm_config_init(config) == 0
ctypes.c_bool.from_buffer(config, 12).value = True
assert smem.smem_shm_init(url.encode(), 2, 0, 0, config) == 0
threading.Thread(target=interrupt).start()
said = -9
try:
    said = smem.smem_shm_create(0, 2, 0, ctypes.c_uint64(1 << 21), 1, 0, ctypes.byref(gva))
    for _ in range(1000): pass
    print("it went on")
finally:
    print(smem.smem_get_last_err_code(), ctypes.string_at(smem.smem_get_last_err_msg()).decode())
"""


@pytest.mark.parametrize(
    ("handler", "code", "kind"),
    [
        ("sys.exit(0)", 0, "SystemExit"),
        ("sys.exit()", 0, "SystemExit"),
        ("sys.exit(7)", 7, "SystemExit"),
        ("exec('raise KeyboardInterrupt')", -2, "KeyboardInterrupt"),
    ],
)
def test_exits_out_of_a_call(host: Path, store_url: str, handler: str, code: int, kind: str) -> None:
    """A signal handler's exit while C code waits in here: the call fails, and the program ends as it wanted."""
    program = f"signal.signal(signal.SIGUSR1, lambda *_: {handler})\n{WAITING}"
    said = run_python(program, store_url, host, code)
    assert said == f"-1 shm_create did not finish: {kind} came out of a function of the program's own\n"


def test_what_a_handler_raises_out_of_a_call(host: Path, store_url: str) -> None:
    """Programs limit calls with alarms that raise: it is theirs, and no failure of the call's own."""
    program = f"""
class TooLate(Exception): code = 0
def too_late(*_): raise TooLate
signal.signal(signal.SIGUSR1, too_late)
try:
    exec('''{WAITING}''')
except TooLate: print("good")
"""
    said = run_python(program, store_url, host)
    assert said == "-1 shm_create did not finish: TooLate came out of a function of the program's own\ngood\n"
