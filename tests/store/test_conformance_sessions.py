"""What every Store must do, whatever carries its messages: each test runs in process, over tcp and on etcd.

What a participant hears of its session, what the store is called, moving, giving up, the end, and forks.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import InvalidParam, NotConnected, NotStarted
from memfabric_hybrid.store import (
    FAREWELL_S,
    SessionConnected,
    SessionEvent,
    SessionFailed,
    Store,
    WatchUpdate,
    parse_url,
)
from store.worlds import PATIENCE_S, Seen, World, soon, wait_until
from support.forked_child import run_in_child


@contextmanager
def busy_event_thread(store: Store, key: str) -> Iterator[threading.Event]:
    """The thread hangs in a callback until the event that this gives is set, or the block ends."""
    inside, release = threading.Event(), threading.Event()

    def hang(update: WatchUpdate) -> None:
        if not update.snapshot:
            inside.set()
            release.wait(PATIENCE_S)

    store.watch(key, hang, deadline=soon())
    store.set(key, b"", deadline=soon())
    assert inside.wait(PATIENCE_S)
    try:
        yield release
    finally:
        release.set()


# --- session events -------------------------------------------------------------------------------------------------


def test_the_session_begins_with_what_is_bound_to_it(world: World) -> None:
    events: queue.SimpleQueue[SessionEvent] = queue.SimpleQueue()
    store, seen = world.participant(on_session=events.put), Seen()
    store.watch("k", seen, deadline=soon())
    assert events.get(timeout=PATIENCE_S) == SessionConnected(seen.next().incarnation)
    store.close()
    assert events.empty()


def test_a_participant_that_does_nothing_has_no_session(world: World) -> None:
    events: list[SessionEvent] = []
    world.participant(on_session=events.append).close()
    assert events == []


def test_a_failing_session_callback_harms_nobody(world: World, other: Store) -> None:
    def fail(event: SessionEvent) -> None:
        raise RuntimeError("a mistake in a callback")

    seen = Seen()
    world.participant(on_session=fail).watch("k", seen, deadline=soon())
    other.set("k", b"1", deadline=soon())
    seen.until(lambda view: view == {"k": b"1"})


def test_a_participant_without_its_event_thread_says_so(
    world: World, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exit_now(push: object, incarnation: str) -> None:
        raise SystemExit("a defect")

    events: queue.SimpleQueue[SessionEvent] = queue.SimpleQueue()
    store, seen = world.participant(on_session=events.put), Seen()
    store.set("temporary", b"", ephemeral=True, deadline=soon())
    store.watch("k", seen, deadline=soon())
    other.watch("temporary", seen, deadline=soon())
    monkeypatch.setattr(world.watch_callbacks(store), "deliver", exit_now)
    other.set("k", b"", deadline=soon())
    assert isinstance(events.get(timeout=PATIENCE_S), SessionConnected)
    failed = events.get(timeout=PATIENCE_S)
    assert isinstance(failed, SessionFailed)
    assert "ended unexpectedly (SystemExit: a defect)" in failed.reason
    seen.until(lambda view: "temporary" not in view)
    calls: list[Callable[[], object]] = [
        lambda: store.claim_rank("g", 4, b"", deadline=soon()),
        lambda: store.watch("k", print, deadline=soon()),
    ]
    for call in calls:
        with pytest.raises(NotConnected, match="a defect"):
            call()
    store.close()
    with pytest.raises(NotStarted, match="closed"):
        store.claim_rank("g", 4, b"", deadline=soon())


# --- where the store is ---------------------------------------------------------------------------------------------


def test_all_participants_call_the_store_by_one_name(store: Store, other: Store) -> None:
    name = store.peer_name(deadline=soon())
    assert name
    other.set("k", b"", ephemeral=True, deadline=soon())
    assert other.peer_name(deadline=soon()) == name == store.peer_name(deadline=soon())


def test_a_store_that_cannot_be_there_stays_where_it_is(world: World, store: Store, other: Store) -> None:
    store.set("k", b"v", ephemeral=True, deadline=soon())
    with pytest.raises(InvalidParam, match=f"store URL {world.foreign_url}"):
        store.update_url(parse_url(world.foreign_url))
    store.set("k", b"w", ephemeral=True, deadline=soon())
    assert other.get("k", deadline=soon()) == b"w"


# --- giving up ------------------------------------------------------------------------------------------------------


def test_giving_up_ends_the_calls_of_all_threads(world: World, store: Store, pool: ThreadPoolExecutor) -> None:
    gathering = pool.submit(store.gather, "g", 0, 0, 2, b"", deadline=soon())
    waiting = pool.submit(store.wait, "k", deadline=soon())
    world.wait_for_arrivals(1)
    store.give_up()
    for call in (gathering, waiting):
        with pytest.raises(NotStarted, match="closed"):
            call.result(PATIENCE_S)
    store.give_up()
    for late in (lambda: store.get("k", deadline=soon()), lambda: store.peer_name(deadline=soon())):
        with pytest.raises(NotStarted, match="closed"):
            late()


def test_giving_up_ends_a_watch_that_waits_for_its_snapshot(
    world: World, store: Store, pool: ThreadPoolExecutor
) -> None:
    with busy_event_thread(store, "k"):
        watching = pool.submit(store.watch, "other", print, deadline=soon())
        wait_until(lambda: "other" in world.watch_callbacks(store).prefixes().values())
        store.give_up()
        with pytest.raises(NotStarted, match="closed"):
            watching.result(PATIENCE_S)


def test_a_session_that_was_given_up_ends_with_close(store: Store, other: Store) -> None:
    seen = Seen()
    store.set("k", b"v", ephemeral=True, deadline=soon())
    watch = store.watch("k", print, deadline=soon())
    other.watch("k", seen, deadline=soon())
    store.give_up()
    assert other.get("k", deadline=soon()) == b"v"
    watch.close()
    store.close()
    seen.until(lambda view: view == {})


# --- the end --------------------------------------------------------------------------------------------------------


def test_after_close_every_call_says_so(store: Store) -> None:
    store.set("k", b"", ephemeral=True, deadline=soon())
    store.close()
    store.close()
    calls: list[Callable[[Store], object]] = [
        lambda store: store.get("k", deadline=soon()),
        lambda store: store.set("k", b"", ephemeral=True, deadline=soon()),
        lambda store: store.watch("k", print, deadline=soon()),
        lambda store: store.peer_name(deadline=soon()),
    ]
    for call in calls:
        with pytest.raises(NotStarted, match="closed"):
            call(store)


def test_close_ends_the_calls_of_other_threads(world: World, store: Store, pool: ThreadPoolExecutor) -> None:
    waiting = pool.submit(store.gather, "g", 0, 0, 2, b"", deadline=soon())
    world.wait_for_arrivals(1)
    store.close()
    with pytest.raises(NotStarted, match="closed"):
        waiting.result(PATIENCE_S)


def test_a_store_closes_with_its_block(world: World, other: Store) -> None:
    with world.participant() as store:
        store.set("k", b"", ephemeral=True, deadline=soon())
    assert other.get("k", deadline=soon()) is None


@pytest.mark.parametrize("in_a_hurry", [False, True])
def test_close_does_not_wait_for_a_callback_for_long(store: Store, other: Store, in_a_hurry: bool) -> None:
    store.set("temporary", b"", ephemeral=True, deadline=soon())
    with busy_event_thread(store, "k"):
        if in_a_hurry:
            store.hurry(Deadline(0))
        store.close()
        wait_until(lambda: other.get("temporary", deadline=soon()) is None)


def test_who_leaves_says_how_long_close_may_take(store: Store, pool: ThreadPoolExecutor) -> None:
    with busy_event_thread(store, "k") as release:
        store.hurry(soon())
        closing = pool.submit(store.close)
        time.sleep(FAREWELL_S + 0.3)
        assert not closing.done()
        release.set()
        closing.result(PATIENCE_S)


# --- forks ----------------------------------------------------------------------------------------------------------


def test_a_forked_child_has_no_part_in_it(world: World, store: Store, other: Store) -> None:
    seen = Seen()
    store.set("k", b"v", ephemeral=True, deadline=soon())
    store.watch("k", seen, deadline=soon())

    def abandon() -> None:
        store.abandon_after_fork()
        with pytest.raises(NotStarted, match="closed"):
            store.get("k", deadline=Deadline(1))
        store.close()

    with busy_event_thread(store, "busy"):  # its thread does not exist in the child
        run_in_child(abandon, lambda trace: os.write(2, trace.encode()))
    assert other.get("k", deadline=soon()) == b"v"
    store.set("k", b"w", ephemeral=True, deadline=soon())
    seen.until(lambda view: view == {"k": b"w"})
