"""Every failure of a public call is one line at ERROR, with code and sentence; hot calls do not flood the log."""

from __future__ import annotations

import asyncio
import ctypes
import re
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm, shm
from memfabric_hybrid.api import failure_log
from support.programs import run_python

ERROR = 3


@pytest.fixture
def lines(everything_off: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is said at ERROR, since a moment when nothing was left out."""
    monkeypatch.setattr(failure_log, "_limit", failure_log.RateLimit())
    said: list[str] = []
    mf.set_extern_logger(lambda level, text: said.append(text) if level == ERROR else None)
    yield said
    mf.set_extern_logger(None)


def one_line(lines: list[str], call: str, code: int) -> None:
    """The only line names the call and the code, and ends with the last error."""
    assert len(lines) == 1, lines
    sentence = mf.get_last_err_msg()
    assert sentence
    assert f"{call} failed, {code} " in lines[0]
    assert lines[0].endswith(f": {sentence}")
    lines.clear()


def test_clients_that_only_print_that_it_failed() -> None:
    """The program that was seen: it never asks for the last error."""
    program = """
import memfabric_hybrid as mf
from memfabric_hybrid import bm
if bm.initialize("tcp://127.0.0.1:99999", 4, 0, bm.BmConfig()) != 0:
    print("initialization failed")
engine = mf.TransferEngine()
if engine.initialize(None, "127.0.0.1:0", "prefill", 0) != 0:
    print("initialization failed")
if engine.transfer_sync_write("127.0.0.1:5", 1, 2, 3) != 0:
    print("transfer failed")
"""
    ended = run_python(program)
    assert ended.returncode == 0, ended.stderr
    first, second, third = ended.stderr.splitlines()
    assert re.search(r"ERROR .*bm\.initialize failed, -2000 INVALID_PARAM: .*99999", first)
    assert re.search(r"ERROR .*TransferEngine\.initialize failed, -2000 INVALID_PARAM: role is 'prefill'", second)
    assert re.search(r"ERROR .*TransferEngine\.transfer_sync_write failed, -2008 NOT_INIT: ", third)


def calls_of_an_engine(engine: Any) -> list[tuple[Callable[[], Any], str, int]]:
    return [
        (lambda: engine.transfer_sync_read("127.0.0.1:5", 1, 2, 3), "transfer_sync_read", -2008),
        (lambda: engine.batch_transfer_sync_write("127.0.0.1:5", [1], [2], [3]), "batch_transfer_sync_write", -2008),
        (lambda: engine.transfer_async_read_submit("127.0.0.1:5", 1, 2, 3, 0), "transfer_async_read_submit", -2000),
        (lambda: engine.batch_transfer_async_write_submit("x", [1], [2], [3], 0),
         "batch_transfer_async_write_submit", -2000),
        (lambda: engine.batch_transfer_write_with_quant("x", [1], [2], [3], [4], [], 1),
         "batch_transfer_write_with_quant", -2008),
        (lambda: engine.send_probe("127.0.0.1:5"), "send_probe", -2008),
        (lambda: engine.register_memory(4096, 1), "register_memory", -2000),
        (lambda: engine.batch_register_memory([4096], [1]), "batch_register_memory", -2000),
        (lambda: engine.unregister_memory(4096), "unregister_memory", -2007),
        (lambda: engine.batch_unregister_memory([4096]), "batch_unregister_memory", -2007),
        (lambda: engine.trans_free(4096), "trans_free", -2007),
        (lambda: engine.trans_malloc(0), "trans_malloc", -2000),
        (lambda: engine.register(b""), "register", -2000),
        (lambda: engine.unregister(bytearray(8)), "unregister", -2007),
    ]  # fmt: skip


def test_calls_of_a_transfer_engine(lines: list[str]) -> None:
    with mf.TransferEngine() as engine:
        for call, name, code in calls_of_an_engine(engine):
            assert call() == (0 if name == "trans_malloc" else code), name
            one_line(lines, f"TransferEngine.{name}", code)
    assert not lines


def test_calls_of_a_pool(lines: list[str], store_url: str) -> None:
    assert bm.bm_rank_id() == 4294967295
    one_line(lines, "bm.bm_rank_id", -2008)
    with pytest.raises(RuntimeError):
        bm.create(0, 1)
    one_line(lines, "bm.create", -2008)
    assert bm.initialize(store_url, 2, 0, bm.BmConfig()) == 0
    pool = bm.create(0, 2 << 20)
    copy_types = bm.BmCopyType
    failing: list[tuple[Callable[[], Any], str, int]] = [
        (pool.wait, "wait", -2003),
        (lambda: pool.copy_data(1, 2, 3, copy_types.H2G), "copy_data", -2003),
        (lambda: pool.copy_data_batch([1], [2], [3], 1, copy_types.H2G), "copy_data_batch", -2003),
        (lambda: pool.copy_data_2d(1, 4, 2, 4, 4, 4, copy_types.H2G), "copy_data_2d", -2003),
        (pool.leave, "leave", -2003),
    ]
    for call, name, code in failing:
        assert call() == code
        one_line(lines, f"BigMemory.{name}", code)
    assert pool.get_rank_id_by_gva(1) == 4294967295
    one_line(lines, "BigMemory.get_rank_id_by_gva", -2000)
    assert pool.peer_rank_ptr(7) == 0
    one_line(lines, "BigMemory.peer_rank_ptr", -2000)
    assert pool.join() == 0
    pool.destroy()
    assert not lines, "success says nothing"


def test_calls_that_raise(lines: list[str], store_url: str) -> None:
    """They say it as those that return codes do, and `code` is the same."""
    config = bm.BmConfig(operation_timeout=20)
    assert bm.initialize(store_url, 2, 0, config) == 0
    assert shm.initialize(store_url, 1, 0, 0, shm.ShmConfig()) == 0
    target = bytearray(8)
    with bm.create(0, 2 << 20) as pool, shm.create(0, 1, 0, 2 << 20) as heap, mf.TransferEngine() as engine:
        one_by_one: list[tuple[Callable[[], Any], str, int]] = [
            (pool.wait_for, "BigMemory.wait_for", -2003),
            (lambda: pool.route(1), "BigMemory.route", -2014),
            (lambda: pool.put(b"x", 1), "BigMemory.put", -2014),
            (lambda: pool.get(1, out=target), "BigMemory.get", -2014),
            (lambda: pool.array(1, 1, "u1"), "BigMemory.array", -2014),
            (lambda: heap.put(b"x", 1), "ShareMemory.put", -2000),
            (lambda: heap.get(0, 2 << 20, out=target), "ShareMemory.get", -2000),
            (lambda: heap.array(1, 1, "u1"), "ShareMemory.array", -2000),
            (lambda: engine.write("127.0.0.1:5", b"x", 1), "TransferEngine.write", -2008),
            (lambda: engine.read("127.0.0.1:5", target, 1), "TransferEngine.read", -2008),
            (lambda: engine.submit_write("127.0.0.1:5", b"x", 1), "TransferEngine.submit_write", -2008),
            (lambda: engine.submit_read("127.0.0.1:5", target, 1), "TransferEngine.submit_read", -2008),
            (lambda: engine.route("127.0.0.1:5"), "TransferEngine.route", -2008),
            (engine.notifications, "TransferEngine.notifications", -2008),
            (engine.notified, "TransferEngine.notified", -2008),
        ]
        for call, name, code in one_by_one:
            mf.get_and_clear_last_err_msg()
            with pytest.raises(mf.errors.FabricError) as raised:
                call()
            assert raised.value.code == code
            assert str(raised.value) == mf.get_last_err_msg()
            one_line(lines, name, code)
        assert pool.join() == 0
        pool.put(b"x", 0)
        pool.wait_for([0])
    assert not lines


def test_what_create_raises_has_its_code(lines: list[str], store_url: str) -> None:
    """A RuntimeError, as programs for the original interface expect; and what `except FabricError` catches."""
    assert bm.initialize(store_url, 2, 0, bm.BmConfig()) == 0
    with pytest.raises(RuntimeError, match=r"^create bm handle failed: ") as raised:
        bm.create(0, 0)
    assert isinstance(raised.value, mf.errors.InvalidParam)
    one_line(lines, "bm.create", -2000)
    with pytest.raises(ValueError, match="tag has 31 characters, the limit is 30") as overlong:
        bm.create2(0, 2 << 20, 2 << 20, tag="t" * 31)
    assert isinstance(overlong.value, mf.errors.InvalidParam)
    one_line(lines, "bm.create2", -2000)
    assert shm.initialize(store_url, 1, 0, 0, shm.ShmConfig()) == 0
    with shm.create(0, 1, 0, 2 << 20) as heap:
        with pytest.raises(mf.errors.InvalidParam, match=r"^all_gather failed: "):
            heap.all_gather(b"")
        one_line(lines, "ShareMemory.all_gather", -2000)
        with pytest.raises(mf.errors.InvalidParam, match=r"^subgroup_all_gather failed: "):
            heap.subgroup_all_gather("k", 1, 0, b"")
        one_line(lines, "ShareMemory.subgroup_all_gather", -2000)


def test_a_failure_that_is_looked_at_hides_no_other(lines: list[str]) -> None:
    """A ticket's `error` is no failure of a call: the last one that was stays the last error."""
    with mf.TransferEngine() as engine:
        assert engine.initialize(None, "127.0.0.1:0", "Decode", 0) == 0
        failed = engine.submit_write("127.0.0.1:1", b"x", 4096)
        while not failed.done:
            pass
        assert mf.set_log_level(77) == -2000
        lines.clear()
        assert isinstance(failed.error, mf.errors.NotConnected)
        assert mf.get_last_err_msg() == "log level is 77, expected 0..5"
        assert not lines
        with pytest.raises(mf.errors.NotConnected):
            failed.result()
        one_line(lines, "Ticket.result", -2014)


def test_calls_of_a_heap(lines: list[str], store_url: str) -> None:
    assert shm.initialize(store_url, 1, 0, 0, shm.ShmConfig()) == 0
    heap = shm.create(0, 1, 0, 2 << 20)
    assert heap.barrier() == heap.subgroup_barrier("all", 1, 0) == 0
    assert heap.all_gather(b"x") == b"x"
    assert not lines
    assert heap.subgroup_barrier("", 1, 0) == -2000
    one_line(lines, "ShareMemory.subgroup_barrier", -2000)
    for name, gather in {
        "all_gather": lambda: heap.all_gather(b""),
        "subgroup_all_gather": lambda: heap.subgroup_all_gather("all", 1, 0, b""),
    }.items():
        with pytest.raises(RuntimeError):
            gather()
        one_line(lines, f"ShareMemory.{name}", -2000)
    assert heap.atomic_alloc_value(0) == -2000
    one_line(lines, "ShareMemory.atomic_alloc_value", -2000)
    with pytest.raises(RuntimeError):
        shm.create(0, 1, 0, 2 << 20)
    one_line(lines, "shm.create", -2006)
    heap.destroy()
    assert heap.barrier() == -2000
    one_line(lines, "ShareMemory.barrier", -2000)


def test_asynchronous_transfers_say_it_once_when_they_are_waited_for(lines: list[str]) -> None:
    memory = ctypes.create_string_buffer(8)
    with socket.socket() as nobody, mf.TransferEngine() as engine, mf.Stream() as stream:
        nobody.bind(("127.0.0.1", 0))
        there = f"127.0.0.1:{nobody.getsockname()[1]}"
        assert engine.initialize(None, "127.0.0.1:0", "Decode", 0) == 0
        address = ctypes.addressof(memory)

        def submit() -> None:
            assert engine.transfer_async_write_submit(there, address, address, 8, stream) == 0

        async def awaited(work: Awaitable[int]) -> int:
            return await work

        submit()
        assert stream.wait(60) == -2014
        one_line(lines, "Stream.wait", -2014)
        submit()
        assert asyncio.run(awaited(stream)) == -2014
        one_line(lines, "Stream.wait", -2014)
        assert engine.submit_write(there, address, address, 8).wait() == -2014
        one_line(lines, "Ticket.wait", -2014)


def test_a_wait_that_is_not_over_yet_has_not_failed(lines: list[str], store_url: str) -> None:
    """Programs ask again and again with a time-out."""
    assert bm.initialize(store_url, 1, 0, bm.BmConfig()) == 0
    with bm.create(0, 4 << 20) as pool, mf.Stream() as stream:
        assert pool.join() == 0
        code = 0
        while code == 0:
            for _ in range(100):
                assert pool.copy_data(pool.base, pool.base + (2 << 20), 2 << 20, bm.BmCopyType.G2G, 4, stream) == 0
            code = stream.wait(0.0)
        assert code == -2004
        assert stream.wait(60) == 0
    assert not lines


def test_a_logger_that_calls_us_does_not_change_the_last_error(everything_off: None) -> None:
    def log(level: int, text: str) -> None:
        mf.set_log_level(77)

    mf.set_extern_logger(log)
    try:
        with mf.TransferEngine() as engine:
            assert engine.send_probe("127.0.0.1:5") == -2008
            assert "77" not in mf.get_last_err_msg()
            assert engine.initialize(None, "127.0.0.1:0", "no role", 0) == -2000
            assert "no role" in mf.get_last_err_msg()
    finally:
        mf.set_extern_logger(None)


def test_a_call_that_fails_in_a_loop_does_not_flood_the_log(lines: list[str]) -> None:
    with mf.TransferEngine() as engine:
        for _ in range(20_000):
            assert engine.transfer_sync_read("127.0.0.1:5", 1, 2, 3) == -2008
    assert failure_log.BURST <= len(lines) < 1000


def test_rate_limit() -> None:
    now = 100.0
    limit = failure_log.RateLimit(lambda: now)
    assert [limit.admit("a") for _ in range(failure_log.BURST + 3)] == [0] * failure_log.BURST + [None] * 3
    assert limit.admit("b") == 0, "calls do not share their credit"
    now += failure_log.INTERVAL_S
    assert [limit.admit("a"), limit.admit("a")] == [3, None]
    now += 1000 * failure_log.INTERVAL_S
    assert [limit.admit("a") for _ in range(failure_log.BURST + 1)] == [1] + [0] * (failure_log.BURST - 1) + [None]


def test_what_was_left_out_is_counted(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(failure_log, "_limit", failure_log.RateLimit(lambda: now))
    for _ in range(failure_log.BURST + 7):
        mf.set_log_level(77)
    now = 1.0
    mf.set_log_level(77)
    assert len(lines) == failure_log.BURST + 1
    assert lines[-1].endswith("(7 more since the last line)")
