"""Endings of Share Memory: exits that nobody hears, creations that are called off."""

from __future__ import annotations

import sys
import threading

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import shm
from memfabric_hybrid.shm import runtime
from support.pause_points import held
from support.programs import run_python
from support.threads import LONG_S, Beside, wait_until
from support.workers import Cluster

EXIT_WITHOUT_A_STORE = """
import os, signal, sys
import memfabric_hybrid as mf
from memfabric_hybrid import shm

config = shm.ShmConfig()
config.operation_timeout, config.start_store = 600, False
assert shm.initialize(sys.argv[1], 1, 0, 0, config) == 0, mf.get_last_err_msg()
heap = shm.create(0, 1, 0, 1)
os.kill(int(sys.argv[2]), signal.SIGKILL)
for status in range(5):
    assert heap.global_exit(status) == 0
print("done", flush=True)
"""


@pytest.mark.parametrize("ending", ["", "heap.destroy()", "shm.uninitialize()"])
def test_exits_that_no_store_hears_do_not_delay_the_end(store_url: str, ending: str) -> None:
    with Cluster(1, script="import memfabric_hybrid as mf\nserve = mf.create_config_store\n") as cluster:
        assert cluster.call(0, "serve", store_url) == 0
        done = run_python(EXIT_WITHOUT_A_STORE + ending, store_url, str(cluster.pid(0)))
        cluster.kill(0)
    assert (done.returncode, done.stdout) == (0, "done\n")


def test_exit_handlers_go_on_after_one_that_exits(heap: shm.ShareMemory) -> None:
    heard: list[int] = []
    twice = threading.Event()

    def handler(status: int) -> None:
        heard.append(status)
        if len(heard) == 2:
            twice.set()
        sys.exit(status)

    assert heap.register_exit(handler) == 0
    assert heap.global_exit(1) == 0
    assert heap.global_exit(2) == 0
    assert twice.wait(LONG_S)
    assert heard == [1, 2]


def enter(store_url: str, world_size: int) -> None:
    config = shm.ShmConfig()
    config.create_timeout = 600
    assert shm.initialize(store_url, world_size, 0, 0, config) == 0, mf.get_last_err_msg()


def test_uninitialize_interrupts_a_create_that_waits_for_ranks(store_url: str) -> None:
    enter(store_url, 2)
    creating = Beside(lambda: shm.create(0, 2, 0, 1))
    wait_until(lambda: any(pool.joined for pool in runtime.current().node.pools()))
    Beside(shm.uninitialize).result()
    with pytest.raises(RuntimeError, match="Share Memory was uninitialised while shm object 0 was created"):
        creating.result()


def test_create_that_loses_against_uninitialize_leaves_nothing(store_url: str) -> None:
    enter(store_url, 1)
    with held("shm.create.holds_range") as point:
        creating = Beside(lambda: shm.create(0, 1, 0, 1))
        point.wait_until_reached()
        Beside(shm.uninitialize).result()
    with pytest.raises(RuntimeError, match="Share Memory was uninitialised while shm object 0 was created"):
        creating.result()
    enter(store_url, 1)
    shm.create(0, 1, 0, 1)
