"""Where the library finds its Python, and what it says when it does not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import _native
from support import c_programs
from support.c_interface import exported, forms
from support.c_observer import Observer
from support.c_programs import run

Compile = Callable[..., Path]
VERSION = f"python3.{sys.version_info.minor}"


def copied_library(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for file in Path(mf.get_lib_path()).glob("*.so*"):
        shutil.copy(file, folder)
    return folder


def alone(tmp_path: Path) -> Path:
    return copied_library(tmp_path / "alone")


def with_bad_note(tmp_path: Path) -> Path:
    folder = copied_library(tmp_path / "noted")
    (folder / "mf_smem.python").write_text("/nowhere/bin/python3\n")
    return folder


def without_interpreter(tmp_path: Path) -> Path:
    folder = copied_library(tmp_path / "lib" / VERSION / "site-packages" / "memfabric_hybrid" / "lib")
    (folder.parent / Path(_native.__file__).name).touch()
    return folder


def in_empty_environment(tmp_path: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    packages = tmp_path / "venv" / "lib" / VERSION / "site-packages"
    folder = copied_library(packages / "memfabric_hybrid" / "lib")
    (folder.parent / Path(_native.__file__).name).touch()
    return folder


def in_broken_environment(tmp_path: Path) -> Path:
    folder = in_empty_environment(tmp_path)
    (folder.parent / "__init__.py").write_text("import a_module_that_is_missing\n")
    return folder


def noted_python_of_another_version(tmp_path: Path) -> Path:
    """Whether a library of the right version is somewhere else or not: nothing of ours is installed there."""
    folder = copied_library(tmp_path / "noted")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3.9").touch()
    (folder / "mf_smem.python").write_text(f"{tmp_path}/bin/python3.9\n")
    return folder


def with_broken_python_library(tmp_path: Path) -> Path:
    folder = noted_python_of_another_version(tmp_path)
    (folder / f"lib{VERSION}.so.1.0").write_text("not a library")
    return folder


def with_a_fork_while_it_starts(tmp_path: Path) -> Path:
    """By what the environment's own start runs: in the middle of the library's."""
    folder = in_empty_environment(tmp_path)
    fork = "import os; child = os.fork(); child or os._exit(0); os.waitpid(child, 0)"
    (folder.parents[1] / "forking.pth").write_text(f"{fork}\n")
    return folder


def with_python_without_modules(tmp_path: Path) -> Path:
    """The folder of its standard library is there, and next to nothing in it."""
    folder = noted_python_of_another_version(tmp_path)
    modules = tmp_path / "lib" / VERSION
    (modules / "lib-dynload").mkdir(parents=True)
    (modules / "os.py").touch()
    return folder


@pytest.mark.parametrize(
    ("installed", "words"),
    [
        (with_python_without_modules, "failed to get the Python codec of the filesystem encoding"),
        (noted_python_of_another_version, "/bin/python3.9"),
        (with_broken_python_library, f"lib{VERSION}.so.1.0 cannot be loaded, which the interpreter"),
        (alone, "no Python package memfabric_hybrid is around it"),
        (with_bad_note, "says that Python is /nowhere/bin/python3, which does not exist"),
        (without_interpreter, f"there is no {VERSION} for the packages in"),
        (in_empty_environment, "cannot import memfabric_hybrid"),
        (with_a_fork_while_it_starts, "cannot import memfabric_hybrid"),
        (in_broken_environment, "No module named 'a_module_that_is_missing'"),
    ],
)
def test_every_call_says_what_is_missing(
    compiled: Compile, tmp_path: Path, installed: Callable[[Path], Path], words: str
) -> None:
    program = compiled("start_failures.c")
    libraries = str(installed(tmp_path))
    said = run(program, words, LD_LIBRARY_PATH=libraries, PATH="/nowhere")
    assert words in said


def test_no_function_is_left_out(compiled: Compile, observer: Observer, tmp_path: Path) -> None:
    """That program calls all there are. Only those succeed that need nothing, or have nothing to do."""
    words = "no Python package memfabric_hybrid is around it"
    program = compiled("start_failures.c", language="c++17")
    calls = observer.watch(program, (words,), LD_LIBRARY_PATH=str(alone(tmp_path)), PATH="/nowhere")
    functions = {form.name: form for form in exported(forms())}
    assert {call.function for call in calls} == set(functions)
    assert {call.function for call in calls if call.succeeded and functions[call.function].result != "void"} == {
        "smem_get_abi_version", "smem_get_last_err_code", "smem_get_last_err_msg", "smem_get_and_clear_last_err_msg",
    }  # fmt: skip


def test_a_process_with_another_python(compiled: Compile, tmp_path: Path) -> None:
    """All functions are there, of a version that the library was not built for."""
    source = (c_programs.ROOT / "native" / "capi" / "interpreter.cpp").read_text()
    names = re.findall(r"\buse\((\w+)\)", source)
    assert "Py_GetVersion" in names
    stubs = "".join(f"void {name}(void) {{}}\n" for name in names if name != "Py_GetVersion")
    (tmp_path / "other.c").write_text(f'const char *Py_GetVersion(void) {{ return "3.9.1 (other)"; }}\n{stubs}')
    other = tmp_path / "libother.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", str(tmp_path / "other.c"), "-o", str(other)], check=True)
    words = "this process has Python 3.9.1"
    assert words in run(compiled("start_failures.c"), words, LD_PRELOAD=str(other))


def test_an_interpreter_that_is_noted(compiled: Compile, tmp_path: Path, store_url: str) -> None:
    """As the installation without pip has it: the library is apart from the package, and a file says whose it is."""
    folder = copied_library(tmp_path / "lib64")
    (folder / "mf_smem.python").write_text(f"{sys.executable}\n")
    library = folder / "libmf_smem.so"
    assert run(compiled("loader.c", linked=False), library, store_url, LD_LIBRARY_PATH=str(folder)) == "good\n"


def test_a_relative_path_of_the_library() -> None:
    """The program goes elsewhere before it uses it."""
    program = """
