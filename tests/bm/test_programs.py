"""Whole programs: forgotten endings, the store's launcher, and forks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

import memfabric_hybrid as mf
from support import pool_worker
from support.pool_worker import MIB
from support.programs import besides_failures, run_python
from support.workers import Cluster

FORGETFUL = """
import sys, threading
import memfabric_hybrid as mf
from memfabric_hybrid import bm
logged = []
mf.set_log_level(0)
mf.set_extern_logger(lambda level, text: logged.append(text))
assert bm.initialize(sys.argv[1], 4, 0, bm.BmConfig()) == 0
pool = bm.create(0, 1 << 20, 1 << 20)
assert pool.join() == 0
array = pool.array(0, 100, "u1")
stream = mf.Stream()
pool.copy_data(array.ctypes.data, array.ctypes.data + 50, 10, bm.BmCopyType.AUTO, 5, stream)
pool.set_group_event_handler(lambda rank, event: None)
print("at the end", len(logged) > 0)
"""


def test_forgetting_to_uninitialize_exits_cleanly(store_url: str) -> None:
    for ending in ("", "sys.exit(0)", "pool.destroy()", "bm.uninitialize()", "del pool, array"):
        began = time.monotonic()
        done = run_python(FORGETFUL + ending, store_url)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "at the end True\n"
        assert time.monotonic() - began < 10


def test_exception_ends_the_program_with_its_own_traceback(store_url: str) -> None:
    done = run_python(FORGETFUL + "raise KeyError('mine')", store_url)
    assert done.returncode == 1
    assert "KeyError: 'mine'" in done.stderr


def test_forgetting_to_uninitialize_leaves_at_once(store_url: str, workers: Any) -> None:
    with workers(1) as cluster:
        cluster.call(0, "take_part", store_url, 4, dram=MIB, hbm=MIB)
        assert run_python(FORGETFUL, store_url).returncode == 0
        assert cluster.call(0, "view") == [0]


LAUNCHER = [sys.executable, "-W", "error", "-m", "memfabric_hybrid.launch_ascend_mf_store"]
URL_NAMES = ("MF_CONFIG_STORE_URL", "ASCEND_MF_STORE_URL")


def launcher_environment(**chosen: str) -> dict[str, str]:
    return {**{name: value for name, value in os.environ.items() if name not in URL_NAMES}, **chosen}


@pytest.mark.parametrize("name", URL_NAMES)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_launcher_serves_until_it_is_told_to_stop(store_url: str, name: str, number: signal.Signals) -> None:
    environment, piped = launcher_environment(**{name: store_url}), subprocess.PIPE
    with subprocess.Popen(LAUNCHER, env=environment, stdout=piped, stderr=piped) as store:
        assert store.stdout is not None
        assert store.stdout.readline().decode().startswith(f"the config store runs at {store_url};")
        assert pool_worker.enter(store_url, 4, start_store=False) == (0, "")
        assert pool_worker.rank() == 0
        pool_worker.uninitialize()
        store.send_signal(number)
        assert store.wait(10) == 0
        assert store.stderr is not None
        assert store.stderr.read() == b""


def test_launcher_says_that_an_etcd_runs_by_itself() -> None:
    environment = launcher_environment(MF_CONFIG_STORE_URL="etcd://127.0.0.1:1", MF_LOG_LEVEL="5")
    with subprocess.Popen(LAUNCHER, env=environment, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        line = launcher.stdout.readline()
        assert line.startswith("nothing runs here: an etcd, as the store at etcd://127.0.0.1:1, runs by itself; SIGINT")
        launcher.send_signal(signal.SIGTERM)
        assert launcher.wait(10) == 0


@pytest.mark.parametrize("module", ["memfabric_hybrid", "mf_adapter"])
def test_launcher_explains_itself(module: str) -> None:
    command = [sys.executable, "-W", "error", "-m", f"{module}.launch_ascend_mf_store", "--help"]
    done = subprocess.run(command, env=launcher_environment(), capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(name in done.stdout for name in (*URL_NAMES, "MF_LOG_LEVEL", "SIGTERM"))


def test_launcher_names_arguments_that_it_ignores() -> None:
    environment = launcher_environment(MF_CONFIG_STORE_URL="tcp://127.0.0.1:0")
    done = subprocess.run([*LAUNCHER, "--port", "9000"], env=environment, capture_output=True, text=True, timeout=30)
    assert done.returncode == -2000 & 0xFF
    assert "ignores --port 9000; see --help" in done.stderr


def test_launcher_without_a_url() -> None:
    done = subprocess.run(LAUNCHER, env=launcher_environment(), capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert "ValueError" in done.stderr
    assert all(name in done.stderr for name in URL_NAMES)


def test_launcher_exits_with_the_code_of_the_failure(store_url: str) -> None:
    assert mf.create_config_store(store_url) == 0
    for url, code, why in ((store_url, -2009, "taken"), ("tcp://127.0.0.1:0", -2000, "port '0'")):
        environment = launcher_environment(MF_CONFIG_STORE_URL=url, ASCEND_MF_STORE_URL="tcp://never.looked.at:1")
        done = subprocess.run(LAUNCHER, env=environment, capture_output=True, text=True, timeout=30)
        assert done.returncode == code & 0xFF
        assert why in done.stderr


# ---- forks ----------------------------------------------------------------------------------------------------------

FORKING = """
import ctypes, os, sys
import memfabric_hybrid as mf
from memfabric_hybrid import bm
from memfabric_hybrid.bm import BmCopyType, BmMemType

