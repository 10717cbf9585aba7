"""Notifications: who gets them, in which order, by which of the three ways, and how many are kept."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import _native, errors
from memfabric_hybrid.transfer import Notification
from support.forked_child import run_in_child
from support.held_gil import held_gil
from support.pause_points import held
from support.threads import LONG_S, Beside, wait_until
from support.workers import Cluster

Workers = Callable[..., AbstractContextManager[Cluster]]


def must(code: int) -> None:
    assert code == 0, f"{code}: {mf.get_last_err_msg()}"


@pytest.fixture
def other() -> Iterator[mf.TransferEngine]:
    """A second engine of this process."""
    with mf.TransferEngine() as engine:
        must(engine.initialize(None, "127.0.0.1:0", "Decode", 0))
        yield engine


# ---- sending ---------------------------------------------------------------------------------------------------------


def test_what_returned_0_can_be_taken_in_its_order(engine: mf.TransferEngine, other: mf.TransferEngine) -> None:
    assert other.notifications() == []
    for data in (b"first", bytearray(b"second"), memoryview(b"third"), b""):
        must(engine.notify(other.session_id, data))
    taken = other.notifications()
    assert taken == [Notification(engine.session_id, data) for data in (b"first", b"second", b"third", b"")]
    assert other.notifications() == []
    must(other.notify(taken[0].session, b"an answer"))
    assert engine.notifications() == [(other.session_id, b"an answer")]


def test_to_ones_own_session(engine: mf.TransferEngine) -> None:
    must(engine.notify(engine.session_id, b"myself"))
    assert engine.notifications() == [(engine.session_id, b"myself")]


def test_the_longest_one_and_one_that_is_longer(engine: mf.TransferEngine, other: mf.TransferEngine) -> None:
    longest = os.urandom(_native.MAX_NOTIFICATION_BYTES)
    must(engine.notify(other.session_id, longest))
    assert engine.notify(other.session_id, longest + b"!") == -2000
    assert "32769 bytes, at most 32768" in mf.get_last_err_msg()
    assert other.notifications() == [(engine.session_id, longest)]


@pytest.mark.parametrize("data", ["text", 7, None, memoryview(b"strided")[::2]])
def test_only_bytes_can_be_sent(engine: mf.TransferEngine, data: object) -> None:
    with pytest.raises(TypeError, match=r"notify\(\): data must be bytes-like and contiguous"):
        engine.notify(engine.session_id, data)  # type: ignore[arg-type]


def test_nobody_is_there(engine: mf.TransferEngine) -> None:
    assert engine.notify("127.0.0.1:1", b"x") == -2014
    assert "127.0.0.1:1" in mf.get_last_err_msg()
    assert mf.TransferEngine().notify(engine.session_id, b"x") == -2008


def test_a_full_queue_refuses_and_loses_nothing(engine: mf.TransferEngine, other: mf.TransferEngine) -> None:
    count = _native.MAX_QUEUED_NOTIFICATIONS
    for number in range(count):
        must(engine.notify(other.session_id, b"%d" % number))
    assert engine.notify(other.session_id, b"too many") == -2002
    assert f"{count} notifications that nobody there has taken" in mf.get_and_clear_last_err_msg()
    assert [int(taken.data) for taken in other.notifications()] == list(range(count))
    must(engine.notify(other.session_id, b"again"))
    assert other.notifications() == [(engine.session_id, b"again")]


def test_a_queue_is_full_by_its_bytes_too(engine: mf.TransferEngine, other: mf.TransferEngine) -> None:
    longest = bytes(_native.MAX_NOTIFICATION_BYTES)
    count = _native.MAX_QUEUED_NOTIFICATION_BYTES // len(longest)
    for _ in range(count):
        must(engine.notify(other.session_id, longest))
    assert engine.notify(other.session_id, b"!") == -2002
    assert str(_native.MAX_QUEUED_NOTIFICATION_BYTES) in mf.get_and_clear_last_err_msg()
    must(engine.notify(other.session_id, b""))  # needs no room
    assert len(other.notifications()) == count + 1


def test_it_arrives_while_the_receivers_python_is_busy(engine: mf.TransferEngine, workers: Workers) -> None:
    with workers(1) as cluster:
        session = cluster.call(0, "start")
        with held_gil(cluster, 0):
            for number in range(100):
                must(engine.notify(session, b"%d" % number))
        assert [int(data) for _, data in cluster.call(0, "wait_for_notifications", 100)] == list(range(100))


def test_ten_thousand_from_four_processes(engine: mf.TransferEngine, workers: Workers) -> None:
    """All of them, once, each sender's in its order."""
    each = 2500
    with workers(4) as cluster:
        sessions = cluster.call_all("start")
        sending = [cluster.begin(index, "notify_many", engine.session_id, each) for index in range(4)]
        heard: dict[str, list[int]] = {session: [] for session in sessions}
        deadline = time.monotonic() + 60
        while sum(map(len, heard.values())) < 4 * each and time.monotonic() < deadline:
            for notification in engine.notifications():
                heard[notification.session].append(int(notification.data))
            time.sleep(0.001)
        for pending in sending:
            pending.result()
    assert engine.notifications() == []
    assert all(numbers == list(range(each)) for numbers in heard.values())


