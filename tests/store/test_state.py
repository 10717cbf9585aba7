"""The state machine, event by event: what it answers, whom it tells, what it forgets. No sockets, invented time."""

from __future__ import annotations

import pytest

from memfabric_hybrid.errors import Code
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.effects import Close, Effect, Send
from memfabric_hybrid.store.limits import MAX_PUSH_BYTES, MIB
from memfabric_hybrid.store.ranges import ALIGNMENT_BYTES, REGION_END, REGION_START
from memfabric_hybrid.store.sessions import STALL_S
from memfabric_hybrid.store.state import HELLO_TIMEOUT_S, StoreState
from store import invariants

TIMEOUT_S = 3.0


class Bench:
    """A state machine with a clock that the test moves. Sessions are numbers; connection 10*n is n's event channel."""

    def __init__(self) -> None:
        self.state = StoreState("one")
        self.now = 1000.0
        self.connections: set[int] = set()

    def connect(self, connection: int) -> None:
        self.connections.add(connection)
        self.state.connected(connection, self.now)

    def say(self, connection: int, message: m.Request) -> list[Effect]:
        effects = self.state.message(connection, message, self.now)
        invariants.check_effects(effects, self.connections)
        self.connections -= {effect.connection for effect in effects if isinstance(effect, Close)}
        invariants.check(self.state, self.connections)
        return effects

    def greet(self, connection: int, session: int, role: int = m.REQUESTS) -> list[Effect]:
        self.connect(connection)
        return self.say(connection, m.Hello(session_id(session), role, TIMEOUT_S))

    def member(self, session: int) -> int:
        """Event channel and one request connection; the latter's number."""
        self.greet(10 * session, session, m.EVENTS)
        self.greet(10 * session + 1, session)
        return 10 * session + 1

    def leave(self, connection: int) -> list[Effect]:
        effects = self.state.disconnected(connection)
        self.connections.discard(connection)
        invariants.check(self.state, self.connections)
        invariants.check_effects(effects, self.connections)
        return effects

    def pass_time(self, seconds: float, step_s: float = 0.1) -> list[Effect]:
        """Ticks as a healthy server does."""
        effects: list[Effect] = []
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + step_s)
            effects += self.state.tick(self.now)
            invariants.check(self.state)
        return effects


def session_id(session: int) -> bytes:
    return session.to_bytes(16, "big")


def only(effects: list[Effect]) -> Send:
    (effect,) = effects
    assert isinstance(effect, Send)
    return effect


def answer(effects: list[Effect]) -> m.ServerMessage:
    return only(effects).message


def gather(rank: int, size: int, data: bytes = b"", round: int = 0, call: int = 1, timeout_s: float = 60) -> m.Gather:
    return m.Gather(call, "g", round, rank, size, data, timeout_s)


@pytest.fixture
def bench() -> Bench:
    return Bench()


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


@pytest.mark.parametrize("revision", [-1, (1 << 62) + 1])
def test_an_impossible_revision_expels(bench: Bench, revision: int) -> None:
    bench.greet(10, 1, m.EVENTS)
    assert Close(10, f"Restore with the impossible revision {revision}") in bench.say(10, full_restore(revision))


def test_who_never_greets_is_closed(bench: Bench) -> None:
    bench.connect(1)
    assert bench.pass_time(HELLO_TIMEOUT_S - 0.1) == []
    assert bench.pass_time(0.2) == [Close(1, f"no Hello within {HELLO_TIMEOUT_S:g} s")]


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
    bench.state.changes()
    for _ in range(int(TIMEOUT_S)):
        assert bench.pass_time(0.9) == []
        bench.say(10, m.Heartbeat())
    assert bench.pass_time(0.9) == [Close(20, "no heartbeat for 3 s")]
    assert bench.state.changes() == [Send([10], m.Changed("", 2, {"k": None}))]


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
    assert bench.pass_time(0.2) == [Close(10, "no heartbeat for 3 s")]


def test_a_heartbeat_read_right_after_a_stall_gives_no_credit(bench: Bench) -> None:
    bench.member(1)
    bench.pass_time(1.0)
    bench.now += 100.0
    bench.say(10, m.Heartbeat())
    bench.state.tick(bench.now)
    assert bench.pass_time(2.9) == []
    assert bench.pass_time(0.2) == [Close(10, "no heartbeat for 3 s")]


