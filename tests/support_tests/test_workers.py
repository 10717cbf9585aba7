"""The tests' own processes: answers come back, deaths and hangs are reported with their reasons, nobody is orphaned."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support import processes
from support.worker import TESTS
from support.workers import Cluster, WorkerError

SCRIPT = """
import os, signal, subprocess, sys, time

memory = {}

def index():
    return int(os.environ["MF_WORKER_INDEX"]), int(os.environ["MF_WORKER_COUNT"])

def remember(key, value):
    memory[key] = value

def recall(key):
    return memory[key]

def say(text):
    print(text)

def a_place_to_hang():
    time.sleep(60)

def hang_in(path):
    open(path, "w").close()
    a_place_to_hang()

def start_a_child():
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid

def crash():
    os.kill(os.getpid(), signal.SIGSEGV)

def fail_if_index(unlucky):
    if index()[0] == unlucky:
        raise ValueError("unlucky")
    a_place_to_hang()

def exit_badly():
    import atexit
    atexit.register(os._exit, 7)

def not_picklable():
    return lambda: None
"""


def is_gone(pid: int) -> bool:
    return processes.state(pid) in ("", "Z")  # Z: this very process adopts orphans and reaps them after the test


def wait_until_gone(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while not is_gone(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return is_gone(pid)


def test_every_worker_answers_and_keeps_its_state() -> None:
    with Cluster(3, script=SCRIPT) as cluster:
        assert cluster.call_all("index") == [(0, 3), (1, 3), (2, 3)]
        cluster.call(1, "remember", "key", value=b"bytes")
        assert cluster.call(1, "recall", "key") == b"bytes"
        assert len({cluster.pid(index) for index in range(3)} | {os.getpid()}) == 4


def test_target_may_be_an_importable_module() -> None:
    with Cluster(1, target="posixpath") as cluster:
        assert cluster.call(0, "join", "a", "b") == "a/b"


def test_exception_comes_back_with_remote_traceback_and_output() -> None:
    with Cluster(2, script=SCRIPT) as cluster:
        cluster.call(1, "say", "a last word")
        with pytest.raises(WorkerError, match=r"worker 1 .* failed in recall: KeyError: 'nothing'") as caught:
            cluster.call(1, "recall", "nothing")
        assert "return memory[key]" in str(caught.value)
        assert "a last word" in str(caught.value)
        assert cluster.call(1, "index") == (1, 2), "a failed call must not end the worker"


def test_result_that_cannot_travel_is_a_failure_of_the_call() -> None:
    with Cluster(1, script=SCRIPT) as cluster, pytest.raises(WorkerError, match="failed in not_picklable"):
        cluster.call(0, "not_picklable")


def test_target_that_cannot_be_imported_is_reported() -> None:
    with pytest.raises(WorkerError, match="No module named 'no_such_module'"), Cluster(2, target="no_such_module"):
        pass


def test_dead_worker_is_reported_with_signal_and_native_stack() -> None:
    with Cluster(2, script=SCRIPT) as cluster:
        with pytest.raises(WorkerError, match=r"worker 0 .* died during crash: it was killed by SIGSEGV") as caught:
            cluster.call(0, "crash", timeout_s=10)
        assert "Fatal Python error: Segmentation fault" in str(caught.value)
        cluster.kill(0)


def test_crash_nobody_asked_for_fails_at_the_end() -> None:
    with pytest.raises(WorkerError, match="exited with 7"), Cluster(1, script=SCRIPT) as cluster:
        cluster.call(0, "exit_badly")


def test_killed_worker_refuses_calls_and_can_be_started_again() -> None:
    with Cluster(2, script=SCRIPT) as cluster:
        first_pid = cluster.pid(0)
        cluster.kill(0)
        assert not cluster.alive(0)
        with pytest.raises(WorkerError, match="was killed by SIGKILL"):
            cluster.call(0, "index")
        cluster.start(0)
        assert cluster.call(0, "index") == (0, 2)
        assert cluster.pid(0) != first_pid


def test_living_worker_is_not_started_twice() -> None:
    with Cluster(1, script=SCRIPT) as cluster, pytest.raises(WorkerError, match="although it is alive"):
        cluster.start(0)


def test_time_out_shows_the_stacks_and_the_answer_is_not_mistaken_later(tmp_path: Path) -> None:
    with Cluster(1, script=SCRIPT) as cluster:
        with pytest.raises(WorkerError, match=r"did not answer hang_in within 0\.5 s") as caught:
            cluster.call(0, "hang_in", tmp_path / "here", timeout_s=0.5)
        assert "in a_place_to_hang" in str(caught.value)
        assert "in hang_in" in str(caught.value)
        cluster.kill(0)


def test_stopped_worker_answers_after_it_continues() -> None:
    with Cluster(1, script=SCRIPT) as cluster:
        cluster.kill(0, signal.SIGSTOP)
        with pytest.raises(WorkerError, match=r"\(stopped\) did not answer recall"):
            cluster.call(0, "recall", "key", timeout_s=0.2)
        cluster.kill(0, signal.SIGCONT)
        assert cluster.call(0, "index") == (0, 1), "the late failure of recall must not answer this call"


def test_one_failure_among_many_ends_the_wait_for_the_others() -> None:
    with Cluster(3, script=SCRIPT) as cluster:
        began = time.monotonic()
        with pytest.raises(WorkerError, match=r"worker 1 .* ValueError: unlucky") as caught:
            cluster.call_all("fail_if_index", 1, timeout_s=60)
        assert time.monotonic() - began < 20
        assert "worker 0 " in str(caught.value)
        assert "after another worker had failed" in str(caught.value)
        for index in (0, 2):
            cluster.kill(index)


def test_end_of_the_block_kills_grandchildren_too() -> None:
    with Cluster(1, script=SCRIPT) as cluster:
        grandchild = cluster.call(0, "start_a_child")
        assert not is_gone(grandchild)
        cluster.kill(0)
    assert wait_until_gone(grandchild)


def test_workers_die_when_their_parent_is_killed() -> None:
    parent_script = f"""