def test_threads_of_one_engine(engine: mf.TransferEngine, other: mf.TransferEngine) -> None:
    def send(name: bytes) -> None:
        for number in range(200):
            must(engine.notify(other.session_id, b"%s %d" % (name, number)))

    threads = [threading.Thread(target=send, args=(name,)) for name in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = [notification.data.split() for notification in other.notifications()]
    for name in (b"a", b"b", b"c"):
        assert [int(number) for who, number in taken if who == name] == list(range(200))


# ---- the callback ----------------------------------------------------------------------------------------------------


def test_the_callback_takes_all_those_before_it_too(engine: mf.TransferEngine, other: mf.TransferEngine) -> None:
    heard: list[Notification] = []
    threads: set[str] = set()

    def callback(notification: Notification) -> None:
        threads.add(threading.current_thread().name)
        heard.append(notification)
        raise SystemExit  # goes no further than the log

    must(engine.notify(other.session_id, b"0"))
    other.set_notification_callback(callback)
    for number in range(1, 50):
        must(engine.notify(other.session_id, b"%d" % number))
    wait_until(lambda: len(heard) == 50)
    assert [int(notification.data) for notification in heard] == list(range(50))
    assert len(threads) == 1
    with pytest.raises(errors.ResourceInUse, match="set_notification_callback"):
        other.notifications()
    other.set_notification_callback(None)
    must(engine.notify(other.session_id, b"polled"))
    assert other.notifications() == [(engine.session_id, b"polled")]
    assert len(heard) == 50


def test_a_callback_set_before_initialize_counts_in_every_life(engine: mf.TransferEngine) -> None:
    heard: list[bytes] = []
    with mf.TransferEngine() as other:
        other.set_notification_callback(lambda notification: heard.append(notification.data))
        for life in (b"one", b"two"):
            must(other.initialize(None, "127.0.0.1:0", "Decode", 0))
            must(engine.notify(other.session_id, life))
            other.destroy()  # tells the rest
    assert heard == [b"one", b"two"]


def test_a_callback_destroys_its_engine(engine: mf.TransferEngine, other: mf.TransferEngine) -> None:
    """And hears the rest; the engine can be initialised anew, with the same callback."""
    heard: list[bytes] = []
    inside, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def callback(notification: Notification) -> None:
        heard.append(notification.data)
        if notification.data == b"end":
            inside.set()
            assert go_on.wait(LONG_S)
            other.destroy()
            ended.set()

    other.set_notification_callback(callback)
    must(engine.notify(other.session_id, b"end"))
    assert inside.wait(LONG_S)
    must(engine.notify(other.session_id, b"rest"))
    go_on.set()
    assert ended.wait(LONG_S)
    wait_until(lambda: heard == [b"end", b"rest"])
    assert other.session_id == ""
    must(other.initialize(None, "127.0.0.1:0", "Decode", 0))
    must(engine.notify(other.session_id, b"next life"))
    wait_until(lambda: heard[-1] == b"next life")


def test_a_callback_answers(engine: mf.TransferEngine, other: mf.TransferEngine) -> None:
    other.set_notification_callback(lambda heard: must(other.notify(heard.session, b"re: " + heard.data)))
    must(engine.notify(other.session_id, b"question"))
    answers: list[Notification] = []
    wait_until(lambda: bool(answers.extend(engine.notifications()) or answers))  # type: ignore[func-returns-value]
    assert answers == [(other.session_id, b"re: question")]


# ---- the event loop --------------------------------------------------------------------------------------------------


def test_async_for_takes_each_until_the_end(engine: mf.TransferEngine, other: mf.TransferEngine) -> None:
    heard: list[bytes] = []

    async def hear() -> None:
        async for notification in other.notified():
            heard.append(notification.data)

    async def run() -> None:
        hearing = asyncio.create_task(hear())
        for number in range(20):
            must(await asyncio.to_thread(engine.notify, other.session_id, b"%d" % number))
        while len(heard) < 20:
            await asyncio.sleep(0.001)
        assert not hearing.done()  # it waits
        await asyncio.to_thread(other.destroy)
        await asyncio.wait_for(hearing, LONG_S)

    asyncio.run(run())
    assert [int(data) for data in heard] == list(range(20))


def test_what_came_before_the_end_is_heard_after_it(engine: mf.TransferEngine, other: mf.TransferEngine) -> None:
    stream = other.notified()
    must(engine.notify(other.session_id, b"last words"))
    other.destroy()

    async def hear() -> list[bytes]:
        return [notification.data async for notification in stream]

    assert asyncio.run(hear()) == [b"last words"]
    with pytest.raises(errors.NotInit):
        other.notified()
    with pytest.raises(errors.NotInit):
        other.notifications()


def test_a_cancelled_async_for_loses_nothing(engine: mf.TransferEngine, other: mf.TransferEngine) -> None:
    async def run() -> None:
        stream = other.notified()
        for number in range(10):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(stream.__anext__(), 0.005)
            must(engine.notify(other.session_id, b"%d" % number))
            assert await asyncio.wait_for(stream.__anext__(), LONG_S) == (engine.session_id, b"%d" % number)
        waiting = asyncio.create_task(stream.__anext__())
        await asyncio.sleep(0)
        waiting.cancel()
        must(engine.notify(other.session_id, b"while it is cancelled"))
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await stream.__anext__() == (engine.session_id, b"while it is cancelled")

    asyncio.run(run())


def test_two_loops_share_them(engine: mf.TransferEngine, other: mf.TransferEngine) -> None:
    heard: list[tuple[int, int]] = []

    async def hear(who: int) -> None:
        async for notification in other.notified():
            heard.append((who, int(notification.data)))

    async def run() -> None:
        hearing = [asyncio.create_task(hear(who)) for who in range(2)]
        for number in range(100):
            must(await asyncio.to_thread(engine.notify, other.session_id, b"%d" % number))
        await asyncio.to_thread(other.destroy)
        await asyncio.gather(*hearing)

    asyncio.run(run())
    assert sorted(number for _, number in heard) == list(range(100))


def test_a_callback_takes_over_from_async_for(engine: mf.TransferEngine, other: mf.TransferEngine) -> None:
    heard: list[bytes] = []

    async def run() -> None:
        waiting = asyncio.create_task(other.notified().__anext__())
        await asyncio.sleep(0.01)
        other.set_notification_callback(lambda notification: heard.append(notification.data))
        with pytest.raises(errors.ResourceInUse):
            await asyncio.wait_for(waiting, LONG_S)

    asyncio.run(run())
    must(engine.notify(other.session_id, b"the callback's"))
    wait_until(lambda: heard == [b"the callback's"])


# ---- forks and ends --------------------------------------------------------------------------------------------------


def test_a_forked_child_has_no_part_in_it(engine: mf.TransferEngine, other: mf.TransferEngine) -> None:
    must(engine.notify(other.session_id, b"the parent's"))
    stream = other.notified()

    def in_child() -> None:
        assert engine.notify(other.session_id, b"from the child") == -2008
        with pytest.raises(errors.NotInit):
            other.notifications()
        with pytest.raises(errors.NotInit):
            other.notified()

        async def hear() -> list[Notification]:
            return [notification async for notification in stream]

        assert asyncio.new_event_loop().run_until_complete(hear()) == []

    run_in_child(in_child, lambda text: os.write(2, text.encode()))
    assert other.notifications() == [(engine.session_id, b"the parent's")]


def test_the_senders_engine_is_destroyed_meanwhile(workers: Workers) -> None:
    """The peer stands still, so no answer comes: the call ends with the engine, not with the time-out."""
    with workers(1) as cluster, mf.TransferEngine() as engine, pytest.MonkeyPatch.context() as environment:
        environment.setenv("MF_TRANSFER_TIMEOUT_MS", "100000")
        must(engine.initialize(None, "127.0.0.1:0", "Prefill", 0))
        session = cluster.call(0, "start")
        must(engine.send_probe(session))
        cluster.kill(0, signal.SIGSTOP)
        with held("transfer.notify.sent") as point:
            notifying = Beside(lambda: engine.notify(session, b"x"))
            point.wait_until_reached()
        engine.destroy()
        assert notifying.result() == -2014
