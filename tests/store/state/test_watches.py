"""Pushes of the state machine to those who watch: what goes into one, when it is due, how large it gets."""

from __future__ import annotations

import pytest

from memfabric_hybrid.errors import Code
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.limits import MAX_PUSH_BYTES, MIB
from memfabric_hybrid.store.state.effects import Send
from memfabric_hybrid.store.state.next_deadline import NEVER
from memfabric_hybrid.store.state.watches import SPACING_S
from store.bench import Bench, answer, only


def test_a_burst_is_one_push_for_all_watchers(bench: Bench) -> None:
    one, two = bench.member(1), bench.member(2)
    bench.say(one, m.StartWatch(1, "a/"))
    bench.say(two, m.StartWatch(1, "a/"))
    for number in range(3):
        bench.say(two, m.Set(f"a/{number}", b"v", False))
    bench.say(two, m.Delete("a/1"))
    assert bench.state.next_push <= bench.now
    assert bench.pushes() == [Send([10, 20], m.Changed("a/", 4, {"a/0": b"v", "a/1": None, "a/2": b"v"}))]
    assert bench.state.next_push == NEVER
    assert bench.pushes() == []


def test_a_new_watch_gets_changes_in_its_snapshot_only(bench: Bench) -> None:
    one, two = bench.member(1), bench.member(2)
    bench.say(one, m.StartWatch(1, "a"))
    bench.say(one, m.Set("a", b"v", False))
    assert bench.say(two, m.StartWatch(7, "a")) == [
        Send((20,), m.WatchSnapshot(7, 1, {"a": b"v"})),
        Send((21,), m.Done(1)),
    ]
    push = only(bench.pushes())  # to all: whose snapshot is not older than it leaves it aside
    assert push == Send([10, 20], m.Changed("a", 1, {"a": b"v"}))


def test_a_session_hears_what_happened_before_its_next_snapshot(bench: Bench) -> None:
    one, two = bench.member(1), bench.member(2)
    bench.say(one, m.StartWatch(1, "a"))
    bench.say(two, m.Set("a", b"v", False))
    assert bench.say(one, m.StartWatch(2, "b")) == [
        Send((10,), m.Changed("a", 1, {"a": b"v"})),
        Send((10,), m.WatchSnapshot(2, 1, {})),
        Send((11,), m.Done(1)),
    ]
    assert len(bench.pushes()) == 1, "others have not been told, and it does no harm to be told twice"


def test_pushes_to_many_watchers_keep_their_distance(bench: Bench) -> None:
    watchers = 50
    for number in range(1, watchers + 1):
        bench.say(bench.member(number), m.StartWatch(1, "a/"))
    writer = bench.member(watchers + 1)
    bench.say(writer, m.Set("a/0", b"v", False))
    assert len(only(bench.pushes()).connections) == watchers, "the first one goes at once"
    pushed_at = bench.now
    for number in range(20):
        bench.now = pushed_at + watchers * SPACING_S * number / 20
        bench.say(writer, m.Set(f"a/{number % 10}", b"%d" % number, False))
        assert bench.pushes() == []
    assert bench.state.next_push == pytest.approx(pushed_at + watchers * SPACING_S)
    bench.now = bench.state.next_push
    last = only(bench.pushes()).message
    assert last == m.Changed("a/", 21, {f"a/{number}": b"%d" % (10 + number) for number in range(10)})
    assert bench.state.next_push == NEVER
    bench.now += 1.0
    bench.say(writer, m.Set("a/0", b"v", False))
    assert bench.state.next_push <= bench.now, "a lone change waits for nothing"


def test_watchers_of_other_prefixes_do_not_wait_for_them(bench: Bench) -> None:
    for number in range(1, 51):
        bench.say(bench.member(number), m.StartWatch(1, "a/"))
    bench.say(505 - 4, m.StartWatch(2, "b/"))
    for key in ("a/0", "b/0", "a/1", "b/1"):
        bench.say(501, m.Set(key, b"v", False))
        bench.now += SPACING_S  # the distance of one watcher
        pushes = [effect.message for effect in bench.pushes() if isinstance(effect, Send)]
        assert [isinstance(push, m.Changed) and list(push.entries) for push in pushes] == (
            [[key]] if key != "a/1" else []
        )


def test_watched_prefixes_longer_than_the_key_do_not_match(bench: Bench) -> None:
    one = bench.member(1)
    bench.say(one, m.StartWatch(1, "abc"))
    bench.say(one, m.Set("ab", b"v", False))
    assert bench.state.next_push == NEVER


def test_large_bursts_are_several_pushes(bench: Bench) -> None:
    one = bench.member(1)
    bench.say(one, m.StartWatch(1, ""))
    values = [bytes([number]) * (40 * MIB) for number in range(3)]
    for number, value in enumerate(values):
        bench.say(one, m.Set(f"k{number}", value, False))
    pushes = [only([push]).message for push in bench.pushes()]
    assert [isinstance(push, m.Changed) and len(push.entries) for push in pushes] == [2, 1]
    assert 40 * MIB < MAX_PUSH_BYTES < 80 * MIB


def test_snapshots_have_a_limit(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memfabric_hybrid.store.state.keyspace.MAX_PREFIX_BYTES", 4 * MIB)
    one = bench.member(1)
    value = bytes(MIB)
    for number in range(5):
        bench.say(one, m.Set(f"k{number}", value, False))
    for request in (m.ReadPrefix("k"), m.StartWatch(1, "k")):
        refused = answer(bench.say(one, request))
        assert isinstance(refused, m.Refused)
        assert refused.code == Code.NO_RESOURCES
        assert "prefix 'k' holds more than" in refused.sentence