import ctypes, os, sys
smem = ctypes.CDLL(os.path.relpath(sys.argv[1]))
smem.smem_get_last_err_msg.restype = ctypes.c_char_p
os.chdir("/")
assert smem.smem_init(0) == 0, smem.smem_get_last_err_msg()
print("good")
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(c_programs.library())],
        cwd=c_programs.library().parents[1], capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "good\n"), done.stderr


def test_the_shell_does_not_matter(compiled: Compile, tmp_path: Path, store_url: str) -> None:
    (tmp_path / "memfabric_hybrid.py").write_text("raise SystemExit('not this one')\n")
    environment = {"PYTHONPATH": str(tmp_path), "PYTHONHOME": "/nowhere", "PATH": "/nowhere", "PYTHONSTARTUP": "x"}
    with c_programs.Running(
        compiled("loader.c", linked=False), c_programs.library(), store_url, **environment
    ) as running:
        assert running.end() == "good\n"


def test_loaded_by_a_program_that_runs_python(store_url: str) -> None:
    """Both faces work on the same objects, in one core."""
    program = """
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[2])
if sys.argv[3] == "first": import memfabric_hybrid as mf
assert library.smem_init(0) == 0
import memfabric_hybrid as mf
from memfabric_hybrid import bm
assert bm.initialize(sys.argv[1], 2, 0, bm.BmConfig()) == 0
assert library.smem_bm_get_rank_id() == bm.bm_rank_id() == 0
assert library.smem_set_log_level(9) == -2000
library.smem_get_last_err_msg.restype = ctypes.c_char_p
assert b"log level is 9" in library.smem_get_last_err_msg()
assert "log level is 9" in mf.get_last_err_msg()
library.smem_bm_create.restype = ctypes.c_void_p
handle = ctypes.c_void_p(library.smem_bm_create(0, 2, 1, ctypes.c_uint64(1 << 21), ctypes.c_uint64(0), 0))
assert handle and library.smem_bm_join(handle, 0) == 0
cores = {line.split()[-1] for line in open("/proc/self/maps") if "memfabric_core" in line}
assert len(cores) == 1, cores
try: bm.create(0, 1 << 21)
except RuntimeError as failure: assert "exists already" in str(failure)
library.smem_uninit()
assert bm.bm_rank_id() == 4294967295
print("good")
"""
    for order in ("first", "later"):
        done = subprocess.run(
            [sys.executable, "-c", program, store_url, str(c_programs.library()), order],
            capture_output=True, text=True, timeout=60, env={**os.environ, "MF_LOG_LEVEL": "5"},
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, "good\n"), done.stderr
