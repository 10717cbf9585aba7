"""Nobody waits in silence, and nobody waits for what is no store."""

from __future__ import annotations

import http.server
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm, clock, shm, waiting_log
from memfabric_hybrid.address_space.changes import Changes
from memfabric_hybrid.clock import Deadline
from support.programs import run_python
from support.threads import Beside, wait_until
from support.workers import Cluster

pytestmark = pytest.mark.usefixtures("everything_off")

LONG_S = 100  # what nobody waits for in these tests
AT_ONCE_S = 50.0
WARNING = 2


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Warnings; who waits says so soon."""
    monkeypatch.setattr(waiting_log, "FIRST_S", 0.05)
    said: list[str] = []
    mf.set_extern_logger(lambda level, text: said.append(text) if level == WARNING else None)
    yield said
    mf.set_extern_logger(None)


@contextmanager
def at_once() -> Iterator[None]:
    begun = clock.now()
    yield
    assert clock.now() - begun < AT_ONCE_S


@pytest.fixture
def http_url() -> Iterator[str]:
    """What people start on any port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        server.daemon_threads = False
        server.RequestHandlerClass.log_message = lambda *arguments: None  # type: ignore[method-assign,assignment]
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"tcp://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        serving.join()


@pytest.fixture
def held() -> Iterator[socket.socket]:
    """A port that a program has, without serving anybody."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder


def url_of(holder: socket.socket) -> str:
    return f"tcp://127.0.0.1:{holder.getsockname()[1]}"


# ---- silence ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bm", "shm"])
def test_initialize_says_that_it_waits_for_the_store(lines: list[str], store_url: str, kind: str) -> None:
    if kind == "bm":
        code = bm.initialize(store_url, 2, 0, bm.BmConfig(init_timeout=1, start_store=False))
    else:
        code = shm.initialize(store_url, 2, 1, 0, shm.ShmConfig(init_timeout=1))
    assert code == -2004
    assert lines
    for line in lines:
        assert f"at most 1 s: store {store_url} is not there: " in line
        assert "Connection refused" in line
    assert len(lines) < 10, "at growing intervals"


def test_create_names_the_ranks_it_waits_for(lines: list[str], store_url: str) -> None:
    assert shm.initialize(store_url, 4, 0, 0, shm.ShmConfig(create_timeout=1)) == 0
    with pytest.raises(RuntimeError, match="3 of 4 ranks did not come within 1 s: 1, 2, 3"):
        shm.create(0, 4, 0, 2 << 20)
    assert lines
    for line in lines:
        assert "3 of 4 ranks have not come: 1, 2, 3" in line


def test_wait_for_names_the_ranks_it_waits_for(lines: list[str], store_url: str) -> None:
    assert bm.initialize(store_url, 3, 0, bm.BmConfig()) == 0
    with bm.create(0, 2 << 20) as pool:
        assert pool.join() == 0
        with pytest.raises(mf.errors.TimedOut, match="bm object 0: 2 of 2 ranks did not come within 1 s: 1, 2; start"):
            pool.wait_for([1, 2], timeout=1)
    assert lines
    for line in lines:
        assert "at most 1 s: bm object 0: 2 of 2 ranks have not come: 1, 2" in line
    assert len(lines) < 10, "at growing intervals"


def test_a_call_that_waits_for_another_one_says_so(lines: list[str]) -> None:
    changes = Changes("bm object 0")
    with changes.turn(Deadline(LONG_S)):
        waiting = Beside(lambda: changes.turn(Deadline(LONG_S)).__enter__())
        wait_until(lambda: bool(lines))
    waiting.result()
    assert "bm object 0: another thread is inside join, leave or extend" in lines[0]


def test_intervals_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = 0.0, list[float]()
    monkeypatch.setattr(clock, "now", lambda: now)

    class Recorder:
        def warning(self, text: str, *values: object) -> None:
            said.append(now)

    log: Any = Recorder()
    waiting = waiting_log.WaitingLog(log, 300)
    while now < 250:
        waiting.tell("somebody")
        now += min(0.5, max(waiting.due_in_s(), 0.01))
    assert [round(moment) for moment in said] == [2, 6, 14, 30, 62, 122, 182, 242]


def test_a_listener_that_says_nothing_is_named(lines: list[str], held: socket.socket) -> None:
    """It may be a store that is stopped: one has to wait."""
    held.listen()
    assert bm.initialize(url_of(held), 2, 0, bm.BmConfig(init_timeout=2)) == -2004
    assert "accepts connections and does not answer; is it a store?" in mf.get_last_err_msg()
    assert "accepts connections and does not answer; is it a store?" in lines[0]


# ---- what is no store -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("starts_store", [True, False])
def test_a_server_of_another_kind_is_told_at_once(http_url: str, starts_store: bool) -> None:
    config = bm.BmConfig(init_timeout=LONG_S, start_store=starts_store)
    with at_once():
        assert bm.initialize(http_url, 2, 0, config) == -2009
    sentence = mf.get_last_err_msg()
    assert http_url in sentence
    assert "is no store: it answered '" in sentence
    assert re.search("HTML|HTTP", sentence)


@pytest.mark.parametrize("kind", ["bm", "bm with a rank", "shm"])
def test_a_port_that_is_held_by_no_store_is_told_at_once(held: socket.socket, kind: str) -> None:
    """This process was to start the store."""
    url = url_of(held)
    with at_once():
        if kind == "shm":
            code = shm.initialize(url, 2, 0, 0, shm.ShmConfig(init_timeout=LONG_S))
        elif kind == "bm":
            code = bm.initialize(url, 2, 0, bm.BmConfig(init_timeout=LONG_S))
        else:
            code = bm.initialize(url, 2, 0, bm.BmConfig(init_timeout=LONG_S, auto_ranking=False, rank_id=0))
    assert code == -2009
    assert f"{url} is taken" in mf.get_last_err_msg()
    assert "it is no store" in mf.get_last_err_msg()
    held.close()
    assert bm.initialize(url, 2, 0, bm.BmConfig()) == 0, mf.get_last_err_msg()


def test_barrier_says_for_whom_it_waits(lines: list[str], heap_and_other: tuple[shm.ShareMemory, Cluster]) -> None:
    heap, cluster = heap_and_other
    waiting = Beside(heap.barrier)
    wait_until(lambda: any("ranks have not called barrier" in line for line in lines))
    assert cluster.call(1, "call", "barrier") == (0, "")
    assert waiting.result() == 0
    said = next(line for line in lines if "have not called" in line)
    assert re.search(
        r"shm object 0: waiting for \d+ s now, at most 100 s: 1 of 2 ranks have not called .*: rank 1", said
    )


# ---- ignored without a word -----------------------------------------------------------------------------------------


def test_initialize_again_with_other_arguments_says_what_it_ignores(lines: list[str], store_url: str) -> None:
    assert bm.initialize(store_url, 2, 0, bm.BmConfig()) == 0
    assert bm.initialize(store_url, 2, 0, bm.BmConfig()) == 0
    assert not lines
    assert bm.initialize("tcp://127.0.0.1:5", 3, 0, bm.BmConfig()) == 0
    assert f"ignores store_url=tcp://127.0.0.1:5 ({store_url} is used), world_size=3 (2 is used)" in lines[0]
    assert shm.initialize(store_url, 1, 0, 0, shm.ShmConfig()) == 0
    assert shm.initialize(store_url, 2, 1, 0, shm.ShmConfig()) == 0
    assert "ignores world_size=2 (1 is used), rank_id=1 (0 is used)" in lines[1]
    assert len(lines) == 2


def test_initialize_again_with_another_configuration_says_what_it_ignores(lines: list[str], store_url: str) -> None:
    config = bm.BmConfig(operation_timeout=7)
    assert bm.initialize(store_url, 2, 0, config) == 0
    assert bm.initialize(store_url, 2, 0, bm.BmConfig(operation_timeout=7, rank_id=1)) == 0
    assert not lines, "the store gives the rank"
    other = bm.BmConfig(operation_timeout=8, auto_ranking=False, rank_id=1)
    other.set_nic("tcp://127.0.0.1:5000")
    assert bm.initialize(store_url, 2, 0, other) == 0
    assert "operation_timeout=8 (7 is used)" in lines[0]
    assert "auto_ranking=False (True is used), rank_id=1" in lines[0]
    assert "nic=tcp://127.0.0.1:5000" in lines[0]
    assert shm.initialize(store_url, 1, 0, 0, shm.ShmConfig()) == 0
    assert shm.initialize(store_url, 1, 0, 0, shm.ShmConfig(create_timeout=9)) == 0
    assert lines[1].endswith("ignores create_timeout=9 (120 is used); uninitialize it first")
    assert len(lines) == 2


def test_a_moved_store_is_the_one_that_is_used(lines: list[str], store_url: str) -> None:
    assert bm.initialize(store_url, 2, 0, bm.BmConfig()) == 0
    moved_to = store_url.replace("127.0.0.1", "localhost")
    assert bm.update_store_url(moved_to) == 0
    assert bm.initialize(moved_to, 2, 0, bm.BmConfig()) == 0
    assert not [line for line in lines if "ignores" in line]


def test_memory_that_is_not_used_is_named(lines: list[str], store_url: str) -> None:
    assert bm.initialize(store_url, 1, 0, bm.BmConfig()) == 0
    bm.create2(0, 2 << 20, 2 << 20, shm_fd=77).destroy()
    assert "shm_fd=77 is ignored" in lines[0]
    bm.create2(0, 2 << 20, 2 << 20).destroy()
    assert len(lines) == 1


STREAM_WITHOUT_ITS_FLAG = """
import sys, threading
import memfabric_hybrid as mf
from memfabric_hybrid import bm
told = threading.Event()
lines = []
mf.set_extern_logger(lambda level, text: (lines.append(text), told.set()))
assert bm.initialize(sys.argv[1], 1, 0, bm.BmConfig()) == 0
pool = bm.create(0, 4 << 20)
assert pool.join() == 0
stream = mf.Stream()
copy = lambda *rest: pool.copy_data(pool.base, pool.base + (2 << 20), 8, bm.BmCopyType.G2G, *rest)
assert copy(4, stream) == copy(0, 0) == copy() == 0
assert not lines
assert copy(0, stream) == copy(0, stream) == 0
assert told.wait(20)
mf.uninitialize()
print(*lines)
"""


def test_a_stream_that_is_not_used_is_named_once(store_url: str) -> None:
    done = run_python(STREAM_WITHOUT_ITS_FLAG, store_url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("a stream was given and is ignored") == 1