import sys, time
sys.path.insert(0, {str(TESTS)!r})
from support.workers import Cluster
with Cluster(2, target="time") as cluster:
    pending = cluster.begin(0, "sleep", 60)
    print(cluster.pid(0), cluster.pid(1), flush=True)
    pending.result(60)
"""
    with subprocess.Popen([sys.executable, "-c", parent_script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(workers) == 2
        parent.kill()
    assert all(wait_until_gone(pid) for pid in workers)


def test_an_orderly_end_and_a_new_beginning_of_one_worker() -> None:
    with Cluster(2, script=SCRIPT) as cluster:
        before = cluster.pid(0)
        cluster.dismiss(0)
        assert not cluster.alive(0)
        assert "worker 0 " in cluster.report(0, "has ended")
        pending = cluster.begin_start(0)
        answer = cluster.begin(0, "index")  # it waits in the pipe
        pending.result(60)
        assert answer.result() == (0, 2)
        assert cluster.pid(0) != before


def test_an_end_that_is_not_orderly_is_told() -> None:
    script = "import atexit, os\natexit.register(os._exit, 7)\n"
    with Cluster(1, script=script) as cluster, pytest.raises(WorkerError, match="exited with 7"):
        cluster.dismiss(0)


def test_ready_does_not_wait() -> None:
    with Cluster(1, script=SCRIPT) as cluster:
        cluster.kill(0, signal.SIGSTOP)
        pending = cluster.begin(0, "index")
        assert not pending.ready()
        cluster.kill(0, signal.SIGCONT)
        deadline = time.monotonic() + 20
        while not pending.ready():
            assert time.monotonic() < deadline
        assert pending.result(0) == (0, 1)
        lost = cluster.begin(0, "index")
        cluster.kill(0)
        assert lost.ready()
