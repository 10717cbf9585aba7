"""The state machine, event by event: connections, sessions, watches, waiting. No sockets, invented time."""

from __future__ import annotations

import pytest

from memfabric_hybrid.errors import Code
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.limits import MAX_PUSH_BYTES, MIB
from memfabric_hybrid.store.state.effects import Close, Send
from memfabric_hybrid.store.state.machine import HELLO_TIMEOUT_S, StoreState
from memfabric_hybrid.store.state.next_deadline import NEVER
from memfabric_hybrid.store.state.ranks import OFFER_S
from memfabric_hybrid.store.state.sessions import MAX_CHANNELS, STALL_S
from memfabric_hybrid.store.state.watches import SPACING_S
from store.bench import TIMEOUT_S, Bench, answer, gather, only, session_id

# --- connections ----------------------------------------------------------------------------------------------------


def test_hello_is_welcomed(bench: Bench) -> None:
    assert bench.greet(1, 1) == [Send((1,), m.Welcome("one", 0))]
    assert bench.state.knows(1)
    assert not bench.state.is_event_channel(1)
    bench.greet(2, 1, m.EVENTS)
    assert bench.state.is_event_channel(2)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (m.Get("k"), "Get before Hello"),
        (m.Heartbeat(), "Heartbeat before Hello"),
        (m.Hello(b"short", m.REQUESTS, 3.0), "session id of 5 bytes"),
        (m.Hello(bytes(16), 2, 3.0), "unknown role 2"),
        (m.Hello(bytes(16), m.EVENTS, 0.0), "heartbeat timeout of 0.0 s"),
        (m.Hello(bytes(16), m.EVENTS, float("nan")), "heartbeat timeout of nan s"),
    ],
)
def test_who_does_not_greet_properly_is_expelled(bench: Bench, message: m.Request, why: str) -> None:
    bench.connect(1)
    refusal, close = bench.say(1, message)
    assert isinstance(refusal, Send)
    assert isinstance(refusal.message, m.Refused)
    assert why in refusal.message.sentence
    assert isinstance(close, Close)
    assert bench.say(1, m.Get("k")) == []  # what it had sent before it noticed


@pytest.mark.parametrize(
    "message", [m.Hello(session_id(1), m.REQUESTS, 3.0), m.Restore(0, {}, (), (), {}), m.Heartbeat()]
)
def test_request_connections_are_for_requests(bench: Bench, message: m.Request) -> None:
    bench.greet(1, 1)
    assert Close(1, f"{type(message).__name__} on a request connection") in bench.say(1, message)


@pytest.mark.parametrize("message", [m.Hello(session_id(1), m.EVENTS, 3.0), m.Wait("k", 9.0), m.Goodbye()])
def test_the_event_channel_is_not_for_requests(bench: Bench, message: m.Request) -> None:
    bench.say(bench.member(1), m.Set("k", b"", True))
    effects = bench.say(10, message)
    assert Close(10, f"{type(message).__name__} on the event channel") in effects
    bench.greet(2, 2)
    assert answer(bench.say(2, m.Get("k"))) == m.Value(None)


def test_a_request_before_the_answer_expels(bench: Bench) -> None:
    bench.greet(1, 1)
    bench.say(1, m.Wait("k", 9.0))
    assert Close(1, "a request came before the one before it was answered") in bench.say(1, m.Get("k"))


def test_who_never_greets_is_closed(bench: Bench) -> None:
    bench.connect(1)
    assert bench.pass_time(HELLO_TIMEOUT_S - 0.1) == []
    assert bench.pass_time(0.2) == [Close(1, f"no Hello within {HELLO_TIMEOUT_S:g} s")]


# --- who is served first ------------------------------------------------------------------------------------------


def serving_one_first() -> Bench:
    """A store that serves session 1 first."""
    bench = Bench()
    bench.state = StoreState("one", first=session_id(1))
    return bench


def test_first_session_has_its_rank_before_others_are_answered() -> None:
    bench = serving_one_first()
    assert bench.greet(2, 2) == bench.greet(20, 2, m.EVENTS) == bench.greet(3, 3) == []
    assert answer(bench.say(bench.member(1), m.ClaimRank(1, "g", 4, b"", None, ()))) == m.Number(0)
    assert bench.pass_time(HELLO_TIMEOUT_S + 1) != [], "its own heartbeats are missing, and nothing else"
    assert not bench.state.knows(2)
    welcomes = bench.state.admit_all(bench.now)
    assert [(effect.connections, type(effect.message)) for effect in welcomes if isinstance(effect, Send)] == [
        ((2,), m.Welcome),
        ((20,), m.Welcome),
        ((3,), m.Welcome),
    ]
    assert bench.state.is_event_channel(20)
    assert bench.greet(4, 4) == [Send((4,), m.Welcome("one", bench.state.tables.keyspace.revision))]
    assert bench.state.admit_all(bench.now) == []


