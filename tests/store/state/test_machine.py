"""The state machine by events: connections, who is served first, free ranks, waiting. No sockets, invented time."""

from __future__ import annotations

import pytest

from memfabric_hybrid.errors import Code
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.state.effects import Close, Send
from memfabric_hybrid.store.state.machine import HELLO_TIMEOUT_S, StoreState
from memfabric_hybrid.store.state.ranks import OFFER_S
from store.bench import TIMEOUT_S, Bench, answer, gather, session_id

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
        (m.Hello(bytes(16), m.EVENTS, 3.0, given_up=tuple(range(1025))), "1025 connections that it has given up"),
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
