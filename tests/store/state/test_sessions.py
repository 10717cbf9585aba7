"""Sessions of the state machine: their ends, their event channels, connections that were given up, goodbye."""

from __future__ import annotations

import pytest

from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.state.effects import Close, Send
from memfabric_hybrid.store.state.sessions import MAX_CHANNELS, STALL_S
from store.bench import TIMEOUT_S, Bench, answer, session_id


def test_what_belongs_to_a_session_needs_one(bench: Bench) -> None:
    bench.greet(1, 1)
    bound: list[m.Request] = [
        m.Set("k", b"", True),
        m.CompareAndSet("k", None, b"", True),
        m.StartWatch(1, ""),
        m.ClaimRank(1, "g", 2, b"", None, ()),
        m.HoldRange("r", 1),
    ]
    for request in bound:
        assert answer(bench.say(1, request)) == m.NoSession()
    assert answer(bench.say(1, m.ReadPrefix(""))) == m.Entries(0, {})


def test_a_silent_session_ends(bench: Bench) -> None:
    watcher, silent = bench.member(1), bench.member(2)
    bench.say(watcher, m.StartWatch(5, ""))
    bench.say(silent, m.Set("k", b"", True))
    bench.pushes()
    for _ in range(int(TIMEOUT_S)):
        assert bench.pass_time(0.9) == []
        bench.say(10, m.Heartbeat())
    assert bench.pass_time(0.9) == [Close(20, "no heartbeat for 3 s"), Close(21, "no heartbeat for 3 s")]
    assert bench.pushes() == [Send([10], m.Changed("", 2, {"k": None}))]


def test_half_a_message_is_a_sign_of_life(bench: Bench) -> None:
    bench.member(1)
    for _ in range(10):
        assert bench.pass_time(0.9) == []
        bench.state.heard(10, bench.now)


@pytest.mark.parametrize("gap_s", [STALL_S + 0.1, 3600.0])
def test_a_stalled_server_accuses_nobody(bench: Bench, gap_s: float) -> None:
    bench.member(1)
    bench.pass_time(2.5)
    bench.now += gap_s
    assert bench.state.tick(bench.now) == []
    assert bench.pass_time(0.4) == []
    assert bench.pass_time(0.2) == [Close(10, "no heartbeat for 3 s"), Close(11, "no heartbeat for 3 s")]


@pytest.mark.parametrize("timeout_s", [0.4, 0.5, 1.0, 1.9, 3.0])
def test_a_short_stall_accuses_nobody_whose_time_out_is_short(bench: Bench, timeout_s: float) -> None:
    """Who beats five times in its time-out has been silent for a fifth of it when the stall begins."""
    bench.connect(10)
    bench.say(10, m.Hello(session_id(1), m.EVENTS, timeout_s))
    bench.pass_time(timeout_s / 5, step_s=0.05)
    for gap_s in (0.45 * timeout_s, 0.55 * timeout_s, 0.95 * timeout_s, 1.05 * timeout_s):
        bench.now += gap_s
        assert bench.state.tick(bench.now) == [], f"after {gap_s} s"
        bench.say(10, m.Heartbeat())
        bench.pass_time(timeout_s / 5, step_s=0.05)
    assert bench.pass_time(timeout_s) == [Close(10, f"no heartbeat for {timeout_s:g} s")]


def test_a_heartbeat_read_right_after_a_stall_gives_no_credit(bench: Bench) -> None:
    bench.member(1)
    bench.pass_time(1.0)
    bench.now += 100.0
    bench.say(10, m.Heartbeat())
    bench.state.tick(bench.now)
    assert bench.pass_time(2.9) == []
    assert bench.pass_time(0.2) == [Close(10, "no heartbeat for 3 s"), Close(11, "no heartbeat for 3 s")]


@pytest.mark.parametrize("said", [m.Heartbeat(), m.Restore(0, {"k": b"v"}, (), (), {})])
def test_a_new_event_channel_replaces_the_old_one_when_it_is_used(bench: Bench, said: m.Request) -> None:
    request = bench.member(1)
    bench.say(10, m.Heartbeat())
    bench.say(request, m.Set("k", b"v", True))
    assert bench.greet(12, 1, m.EVENTS) == [Send((12,), m.Welcome(bench.state.incarnation, 1))]
    assert bench.say(12, said)[0] == Close(10, "its session has a new event channel")
    assert bench.leave(10) == []
    assert answer(bench.say(request, m.Get("k"))) == m.Value(b"v")
    bench.leave(12)
    assert answer(bench.say(request, m.Get("k"))) == m.Value(None)