assert bm.initialize(sys.argv[1], 4, 0, bm.BmConfig()) == 0, mf.get_last_err_msg()
pool = bm.create(0, 1 << 20)
assert pool.join() == 0
source = ctypes.create_string_buffer(b"x" * 64)
own = pool.peer_rank_ptr(0, BmMemType.HOST)
pool.copy_data(ctypes.addressof(source), own, 64, BmCopyType.H2G, 1)
assert pool.wait() == 0

child = os.fork()
if child == 0:
    seen = {
        "rank": bm.bm_rank_id(),
        "copy": pool.copy_data(ctypes.addressof(source), own, 8, BmCopyType.H2G),
        "async": pool.copy_data(ctypes.addressof(source), own, 8, BmCopyType.H2G, 1),
        "wait": pool.wait(),
        "join": pool.join(),
        "leave": pool.leave(),
        "update": bm.update_store_url("tcp://127.0.0.1:9000"),
    }
    sentence = mf.get_last_err_msg()
    pool.destroy()
    bm.uninitialize()
    mf.uninitialize()
    sockets = [name for name in map(lambda fd: os.readlink(f"/proc/self/fd/{fd}") if os.path.lexists(
        f"/proc/self/fd/{fd}") else "", os.listdir("/proc/self/fd")) if name.startswith("socket:")]
    expected = {"rank": 4294967295, **dict.fromkeys(("copy", "async", "wait", "join", "leave", "update"), -2008)}
    print(seen == expected or seen, "initiali" in sentence or sentence, sockets, flush=True)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert pool.copy_data(ctypes.addressof(source), own, 8, BmCopyType.H2G) == 0, mf.get_last_err_msg()
assert bm.bm_rank_id() == 0
assert pool.leave() == 0 and pool.join() == 0
print("parent unharmed")
"""


def test_forked_child_starts_uninitialised_and_the_parent_is_unharmed(store_url: str) -> None:
    done = run_python(FORKING, store_url)
    assert (done.stdout, besides_failures(done.stderr)) == ("True True []\nparent unharmed\n", "")
    assert done.returncode == 0


def test_forked_child_may_become_a_member_itself(store_url: str) -> None:
    program = (
        FORKING.split("child = os.fork()")[0]
        + """
child = os.fork()
if child == 0:
    assert bm.initialize(sys.argv[1], 4, 0, bm.BmConfig()) == 0, mf.get_last_err_msg()
    mine = bm.create(0, 1 << 20)
    assert mine.join() == 0, mf.get_last_err_msg()
    ctypes.memmove(mine.peer_rank_ptr(0, BmMemType.HOST), b"child", 5)
    print("child is rank", bm.bm_rank_id(), flush=True)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
print(ctypes.string_at(own, 5))
"""
    )
    done = run_python(program, store_url)
    assert (done.stdout, done.stderr) == ("child is rank 1\nb'child'\n", "")


def test_child_does_not_keep_a_dead_parent_alive(store_url: str, workers: Any) -> None:
    """A forked child holds copies of the parent's sockets, unless it lets go of them: then the death is unseen."""
    script = """
import os, time
from support.pool_worker import *

def fork_a_sleeper():
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    return child
"""
    with workers(1) as cluster, Cluster(1, script=script) as doomed:
        cluster.call(0, "take_part", store_url, 4)
        doomed.call(0, "take_part", store_url, 4)
        cluster.call(0, "wait_for_view", [0, 1])
        child = doomed.call(0, "fork_a_sleeper")
        try:
            os.kill(doomed.pid(0), signal.SIGKILL)  # the process only, not its group
            assert cluster.call(0, "wait_for_view", [0]) < 2.0
        finally:
            os.kill(child, signal.SIGKILL)
        doomed.kill(0)