def test_a_new_event_channel_replaces_the_old_one(bench: Bench) -> None:
    request = bench.member(1)
    bench.say(request, m.Set("k", b"v", True))
    assert bench.greet(12, 1, m.EVENTS)[0] == Close(10, "its session has a new event channel")
    assert bench.leave(10) == []
    assert answer(bench.say(request, m.Get("k"))) == m.Value(b"v")
    bench.leave(12)
    assert answer(bench.say(request, m.Get("k"))) == m.Value(None)


def test_goodbye(bench: Bench) -> None:
    request = bench.member(1)
    bench.say(request, m.Set("k", b"v", True))
    assert bench.say(request, m.Goodbye()) == [Send((request,), m.Done(1)), Close(10, "goodbye")]
    assert answer(bench.say(request, m.Get("k"))) == m.Value(None)
    assert answer(bench.say(request, m.Goodbye())) == m.Done(2)


# --- watches --------------------------------------------------------------------------------------------------------


def test_a_burst_is_one_push_for_all_watchers(bench: Bench) -> None:
    one, two = bench.member(1), bench.member(2)
    bench.say(one, m.StartWatch(1, "a/"))
    bench.say(two, m.StartWatch(1, "a/"))
    for number in range(3):
        bench.say(two, m.Set(f"a/{number}", b"v", False))
    bench.say(two, m.Delete("a/1"))
    assert bench.state.has_changes
    assert bench.state.changes() == [Send([10, 20], m.Changed("a/", 4, {"a/0": b"v", "a/1": None, "a/2": b"v"}))]
    assert not bench.state.has_changes
    assert bench.state.changes() == []


def test_a_new_watch_gets_changes_in_its_snapshot_only(bench: Bench) -> None:
    one, two = bench.member(1), bench.member(2)
    bench.say(one, m.StartWatch(1, "a"))
    bench.say(one, m.Set("a", b"v", False))
    assert bench.say(two, m.StartWatch(7, "a")) == [
        Send([10], m.Changed("a", 1, {"a": b"v"})),
        Send((20,), m.WatchSnapshot(7, 1, {"a": b"v"})),
        Send((21,), m.Done(1)),
    ]
    assert bench.state.changes() == []


def test_watched_prefixes_longer_than_the_key_do_not_match(bench: Bench) -> None:
    one = bench.member(1)
    bench.say(one, m.StartWatch(1, "abc"))
    bench.say(one, m.Set("ab", b"v", False))
    assert not bench.state.has_changes


def test_large_bursts_are_several_pushes(bench: Bench) -> None:
    one = bench.member(1)
    bench.say(one, m.StartWatch(1, ""))
    values = [bytes([number]) * (40 * MIB) for number in range(3)]
    for number, value in enumerate(values):
        bench.say(one, m.Set(f"k{number}", value, False))
    pushes = [only([push]).message for push in bench.state.changes()]
    assert [isinstance(push, m.Changed) and len(push.entries) for push in pushes] == [2, 1]
    assert 40 * MIB < MAX_PUSH_BYTES < 80 * MIB


def test_snapshots_have_a_limit(bench: Bench) -> None:
    one = bench.member(1)
    value = bytes(60 * MIB)
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


# --- gatherings -----------------------------------------------------------------------------------------------------


def test_the_last_arrival_causes_one_send_to_all(bench: Bench) -> None:
    members = [bench.member(number) for number in (1, 2, 3)]
    assert bench.say(members[2], gather(2, 3, b"c")) == []
    assert bench.say(members[0], gather(0, 3)) == []
    assert bench.say(members[1], gather(1, 3, b"b")) == [Send([11, 21, 31], m.Gathered([b"", b"b", b"c"]))]


def test_a_barrier_is_answered_without_a_list(bench: Bench) -> None:
    bench.say(bench.member(1), gather(0, 2))
    assert answer(bench.say(bench.member(2), gather(1, 2))) == m.Arrived(2)


def test_a_repeated_call_replaces_its_first(bench: Bench) -> None:
    one, two = bench.member(1), bench.member(2)
    bench.say(one, gather(0, 2, b"x", call=7))
    bench.greet(12, 1)
    assert bench.say(12, gather(0, 2, b"x", call=7)) == [Close(11, "its gather was repeated on a new connection")]
    bench.leave(11)
    assert bench.say(two, gather(1, 2)) == [Send([12, 21], m.Gathered([b"x", b""]))]


