"""What every Store must do, whatever carries its messages: each test runs in process, over tcp and on etcd.

Keys and watches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import (
    Duplicated,
    InvalidParam,
    NoResources,
    TimedOut,
)
from memfabric_hybrid.store import OtherIncarnation, Snapshot, Store, WatchUpdate
from memfabric_hybrid.store.limits import MIB
from store.worlds import PATIENCE_S, Seen, World, soon

# --- keys -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [b"", b"v", bytes(range(256))], ids=len)
def test_set_and_get(store: Store, other: Store, value: bytes) -> None:
    store.set("k", value, deadline=soon())
    assert other.get("k", deadline=soon()) == value


def test_the_largest_value(world: World, store: Store, other: Store) -> None:
    value = bytes(world.max_value_bytes)
    store.set("k", value, deadline=soon())
    assert other.get("k", deadline=soon()) == value
    sentence = f"value of key 'k' has {len(value) + 1} bytes, allowed are 0 to {len(value)}"
    with pytest.raises(InvalidParam, match=sentence):
        store.set("k", value + b"x", deadline=soon())


@pytest.mark.parametrize("key", ["k", "k" * 1024, "ü" * 512, "a/b c\0\n"])
def test_keys_of_all_kinds(store: Store, key: str) -> None:
    assert store.get(key, deadline=soon()) is None
    store.set(key, b"v", deadline=soon())
    assert store.get(key, deadline=soon()) == b"v"


def test_revision_grows_with_every_write(store: Store, other: Store) -> None:
    revisions = [writer.set("k", b"v", deadline=soon()) for writer in (store, other, store)]
    assert revisions == sorted(set(revisions))
    assert store.prefix("", deadline=soon()).revision == revisions[-1]


def test_delete(store: Store) -> None:
    store.set("k", b"v", deadline=soon())
    assert store.delete("k", deadline=soon()) is True
    assert store.delete("k", deadline=soon()) is False
    assert store.get("k", deadline=soon()) is None


def test_wait_for_what_is_there(store: Store) -> None:
    store.set("k", b"v", deadline=soon())
    assert store.wait("k", deadline=soon()) == b"v"


def test_wait_for_what_comes(store: Store, other: Store, pool: ThreadPoolExecutor) -> None:
    waiting = [pool.submit(store.wait, "k", deadline=soon()) for _ in range(3)]
    other.set("other", b"x", deadline=soon())
    other.set("k", b"v", deadline=soon())
    assert [each.result(PATIENCE_S) for each in waiting] == [b"v"] * 3


def test_a_wait_does_not_delay_others(store: Store, pool: ThreadPoolExecutor) -> None:
    waiting = pool.submit(store.wait, "k", deadline=soon())
    for _ in range(10):
        store.set("other", b"x", deadline=soon())
    assert not waiting.done()
    store.set("k", b"v", deadline=soon())
    assert waiting.result(PATIENCE_S) == b"v"


@pytest.mark.parametrize("timeout_s", [0.0, 0.2])
def test_wait_in_vain_names_the_key(store: Store, timeout_s: float) -> None:
    store.set("other", b"", deadline=soon())
    with pytest.raises(TimedOut, match="key 'missing' was not set within"):
        store.wait("missing", deadline=Deadline(timeout_s))


def test_add(store: Store, other: Store) -> None:
    assert store.add("n", 5, deadline=soon()) == 5
    assert other.add("n", -7, deadline=soon()) == -2
    assert store.get("n", deadline=soon()) == b"-2"
    store.set("n", b"40", deadline=soon())
    assert store.add("n", 2, deadline=soon()) == 42


def test_add_to_the_edges_of_64_bits(store: Store) -> None:
    top, bottom = (1 << 63) - 1, -(1 << 63)
    assert store.add("top", top, deadline=soon()) == top
    assert store.add("bottom", bottom, deadline=soon()) == bottom
    with pytest.raises(InvalidParam, match=rf"new value {top + 1} of counter 'top' does not fit"):
        store.add("top", 1, deadline=soon())
    with pytest.raises(InvalidParam, match=rf"delta {bottom - 1} of counter 'bottom' does not fit"):
        store.add("bottom", bottom - 1, deadline=soon())
    assert store.get("top", deadline=soon()) == str(top).encode()


@pytest.mark.parametrize("content", [b"", b"x", b"1 ", b"+1", b"1_0", "\uff11".encode(), b"9" * 30])
def test_add_to_what_is_no_counter(store: Store, content: bytes) -> None:
    store.set("k", content, deadline=soon())
    with pytest.raises(InvalidParam, match=r"key 'k' holds .* which is no counter|does not fit"):
        store.add("k", 1, deadline=soon())
    assert store.get("k", deadline=soon()) == content


def test_adds_of_many_threads_are_all_counted(store: Store, other: Store, pool: ThreadPoolExecutor) -> None:
    adds = [pool.submit(who.add, "n", 1, deadline=soon()) for _ in range(50) for who in (store, other)]
    assert sorted(add.result(PATIENCE_S) for add in adds) == list(range(1, 101))


def test_compare_and_set(store: Store) -> None:
    assert store.compare_and_set("k", b"x", b"1", deadline=soon()) == (False, None)
    assert store.compare_and_set("k", None, b"1", deadline=soon()) == (True, b"1")
    assert store.compare_and_set("k", None, b"2", deadline=soon()) == (False, b"1")
    assert store.compare_and_set("k", b"1", b"2", deadline=soon()) == (True, b"2")
    assert store.get("k", deadline=soon()) == b"2"


def test_compare_and_set_in_one_life_of_the_store(store: Store) -> None:
    lives: list[str] = []
    watch = store.watch("k", lambda update: lives.append(update.incarnation), deadline=soon())
    with pytest.raises(OtherIncarnation, match="another"):
        store.compare_and_set("k", None, b"1", deadline=soon(), incarnation="another")
    assert store.get("k", deadline=soon()) is None
    assert store.compare_and_set("k", None, b"1", deadline=soon(), ephemeral=True, incarnation=lives[0]) == (True, b"1")
    watch.close()


def test_compare_and_set_has_one_winner(world: World, pool: ThreadPoolExecutor) -> None:
    names = [b"%d" % number for number in range(8)]
    tries = [pool.submit(world.participant().compare_and_set, "k", None, name, deadline=soon()) for name in names]
    results = [each.result(PATIENCE_S) for each in tries]
    winner = [name for name, (won, _) in zip(names, results, strict=True) if won]
    assert len(winner) == 1
    assert {value for _, value in results} == set(winner)


def test_append(store: Store) -> None:
    assert store.append("k", b"abc", deadline=soon()) == 3
    assert store.append("k", b"", deadline=soon()) == 3
    assert store.append("k", b"de", deadline=soon()) == 5
    assert store.get("k", deadline=soon()) == b"abcde"


def test_append_beyond_the_limit_changes_nothing(world: World, store: Store) -> None:
    limit = world.max_value_bytes
    store.set("k", bytes(limit), deadline=soon())
    with pytest.raises(InvalidParam, match=f"value of key 'k' has {limit + 1} bytes, allowed are 0 to"):
        store.append("k", b"x", deadline=soon())
    assert len(store.get("k", deadline=soon()) or b"") == limit


def test_prefix(store: Store) -> None:
    for key in ("a", "a/1", "a/2", "a/ü", "ab", "b"):
        revision = store.set(key, key.encode(), deadline=soon())
    found = store.prefix("a/", deadline=soon())
    assert found == Snapshot(revision, {"a/1": b"a/1", "a/2": b"a/2", "a/ü": "a/ü".encode()})
    assert list(store.prefix("", deadline=soon()).entries) == ["a", "a/1", "a/2", "a/ü", "ab", "b"]
    assert store.prefix("c", deadline=soon()).entries == {}


Call = Callable[[Store], Any]
BAD_KEYS = {"": "has 0 bytes of UTF-8, allowed are 1 to 1024", "ü" * 513: "has 1026 bytes", "\ud800": "lone surrogate"}
CALLS_WITH_KEY: dict[str, Callable[[Store, str], Any]] = {
    "set": lambda store, key: store.set(key, b"", deadline=soon()),
    "get": lambda store, key: store.get(key, deadline=soon()),
    "wait": lambda store, key: store.wait(key, deadline=soon()),
    "delete": lambda store, key: store.delete(key, deadline=soon()),
    "add": lambda store, key: store.add(key, 1, deadline=soon()),
    "compare_and_set": lambda store, key: store.compare_and_set(key, None, b"", deadline=soon()),
    "append": lambda store, key: store.append(key, b"", deadline=soon()),
    "hold_range": lambda store, key: store.hold_range(key, 1, deadline=soon()),
    "gather": lambda store, key: store.gather(key, 0, 0, 1, b"", deadline=soon()),
}


@pytest.mark.parametrize("call", CALLS_WITH_KEY)
@pytest.mark.parametrize(("key", "sentence"), BAD_KEYS.items(), ids=range(len(BAD_KEYS)))
def test_bad_keys_are_refused(store: Store, call: str, key: str, sentence: str) -> None:
    with pytest.raises(InvalidParam, match=sentence):
        CALLS_WITH_KEY[call](store, key)


REFUSED_CALLS: dict[str, tuple[Call, str]] = {
    "prefix too long": (lambda store: store.prefix("p" * 1025, deadline=soon()), "has 1025 bytes"),
    "watched prefix too long": (lambda store: store.watch("p" * 1025, print, deadline=soon()), "has 1025 bytes"),
    "capacity 0": (
        lambda store: store.claim_rank("g", 0, b"", deadline=soon()),
        "capacity 0 of group 'g' is outside 1 to 16384",
    ),
    "capacity 16385": (
        lambda store: store.claim_rank("g", 16385, b"", deadline=soon()),
        "capacity 16385 of group 'g' is outside 1 to 16384",
    ),
    "wanted rank -1": (
        lambda store: store.claim_rank("g", 4, b"", wanted=-1, deadline=soon()),
        "wanted rank -1 of group 'g' is outside 0 to 3",
    ),
    "wanted rank 4": (
        lambda store: store.claim_rank("g", 4, b"", wanted=4, deadline=soon()),
        "wanted rank 4 of group 'g' is outside 0 to 3",
    ),
    "group too long": (lambda store: store.claim_rank("g" * 1023, 11, b"", deadline=soon()), "rank key .* 1026 bytes"),
    "range of 0 bytes": (lambda store: store.hold_range("r", 0, deadline=soon()), "range 'r': size 0 bytes is below 1"),
    "gather of 0": (lambda store: store.gather("g", 0, 0, 0, b"", deadline=soon()), "size 0 is outside 1 to 16384"),
    "gather of 16385": (lambda store: store.gather("g", 0, 0, 16385, b"", deadline=soon()), "size 16385 is outside"),
    "gather rank -1": (lambda store: store.gather("g", 0, -1, 2, b"", deadline=soon()), "rank -1 is outside 0 to 1"),
    "gather rank 2": (lambda store: store.gather("g", 0, 2, 2, b"", deadline=soon()), "rank 2 is outside 0 to 1"),
    "gather of 65537 bytes": (
        lambda store: store.gather("g", 0, 0, 2, bytes(65537), deadline=soon()),
        "rank 0 brings 65537 bytes, allowed are 0 to 65536",
    ),
}


@pytest.mark.parametrize("call", REFUSED_CALLS)
def test_bad_values_are_refused(store: Store, call: str) -> None:
    action, sentence = REFUSED_CALLS[call]
    with pytest.raises(InvalidParam, match=sentence):
        action(store)


# --- ephemeral keys -------------------------------------------------------------------------------------------------


def test_ephemeral_keys_go_with_their_owner(world: World, store: Store, other: Store) -> None:
    seen = Seen()
    store.watch("", seen, deadline=soon())
    other.set("temporary", b"1", ephemeral=True, deadline=soon())
    other.compare_and_set("lock", None, b"2", ephemeral=True, deadline=soon())
    other.set("lasting", b"3", deadline=soon())
    seen.until(lambda view: len(view) == 3)
    world.kill(other)
    seen.until(lambda view: view == {"lasting": b"3"})
    assert store.prefix("", deadline=soon()).entries == {"lasting": b"3"}


def test_goodbye_ends_a_session_before_close_returns(store: Store, other: Store) -> None:
    other.set("k", b"v", ephemeral=True, deadline=soon())
    other.close()
    assert store.get("k", deadline=soon()) is None


def test_ephemeral_keys_are_changed_by_their_owner_only(store: Store, other: Store) -> None:
    store.set("k", b"1", ephemeral=True, deadline=soon())
    forbidden: list[Call] = [
        lambda who: who.set("k", b"x", deadline=soon()),
        lambda who: who.set("k", b"x", ephemeral=True, deadline=soon()),
        lambda who: who.delete("k", deadline=soon()),
        lambda who: who.compare_and_set("k", b"1", b"x", deadline=soon()),
    ]
    for call in forbidden:
        with pytest.raises(Duplicated, match="key 'k' belongs to another member"):
            call(other)
    assert other.compare_and_set("k", None, b"x", deadline=soon()) == (False, b"1")
    assert store.compare_and_set("k", b"1", b"2", ephemeral=True, deadline=soon()) == (True, b"2")
    assert store.delete("k", deadline=soon()) is True
    other.set("k", b"x", deadline=soon())


@pytest.mark.parametrize("call", ["add", "append"])
def test_ephemeral_keys_are_no_counters(store: Store, call: str) -> None:
    store.set("k", b"1", ephemeral=True, deadline=soon())
    with pytest.raises(InvalidParam, match="key 'k' is ephemeral"):
        CALLS_WITH_KEY[call](store, "k")


def test_owner_can_make_a_key_lasting(world: World, store: Store, other: Store) -> None:
    other.set("k", b"1", ephemeral=True, deadline=soon())
    other.set("k", b"2", deadline=soon())
    world.kill(other)
    store.barrier("g", 0, 0, 1, deadline=soon())
    assert store.get("k", deadline=soon()) == b"2"


def test_ephemeral_bytes_are_limited(world: World, store: Store) -> None:
    value = bytes(min(10 * MIB, world.max_value_bytes))
    limit = world.max_ephemeral_bytes
    fitting = limit // (len(value) + 512)
    for number in range(fitting):
        store.set(f"k{number}", value, ephemeral=True, deadline=soon())
    with pytest.raises(NoResources, match=f"'one more': the ephemeral keys .* allowed are {limit}"):
        store.set("one more", value, ephemeral=True, deadline=soon())
    store.set("k0", b"", ephemeral=True, deadline=soon())
    store.set("one more", value, ephemeral=True, deadline=soon())


# --- watches --------------------------------------------------------------------------------------------------------


def test_watch_starts_with_a_snapshot_before_it_returns(store: Store, other: Store) -> None:
    other.set("a/1", b"1", deadline=soon())
    revision = other.set("b", b"2", deadline=soon())
    seen = Seen()
    store.watch("a/", seen, deadline=soon())
    assert not seen.empty
    first = seen.next()
    assert (first.snapshot, dict(first.entries)) == (True, {"a/1": b"1"})
    assert first.revision >= revision  # etcd counts what it writes for itself as well
    assert first.incarnation


def test_watch_sees_changes_in_order(store: Store, other: Store) -> None:
    seen = Seen()
    store.watch("a/", seen, deadline=soon())
    last = seen.next()
    for number in range(20):
        other.set(f"a/{number % 3}", b"%d" % number, deadline=soon())
        other.set("b", b"", deadline=soon())
    other.delete("a/0", deadline=soon())
    while seen.view != {"a/1": b"19", "a/2": b"17"}:
        update = seen.next()
        assert not update.snapshot
        assert update.revision > last.revision
        assert update.incarnation == last.incarnation
        assert set(update.entries) <= {"a/0", "a/1", "a/2"}
        last = update


def test_watches_of_one_participant_are_independent(store: Store, other: Store) -> None:
    all_keys, some, same = Seen(), Seen(), Seen()
    store.watch("", all_keys, deadline=soon())
    ending = store.watch("a/", some, deadline=soon())
    other.set("a/1", b"1", deadline=soon())
    some.until(lambda view: view == {"a/1": b"1"})
    store.watch("a/", same, deadline=soon())
    ending.close()
    ending.close()
    other.set("a/2", b"2", deadline=soon())
    for seen in (all_keys, same):
        seen.until(lambda view: view == {"a/1": b"1", "a/2": b"2"})
    assert some.empty


def test_watch_may_end_in_its_own_callback(store: Store, other: Store) -> None:
    calls: list[WatchUpdate] = []
    ended = threading.Event()

    def end_at_first_change(update: WatchUpdate) -> None:
        calls.append(update)
        if not update.snapshot:
            watch.close()
            ended.set()

    watch = store.watch("k", end_at_first_change, deadline=soon())
    other.set("k", b"1", deadline=soon())
    assert ended.wait(PATIENCE_S)
    seen = Seen()
    store.watch("k", seen, deadline=soon())
    other.set("k", b"2", deadline=soon())
    seen.until(lambda view: view == {"k": b"2"})
    assert len(calls) == 2


def test_a_failing_callback_harms_nobody(store: Store, other: Store) -> None:
    def fail(update: WatchUpdate) -> None:
        raise RuntimeError("a mistake in a callback")

    seen = Seen()
    store.watch("k", fail, deadline=soon())
    store.watch("k", seen, deadline=soon())
    other.set("k", b"1", deadline=soon())
    seen.until(lambda view: view == {"k": b"1"})
