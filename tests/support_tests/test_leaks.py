"""The leak check finds each kind of leak and names it; what is given back in time is none."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from support import leaks
from support.worker import TESTS

SHORT_S = 0.05


def test_nothing_is_no_leak() -> None:
    assert leaks.wait_for_leaks(leaks.Snapshot.take()) == []


def test_open_descriptor_is_named_with_its_target() -> None:
    before = leaks.Snapshot.take()
    with tempfile.NamedTemporaryFile() as file:
        assert leaks.wait_for_leaks(before, SHORT_S) == [
            f"file descriptor still open: {file.name} (fd {file.fileno()})"
        ]
    assert leaks.wait_for_leaks(before) == []


def test_second_descriptor_of_the_same_thing_counts() -> None:
    with tempfile.NamedTemporaryFile() as file:
        before = leaks.Snapshot.take()
        copy = os.dup(file.fileno())
        assert leaks.wait_for_leaks(before, SHORT_S) == [f"file descriptor still open: {file.name} (fd {copy})"]
        os.close(copy)


def test_mapped_memory_file_is_found_after_its_descriptor_is_closed() -> None:
    before = leaks.Snapshot.take()
    descriptor = os.memfd_create("pool")
    os.ftruncate(descriptor, mmap.PAGESIZE)
    mapping = mmap.mmap(descriptor, mmap.PAGESIZE)
    os.close(descriptor)
    try:
        found = leaks.wait_for_leaks(before, SHORT_S)
    finally:
        mapping.close()
    # CPython's mmap keeps a descriptor of its own, hence two leaks.
    assert any("memory file still mapped: /memfd:pool" in leak for leak in found), found
    assert leaks.wait_for_leaks(before) == []


def test_running_thread_is_named() -> None:
    before = leaks.Snapshot.take()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="forgotten")
    thread.start()
    found = leaks.wait_for_leaks(before, SHORT_S)
    stop.set()
    thread.join()
    assert found == [f"thread still running: forgotten (tid {thread.native_id})"]


def test_thread_that_ends_soon_is_no_leak() -> None:
    before = leaks.Snapshot.take()
    timer = threading.Timer(0.1, lambda: None)
    timer.start()
    assert leaks.wait_for_leaks(before) == []


def test_running_child_is_named_and_killed() -> None:
    before = leaks.Snapshot.take()
    with subprocess.Popen(["sleep", "61"]) as child:
        found = leaks.wait_for_leaks(before, SHORT_S)
    assert found == [f"child process still running: sleep 61 (pid {child.pid}, state S)"]


def test_shared_memory_entry_is_named() -> None:
    before = leaks.Snapshot.take()
    with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="mf-test-") as file:
        found = leaks.wait_for_leaks(before, SHORT_S)
    assert f"entry left in /dev/shm: {Path(file.name).name}" in found


def run_pytest(folder: Path, test: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """One test module in a run of its own, under the rules of our conftest."""
    (folder / "test_sample.py").write_text(test)
    (folder / "pytest.ini").write_text("[pytest]\n")
    python_path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "test_sample.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": python_path, **environment},
        capture_output=True,
        text=True,
    )


LEAKING_STATEMENTS = {
    "threading.Thread(target=time.sleep, args=(3,), name='forgotten').start()": "thread still running: forgotten",
    "os.open('/dev/null', os.O_RDONLY)": "file descriptor still open: /dev/null",
    "subprocess.run(['sh', '-c', 'sleep 62 &'])": "child process still running: sleep 62",
}


@pytest.mark.parametrize("statement", LEAKING_STATEMENTS)
def test_a_leaking_test_fails(tmp_path: Path, statement: str) -> None:
    finished = run_pytest(tmp_path, f"import os, subprocess, threading, time\ndef test_it():\n    {statement}\n")
    assert finished.returncode == 1, finished.stdout
    assert LEAKING_STATEMENTS[statement] in finished.stdout


@pytest.mark.parametrize(("ci", "code"), [("true", 1), ("", 0)])
def test_a_skip_fails_in_ci_only(tmp_path: Path, ci: str, code: int) -> None:
    test = "import pytest\ndef test_a(): pass\ndef test_b(): pytest.skip('not here')\n"
    finished = run_pytest(tmp_path, test, CI=ci)
    assert finished.returncode == code, finished.stdout
    assert ("skipped tests count as failures" in finished.stdout) == bool(code)


@pytest.mark.plain_user
def test_what_needs_root_may_be_skipped_by_others(tmp_path: Path) -> None:
    test = "import pytest\n@pytest.mark.needs_root('only root can do it')\ndef test_a(): pass\ndef test_b(): pass\n"
    finished = run_pytest(tmp_path, test, CI="true", PYTEST_ADDOPTS="-rs")
    assert finished.returncode == 0, finished.stdout
    assert ("needs root: only root can do it" in finished.stdout) == (os.geteuid() != 0)