def test_a_lost_answer_is_given_again_to_the_same_call_only(bench: Bench) -> None:
    one, two = bench.member(1), bench.member(2)
    bench.say(one, gather(0, 2, b"x", call=7))
    bench.say(two, gather(1, 2, b"y", call=9))
    assert answer(bench.say(one, gather(0, 2, b"x", call=7))) == m.Gathered([b"x", b"y"])
    assert bench.say(two, gather(1, 2, b"y", call=10)) == []  # a new call is a new round of that number
    refused = answer(bench.say(one, gather(1, 2, call=8)))
    assert isinstance(refused, m.Refused)
    assert refused.code == Code.DUPLICATED


def test_memory_of_finished_rounds_is_bounded(bench: Bench) -> None:
    one = bench.member(1)
    for number in range(1000):
        bench.say(one, m.Gather(number, f"g{number}", 0, 0, 1, bytes(64 * 1024), 1.0))
    finished = bench.state.notebook.gatherings._finished
    assert list(finished) == [f"g{number}" for number in range(744, 1000)]


def test_only_groups_that_miss_the_dead_rank_are_told(bench: Bench) -> None:
    one, two = bench.member(1), bench.member(2)
    bench.say(two, m.ClaimRank(1, "g", 2, b"", 1, ()))
    bench.say(one, gather(0, 1, round=1, call=1))  # does not need rank 1
    bench.say(one, gather(0, 2, round=2, call=2))
    refused = answer(bench.leave(20))
    assert refused == m.Refused(Code.NOT_CONNECTED, "gather 'g' round 2: rank 1 left or died before it arrived")


def test_the_death_of_one_who_arrived_withdraws_it_when_its_connection_closes(bench: Bench) -> None:
    one, two = bench.member(1), bench.member(2)
    bench.say(two, m.ClaimRank(1, "g", 2, b"", 1, ()))
    bench.say(two, gather(1, 2))
    assert bench.leave(20) == []
    bench.leave(two)
    assert bench.say(one, gather(0, 2)) == []


# --- restoring ------------------------------------------------------------------------------------------------------

BASE = REGION_START + 7 * ALIGNMENT_BYTES


def full_restore(known_revision: int = 50) -> m.Restore:
    claims = (m.RestoredClaim("g", 1, 4, b"rank", 3),)
    return m.Restore(known_revision, {"k": b"v"}, claims, (m.RestoredRange("r", BASE, 5),), {4: "g/", 5: "k"})


def test_everything_is_restored_by_one_message(bench: Bench) -> None:
    bench.greet(10, 1, m.EVENTS)
    effects = bench.say(10, full_restore())
    assert effects == [
        Send((10,), m.Restored(53, ())),
        Send((10,), m.WatchSnapshot(4, 53, {"g/1": b"rank"})),
        Send((10,), m.WatchSnapshot(5, 53, {"k": b"v"})),
    ]
    request = bench.member(2)
    assert answer(bench.say(request, m.HoldRange("r", 5))) == m.Number(BASE)
    assert answer(bench.say(request, m.ClaimRank(1, "g", 4, b"", None, (0,)))) == m.Number(2)
    bench.leave(10)
    assert answer(bench.say(request, m.ReadPrefix(""))) == m.Entries(56, {"g/2": b""})


def test_restoring_to_the_same_server_is_the_whole_truth(bench: Bench) -> None:
    request = bench.member(1)
    bench.say(10, full_restore())
    bench.say(request, m.Set("unlisted", b"", True))
    bench.say(request, m.HoldRange("unlisted", 1))
    bench.greet(12, 1, m.EVENTS)
    reply = bench.say(12, full_restore(known_revision=0))[0]
    assert isinstance(reply, Send)
    assert isinstance(reply.message, m.Restored)
    assert reply.message.refused == ()
    assert answer(bench.say(request, m.Get("unlisted"))) == m.Value(None)
    assert answer(bench.say(request, m.Get("k"))) == m.Value(b"v")
    assert bench.state.notebook.sessions.get(session_id(1)).ranges == {"r"}  # type: ignore[union-attr]