def test_an_event_channel_that_is_given_up_after_its_greeting_changes_nothing(bench: Bench) -> None:
    """A store that stood still reads the greeting and the end of an attempt at once."""
    request = bench.member(1)
    bench.say(10, m.Heartbeat())
    bench.say(request, m.Set("k", b"v", True))
    bench.say(request, m.StartWatch(7, "k"))
    for attempt in (12, 13):
        bench.greet(attempt, 1, m.EVENTS)
        bench.say(request, m.Set("k", b"w", True))
        [push] = bench.state.changes(bench.now + 1)
        assert isinstance(push, Send)
        assert push.connections == [10]
        bench.now += 1
        bench.say(10, m.Heartbeat())
        assert bench.leave(attempt) == []
    assert answer(bench.say(request, m.Get("k"))) == m.Value(b"w")


def test_a_session_goes_on_with_the_channel_that_is_left(bench: Bench) -> None:
    request = bench.member(1)
    bench.say(10, m.Heartbeat())
    bench.say(request, m.Set("k", b"v", True))
    bench.greet(12, 1, m.EVENTS)
    bench.leave(10)
    assert answer(bench.say(request, m.Get("k"))) == m.Value(b"v")
    [snapshot, _] = bench.say(request, m.StartWatch(7, "k"))
    assert isinstance(snapshot, Send)
    assert snapshot.connections == (12,)
    bench.leave(12)
    assert answer(bench.say(request, m.Get("k"))) == m.Value(None)


def test_the_newest_channel_is_used_while_none_has_spoken(bench: Bench) -> None:
    request = bench.member(1)
    bench.greet(12, 1, m.EVENTS)
    [snapshot, _] = bench.say(request, m.StartWatch(7, "k"))
    assert isinstance(snapshot, Send)
    assert snapshot.connections == (12,)


def test_all_channels_end_with_the_session(bench: Bench) -> None:
    request = bench.member(1)
    bench.greet(12, 1, m.EVENTS)
    assert bench.say(request, m.Goodbye())[1:] == [Close(10, "goodbye"), Close(12, "goodbye")]
    bench.member(2)
    bench.greet(22, 2, m.EVENTS)
    assert {Close(20, "no heartbeat for 3 s"), Close(22, "no heartbeat for 3 s")} < set(bench.pass_time(3.2))


def test_a_session_has_so_many_channels_at_most(bench: Bench) -> None:
    bench.member(1)
    bench.say(10, m.Heartbeat())
    for number in range(100, 99 + MAX_CHANNELS):
        assert len(bench.greet(number, 1, m.EVENTS)) == 1
    assert bench.greet(200, 1, m.EVENTS)[0] == Close(100, "its session has a new event channel")


@pytest.mark.parametrize("role", [m.REQUESTS, m.EVENTS])
def test_what_comes_on_a_connection_that_was_given_up_is_not_done(bench: Bench, role: int) -> None:
    bench.member(1)
    other = bench.greet_with(29, m.Hello(session_id(2), m.REQUESTS, 3.0, number=7))
    late = bench.greet_with(12, m.Hello(session_id(1), m.REQUESTS, 3.0, number=7))
    kept = bench.greet_with(13, m.Hello(session_id(1), m.REQUESTS, 3.0, number=8))
    bench.connect(14)
    [closed, welcome] = bench.say(14, m.Hello(session_id(1), role, 3.0, number=9, given_up=(7, 77)))
    assert closed == Close(late, "its process has given up what it asked for there")
    assert isinstance(answer([welcome]), m.Welcome)
    assert bench.state.message(late, m.Set("k", b"v", True), bench.now) == []
    assert bench.leave(late) == []
    assert answer(bench.say(kept, m.Get("k"))) == m.Value(None)
    assert answer(bench.say(other, m.Get("k"))) == m.Value(None)


def test_who_waits_on_a_connection_that_was_given_up_waits_no_more(bench: Bench) -> None:
    bench.member(1)
    late = bench.greet_with(12, m.Hello(session_id(1), m.REQUESTS, 3.0, number=7))
    assert bench.say(late, m.Gather(1, "g", 0, 0, 2, b"a", 9.0)) == []
    bench.greet_with(13, m.Hello(session_id(1), m.REQUESTS, 3.0, number=8, given_up=(7,)))
    assert not bench.state.tables.rendezvous.waiting


def test_goodbye(bench: Bench) -> None:
    request = bench.member(1)
    bench.say(request, m.Set("k", b"v", True))
    assert bench.say(request, m.Goodbye()) == [Send((request,), m.Done(1)), Close(10, "goodbye")]
    assert answer(bench.say(request, m.Get("k"))) == m.Value(None)
    assert answer(bench.say(request, m.Goodbye())) == m.Done(2)
