"""Which UCX is loaded: every case in a process of its own, since a process loads one only."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memfabric_hybrid.transports import ucx_library

REPORT = """
import ctypes, json, os, sys
from memfabric_hybrid.transports import ucx_library
def caught():
    lines = open("/proc/self/status").read().splitlines()
    return next(line for line in lines if line.startswith("SigCgt"))
if sys.argv[1]:
    ctypes.CDLL(sys.argv[1])
before = caught(), dict(os.environ)
found = ucx_library.load()
assert found.loaded == (found == ucx_library.status() == ucx_library.load())
print(json.dumps([*found, (caught(), dict(os.environ)) == before]))
"""


@pytest.fixture(scope="module")
def wheel() -> str:
    found = ucx_library.wheel_library()
    assert found, "the development tools (group dev) have the Python package libucx-cu12"
    return found


@pytest.fixture(scope="module")
def system() -> str:
    shown = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    for line in shown.splitlines():
        if line.strip().startswith("libucp.so.0 "):
            return str(Path(line.rpartition("=> ")[2]).resolve())
    pytest.skip("the system has no UCX (Debian, Ubuntu: libucx0)")


def load(chosen: str = "", loaded_before: str = "", prefix: tuple[str, ...] = ()) -> ucx_library.UcxStatus:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MF_UCX", "UCX_"))}
    if chosen:
        environment["MF_UCX_LIBRARY"] = chosen
    command = [*prefix, sys.executable, "-c", REPORT, loaded_before]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    *found, process_is_unchanged = json.loads(done.stdout)
    assert process_is_unchanged, "UCX has changed signal handlers or the environment"
    assert not done.stderr
    return ucx_library.UcxStatus(*found)


def resolved(path: str) -> str:
    return str(Path(path).resolve())


def test_the_setting_comes_first(wheel: str, system: str) -> None:
    for chosen in (wheel, system):
        found = load(chosen)
        assert found.loaded, found.obstacle
        assert resolved(found.path) == resolved(chosen)
        assert found.version.startswith("1.")


def test_one_that_is_loaded_comes_before_the_systems(wheel: str, system: str) -> None:
    assert resolved(load(loaded_before=wheel).path) == resolved(wheel)


def test_one_that_was_renamed_is_found_as_well(wheel: str, system: str, tmp_path: Path) -> None:
    """As wheels have it that bring libraries of their own: another file name, and another name inside."""
    for library in Path(wheel).parent.glob("libuc?.so.0"):
        shutil.copy(library, tmp_path)
    renamed = tmp_path / "libucp-0123abcd.so.0"
    renamed.write_bytes((tmp_path / "libucp.so.0").read_bytes().replace(b"\0libucp.so.0\0", b"\0libucp-so.0\0"))
    (tmp_path / "libucp.so.0").unlink()
    assert load(loaded_before=str(renamed)).path == str(renamed)


def test_the_systems_comes_before_the_packages(system: str) -> None:
    assert resolved(load().path) == system


@pytest.mark.needs_root("only root can hide a library")
def test_the_packages_comes_last(wheel: str, system: str) -> None:
    hidden = ("unshare", "--mount", "sh", "-c", f'mount --bind /dev/null {system} && exec "$@"', "sh")
    assert resolved(load(prefix=hidden).path) == resolved(wheel)


def test_there_is_never_a_second_copy(wheel: str, system: str) -> None:
    found = load(chosen=system, loaded_before=wheel)
    assert not found.loaded
    assert "two copies disturb each other" in found.obstacle
    assert wheel in found.obstacle
    assert load(chosen=wheel, loaded_before=wheel).loaded


def test_what_is_no_ucx_is_refused(tmp_path: Path) -> None:
    missing = load(chosen=str(tmp_path / "libucp.so.0"))
    assert "cannot open shared object file" in missing.obstacle
    other = load(chosen="libm.so.6")
    assert "libm.so.6 is no UCX that can be used: it has no function ucp_get_version" in other.obstacle


def test_nothing_is_loaded_before_it_is_needed() -> None:
    assert ucx_library.status() == (False, "", "", "UCX was not needed yet")