def test_others_learn_what_came_back(bench: Bench) -> None:
    watcher = bench.member(1)
    bench.say(watcher, m.StartWatch(1, "g/"))
    bench.greet(20, 2, m.EVENTS)
    assert Send([10], m.Changed("g/", 53, {"g/1": b"rank"})) in bench.say(20, full_restore())


def test_what_others_have_taken_is_refused_with_the_reason(bench: Bench) -> None:
    other = bench.member(2)
    bench.say(other, m.ClaimRank(1, "g", 4, b"", 1, ()))
    bench.say(other, m.Set("k", b"theirs", False))
    bench.say(other, m.HoldRange("r", 6))
    bench.greet(10, 1, m.EVENTS)
    reply = bench.say(10, full_restore())[0]
    assert isinstance(reply, Send)
    assert isinstance(reply.message, m.Restored)
    assert [(refusal.kind, refusal.name, refusal.code) for refusal in reply.message.refused] == [
        ("rank", "g/1", Code.DUPLICATED),
        ("key", "k", Code.DUPLICATED),
        ("range", "r", Code.DUPLICATED),
    ]
    assert "rank 1 of group 'g' is taken" in reply.message.refused[0].sentence
    assert "6 bytes at" in reply.message.refused[2].sentence
    assert answer(bench.say(other, m.Get("k"))) == m.Value(b"theirs")


def test_restored_ranges_may_overlap_and_new_ones_avoid_them(bench: Bench) -> None:
    one = bench.member(1)
    base = answer(bench.say(one, m.HoldRange("new", 8 * ALIGNMENT_BYTES)))
    assert isinstance(base, m.Number)
    bench.greet(20, 2, m.EVENTS)
    old = m.RestoredRange("old", base.value + ALIGNMENT_BYTES, 10 * ALIGNMENT_BYTES)
    reply = bench.say(20, m.Restore(0, {}, (), (old,), {}))[0]
    assert isinstance(reply, Send)
    assert reply.message == m.Restored(1, ())
    bench.say(one, m.ReleaseRange("new"))
    again = answer(bench.say(one, m.HoldRange("new", 8 * ALIGNMENT_BYTES)))
    assert isinstance(again, m.Number)
    assert again.value == old.base + old.size_bytes


@pytest.mark.parametrize(
    ("base", "size_bytes"),
    [(BASE + 1, 5), (0, 5), (REGION_END, 5), (REGION_END - ALIGNMENT_BYTES, ALIGNMENT_BYTES + 1), (BASE, 0), (-1, 5)],
)
def test_impossible_ranges_are_not_restored(bench: Bench, base: int, size_bytes: int) -> None:
    bench.greet(10, 1, m.EVENTS)
    reply = bench.say(10, m.Restore(0, {}, (), (m.RestoredRange("r", base, size_bytes),), {}))[0]
    assert isinstance(reply, Send)
    assert isinstance(reply.message, m.Restored)
    assert [refusal.code for refusal in reply.message.refused] == [Code.INVALID_PARAM]


def test_a_repeated_claim_is_the_same_claim(bench: Bench) -> None:
    one = bench.member(1)
    assert answer(bench.say(one, m.ClaimRank(5, "g", 4, b"a", None, ()))) == m.Number(0)
    assert answer(bench.say(one, m.ClaimRank(5, "g", 4, b"b", None, ()))) == m.Number(0)
    assert answer(bench.say(one, m.ClaimRank(6, "g", 4, b"c", None, ()))) == m.Number(1)
    assert answer(bench.say(one, m.Get("g/0"))) == m.Value(b"b")


def test_names_spread_over_the_region_and_come_back_to_their_place(bench: Bench) -> None:
    one = bench.member(1)
    bases = {}
    for number in range(32):
        reply = answer(bench.say(one, m.HoldRange(f"bm/{number}", ALIGNMENT_BYTES)))
        assert isinstance(reply, m.Number)
        bases[f"bm/{number}"] = reply.value
    assert len(set(bases.values())) == 32
    fresh = Bench()
    two = fresh.member(1)
    for name in reversed(bases):
        assert answer(fresh.say(two, m.HoldRange(name, ALIGNMENT_BYTES))) == m.Number(bases[name])
