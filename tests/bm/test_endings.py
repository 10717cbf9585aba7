"""Endings: uninitialize and exit take about a second, and what other threads begin meanwhile leaves nothing."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.store import connect
from support import pool_worker
from support.pause_points import held
from support.programs import run_python
from support.threads import Beside, wait_until

HEARTBEAT = "MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S"
PATIENT: dict[str, int] = {"init_timeout": 60, "create_timeout": 60, "operation_timeout": 60}


@pytest.mark.parametrize(
    ("point", "has_store"),
    [("member.enter.connecting", False), ("member.enter.connecting", True), ("member.enter.has_rank", True)],
)
def test_uninitialize_interrupts_an_initialize(store_url: str, point: str, has_store: bool) -> None:
    if has_store:
        assert mf.create_config_store(store_url) == 0
    with held(point) as reached:
        entering = Beside(lambda: pool_worker.enter(store_url, 4, start_store=False, **PATIENT))
        reached.wait_until_reached()
        Beside(bm.uninitialize).result()
    code, sentence = entering.result()
    assert code == -2008
    assert "Big Memory was uninitialised, or the program ended, while initialize() was under way" in sentence
    assert bm.bm_rank_id() == 4294967295
    if has_store:
        with connect(store_url) as store:
            wait_until(lambda: store.prefix("bm/ranks/", deadline=Deadline(10)).entries == {})
        assert pool_worker.enter(store_url, 4, start_store=False) == (0, "")


def test_objects_share_the_farewell_time(store_url: str, workers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has something to say to a store that does not answer; a second for each would be too long."""
    monkeypatch.setenv(HEARTBEAT, "600")
    with workers(1, **{HEARTBEAT: "600"}) as cluster:
        assert cluster.call(0, "enter", store_url) == (0, "")
        assert pool_worker.enter(store_url) == (0, "")
        for object_id in range(30):
            pool_worker.create(object_id)
            pool_worker.join(object_id)
        cluster.kill(0, signal.SIGSTOP)
        Beside(bm.uninitialize).result()
        cluster.kill(0, signal.SIGCONT)


EXIT_WHILE_ENTERING = """
import sys, threading
import memfabric_hybrid as mf
from memfabric_hybrid import _native, {module}

config = {module}.{config}()
config.init_timeout, config.start_store = 600, False
_native._hold_at("member.enter.connecting")
def enter():
    code = {module}.initialize(sys.argv[1], 2, 0, *{more}, config)
    print(code, mf.get_last_err_msg(), flush=True)
threading.Thread(target=enter, daemon=True).start()
assert _native._wait_until_held("member.enter.connecting", 20)
_native._release_at("member.enter.connecting")
"""


@pytest.mark.parametrize(("module", "config", "more"), [("bm", "BmConfig", "()"), ("shm", "ShmConfig", "(0,)")])
def test_exit_does_not_wait_for_an_initialize(store_url: str, module: str, config: str, more: str) -> None:
    done = run_python(EXIT_WHILE_ENTERING.format(module=module, config=config, more=more), store_url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("-2008")


def test_create_that_loses_against_uninitialize_leaves_nothing(store_url: str) -> None:
    """The last moment: the range is held, the object not yet known to who ends all objects."""
    assert pool_worker.enter(store_url) == (0, "")
    with held("bm.create.holds_range") as point:
        creating = Beside(lambda: bm.create(0, 2 << 20))
        point.wait_until_reached()
        Beside(bm.uninitialize).result()
    with pytest.raises(RuntimeError, match="Big Memory was uninitialised while bm object 0 was created"):
        creating.result()
    assert pool_worker.enter(store_url) == (0, "")
    pool_worker.create()


def test_uninitialize_where_no_thread_can_be_started(
    store_url: str, workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody's departure is an event, and the first event starts a thread."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with workers(1) as cluster:
        cluster.call(0, "take_part", store_url, 4)
        assert pool_worker.enter(store_url, 4) == (0, "")
        pool_worker.create()
        with monkeypatch.context() as limited:
            limited.setattr(threading.Thread, "start", refuse)
            pool_worker.join()
            assert pool_worker.view() == [0, 1]
            bm.uninitialize()
        assert cluster.call(0, "wait_for_view", [0]) < 10


def test_initialize_where_no_thread_can_be_started(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        code, sentence = pool_worker.enter(store_url)
    assert code == -2002
    assert "cannot be started" in sentence
    assert pool_worker.enter(store_url) == (0, "")