def test_who_speaks_while_its_hello_is_held_is_expelled_and_who_leaves_is_forgotten() -> None:
    bench = serving_one_first()
    bench.greet(2, 2)
    assert Close(2, "Get before our Welcome") in bench.say(2, m.Get("k"))
    bench.greet(3, 3)
    bench.leave(3)
    assert bench.state.admit_all(bench.now) == []


# --- sessions -------------------------------------------------------------------------------------------------------


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


def test_goodbye(bench: Bench) -> None:
    request = bench.member(1)
    bench.say(request, m.Set("k", b"v", True))
    assert bench.say(request, m.Goodbye()) == [Send((request,), m.Done(1)), Close(10, "goodbye")]
    assert answer(bench.say(request, m.Get("k"))) == m.Value(None)
    assert answer(bench.say(request, m.Goodbye())) == m.Done(2)


# --- free ranks -----------------------------------------------------------------------------------------------------


def free_ranks(bench: Bench, connection: int, most: int = 3) -> tuple[int, ...]:
    reply = answer(bench.say(connection, m.FreeRanks("g", 6, most)))
    assert isinstance(reply, m.Ranks)
    return reply.ranks


def test_who_asks_at_the_same_time_is_told_different_ranks_first(bench: Bench) -> None:
    first, *others = [bench.member(number) for number in range(1, 6)]
    bench.say(first, m.ClaimRank(1, "g", 6, b"", None, ()))
    assert [free_ranks(bench, one) for one in others] == [(1, 2, 3), (2, 1, 3), (3, 1, 2), (4, 1, 2)]
    assert free_ranks(bench, others[0]) == (1, 2, 3), "who asks again gives its own back first"
    bench.say(others[2], m.ClaimRank(1, "g", 6, b"", 3, ()))
    assert free_ranks(bench, others[2]) == (5, 1, 2)
    assert free_ranks(bench, first) == (1, 2, 4), "there is none that others were not told of"
    bench.now += OFFER_S
    assert free_ranks(bench, first) == (1, 2, 4)
    assert free_ranks(bench, others[3]) == (2, 1, 4)


def test_an_offer_is_no_promise(bench: Bench) -> None:
    first, second, third = [bench.member(number) for number in range(1, 4)]
    bench.say(first, m.ClaimRank(1, "g", 6, b"", None, ()))
    assert free_ranks(bench, second)[0] == 1
    assert answer(bench.say(third, m.ClaimRank(1, "g", 6, b"", 1, ()))) == m.Number(1)
    assert isinstance(answer(bench.say(second, m.ClaimRank(1, "g", 6, b"", 1, ()))), m.Refused)
    assert free_ranks(bench, second)[0] == 2


# --- watches --------------------------------------------------------------------------------------------------------


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


# --- waiting --------------------------------------------------------------------------------------------------------


def test_deadlines_are_kept_to_the_moment(bench: Bench) -> None:
    one = bench.member(1)
    bench.say(one, m.Wait("k", 1.05))
    assert bench.state.next_deadline == bench.now + 1.05
    assert bench.pass_time(1.04) == []
    refused = answer(bench.pass_time(0.01))
    assert refused == m.Refused(Code.TIMEOUT, "key 'k' was not set within 1.05 s")
    assert bench.state.next_deadline == float("inf")


@pytest.mark.parametrize("timeout_s", [-1.0, float("nan"), float("inf")])
def test_nonsense_timeouts_are_refused(bench: Bench, timeout_s: float) -> None:
    one = bench.member(1)
    for request in (m.Wait("k", timeout_s), gather(0, 2, timeout_s=timeout_s)):
        refused = answer(bench.say(one, request))
        assert isinstance(refused, m.Refused)
        assert refused.code == Code.INVALID_PARAM


def test_who_waits_and_leaves_is_forgotten(bench: Bench) -> None:
    one, two = bench.member(1), bench.member(2)
    bench.say(one, m.Wait("k", 9.0))
    bench.leave(one)
    assert answer(bench.say(two, m.Set("k", b"", False))) == m.Done(1)


def test_request_connections_of_who_falls_silent_are_closed(bench: Bench) -> None:
    """A host that vanishes says nothing on any of its connections."""
    silent, healthy = bench.member(1), bench.member(2)
    bench.say(silent, m.Wait("k", 60.0))
    effects: list[object] = []
    for _ in range(4):
        bench.say(20, m.Heartbeat())
        effects += bench.pass_time(TIMEOUT_S / 3)
    assert {effect.connection for effect in effects if isinstance(effect, Close)} == {10, silent}
    assert bench.state.knows(healthy)
    assert not bench.state.knows(silent)
    assert bench.say(healthy, m.Set("k", b"v", False)) != [], "nobody is waited for any more"
