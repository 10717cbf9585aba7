"""Threads of ours: callbacks that exit, logs that cannot be written, and threads that fail end nothing silently."""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import logs
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import NoResources
from memfabric_hybrid.machine import callbacks
from memfabric_hybrid.machine.service_thread import ServiceThread
from memfabric_hybrid.membership.call_queue import CallQueue
from memfabric_hybrid.store.in_process import InProcessServer, InProcessStore

LONG_S = 10.0
EXITS = [SystemExit, KeyboardInterrupt, GeneratorExit, ValueError]
log = logs.get("memfabric_hybrid.some_module")


class Broken(io.StringIO):
    """A standard error whose other end is gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


STREAMS = [pytest.param(lambda: None, id="none"), pytest.param(closed, id="closed"), pytest.param(Broken, id="broken")]


@pytest.fixture
def lines() -> Iterator[list[str]]:
    seen: list[str] = []
    mf.set_extern_logger(lambda level, text: seen.append(text))
    yield seen
    logs.handler.extern = None


def on_a_thread(serve: Callable[[], object]) -> list[str]:
    """Runs it on a thread of ours; why the thread failed."""
    failures: list[str] = []
    thread = ServiceThread("a thread of a test", serve, failures.append)
    thread.start()
    assert thread.join(Deadline(LONG_S))
    return failures


# ---- what callbacks raise -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", EXITS)
def test_later_calls_of_a_queue_run_whatever_one_raises(error: type[BaseException], lines: list[str]) -> None:
    def fail() -> None:
        raise error("on purpose")

    queue, done = CallQueue("test queue"), []
    queue.post(fail)
    queue.post(lambda: done.append(1))
    queue.close(Deadline(LONG_S))
    assert done == [1]
    assert any("test queue" in line and error.__name__ in line and "ignored" in line for line in lines)


@pytest.mark.parametrize("error", EXITS)
def test_watches_go_on_whatever_their_callback_raises(error: type[BaseException], lines: list[str]) -> None:
    seen: list[dict[str, bytes | None]] = []
    twice = threading.Event()

    def callback(update: Any) -> None:
        seen.append(dict(update.entries))
        if len(seen) == 2:
            twice.set()
        raise error("on purpose")

    store = InProcessStore(InProcessServer())
    store.watch("k", callback, deadline=Deadline(LONG_S))
    store.set("key", b"v", deadline=Deadline(LONG_S))
    assert twice.wait(LONG_S)
    store.close()
    assert seen == [{}, {"key": b"v"}]
    assert any("watch on 'k'" in line and error.__name__ in line for line in lines)


def test_an_exit_on_a_thread_of_the_program_is_the_programs() -> None:
    def leave() -> None:
        sys.exit(3)

    with pytest.raises(SystemExit):
        callbacks.run("a callback", leave)


# ---- what cannot be logged ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", STREAMS)
def test_lines_that_cannot_be_written_are_dropped(
    monkeypatch: pytest.MonkeyPatch, stream: Callable[[], io.StringIO | None]
) -> None:
    monkeypatch.setattr(sys, "stderr", stream())
    log.error("a line")
    assert on_a_thread(lambda: log.error("a line")) == []


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, ValueError])
def test_extern_logger_may_raise_anything(error: type[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    def fail(level: int, text: str) -> None:
        raise error("in the program's logger")

    mf.set_extern_logger(fail)
    try:
        before = logs.handler.extern_failures
        log.error("one")
        assert on_a_thread(lambda: log.error("two")) == []
        assert logs.handler.extern_failures == before + 2
    finally:
        logs.handler.extern = None


def test_handlers_and_values_of_the_program_may_raise(lines: list[str]) -> None:
    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            sys.exit(1)

    class Value:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    logger, handler = logging.getLogger(logs.ROOT), Handler()
    logger.addHandler(handler)
    try:
        log.error("a line")
        log.error("a value: %s", Value())
        log.error("too few values: %s %s", 1)
    finally:
        logger.removeHandler(handler)
    assert len(lines) == 1


def test_interrupt_key_reaches_the_main_thread_through_a_log_line() -> None:
    def interrupted(level: int, text: str) -> None:
        raise KeyboardInterrupt

    mf.set_extern_logger(interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            log.error("a line")
        assert on_a_thread(lambda: log.error("a line")) == []
    finally:
        logs.handler.extern = None


# ---- threads that fail ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", EXITS)
def test_thread_that_fails_says_so_and_has_a_consequence(error: type[BaseException], lines: list[str]) -> None:
    def fail() -> None:
        raise error("a defect")

    assert on_a_thread(fail) == [f"thread 'a thread of a test' ended unexpectedly ({error.__name__}: a defect)"]
    assert any("CRITICAL" in line and "a thread of a test" in line and "Traceback" in line for line in lines)


def test_machine_without_threads_is_an_error_with_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_threads(monkeypatch)
    with pytest.raises(NoResources, match=r"'a thread of a test' cannot be started: can't start new thread.*ulimit"):
        on_a_thread(lambda: None)


def refuse_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)


def test_queue_without_a_thread_drops_its_calls_and_says_so(monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> None:
    queue, done = CallQueue("test queue"), []
    with monkeypatch.context() as limited:
        refuse_threads(limited)
        queue.post(lambda: done.append(1))
    assert any("test queue" in line and "cannot be started" in line for line in lines)
    queue.post(lambda: done.append(2))  # there is a thread for both now
    queue.close(Deadline(LONG_S))
    assert done == [1, 2]

    refuse_threads(monkeypatch)
    late = CallQueue("late queue")
    late.post(lambda: done.append(3))
    late.close(Deadline(LONG_S))
    assert any("late queue: 1 calls are dropped" in line for line in lines)


def test_call_that_never_returns_is_left_behind_and_what_follows_dropped(lines: list[str]) -> None:
    queue, inside, go_on, done = CallQueue("test queue"), threading.Event(), threading.Event(), []
    queue.post(lambda: (inside.set(), go_on.wait()))
    queue.post(lambda: done.append(1))
    assert inside.wait(LONG_S)
    queue.close(Deadline(0.1))
    go_on.set()
    assert any("1 calls are dropped" in line for line in lines)
    assert any("left behind" in line for line in lines)
    assert done == []
