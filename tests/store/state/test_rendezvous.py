"""The state machine's rendezvous: who is told what, and what is remembered."""

from __future__ import annotations

import pytest

from memfabric_hybrid.errors import Code
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.state.effects import Close, Send
from store.bench import TIMEOUT_S, Bench, answer, gather


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
    finished = bench.state.tables.rendezvous._finished
    assert list(finished) == [f"g{number}" for number in range(744, 1000)]


def test_only_groups_that_miss_the_dead_rank_are_told(bench: Bench) -> None:
    one, two = bench.member(1), bench.member(2)
    bench.say(two, m.ClaimRank(1, "g", 2, b"", 1, ()))
    bench.say(one, gather(0, 1, round=1, call=1))  # does not need rank 1
    bench.say(one, gather(0, 2, round=2, call=2))
    refused = answer(bench.leave(20))
    assert refused == m.Refused(Code.NOT_CONNECTED, "gather 'g' round 2: rank 1 left or died before all had arrived")


GONE = m.Refused(Code.NOT_CONNECTED, "gather 'g' round 0: rank 1 left or died before all had arrived")


def two_of_three(bench: Bench) -> tuple[int, int]:
    """Both wait for rank 2; who has claimed rank 1 is the second."""
    one, two = bench.member(1), bench.member(2)
    bench.say(two, m.ClaimRank(1, "g", 3, b"", 1, ()))
    bench.say(one, gather(0, 3))
    bench.say(two, gather(1, 3))
    return one, two


@pytest.mark.parametrize("channel_first", [True, False])
def test_the_death_of_one_who_arrived_is_told_when_both_its_connections_are_closed(
    bench: Bench, channel_first: bool
) -> None:
    one, two = two_of_three(bench)
    first, second = (20, two) if channel_first else (two, 20)
    assert bench.leave(first) == []
    assert bench.leave(second) == [Send([one], GONE)]


def test_the_silence_of_one_who_arrived_is_told(bench: Bench) -> None:
    one, two = two_of_three(bench)
    bench.pass_time(1.0)
    bench.say(10, m.Heartbeat())
    effects = bench.pass_time(TIMEOUT_S)
    assert Send([one], GONE) in effects
    assert Close(two, "no heartbeat for 3 s") in effects


def test_one_who_arrived_counts_as_long_as_its_connection_lasts(bench: Bench) -> None:
    one, two = two_of_three(bench)
    bench.leave(20)
    assert bench.say(bench.member(3), gather(2, 3)) == [Send([one, two, 31], m.Arrived(3))]


def test_one_who_arrived_and_came_back_is_waited_for(bench: Bench) -> None:
    one, two = two_of_three(bench)
    bench.leave(20)
    bench.greet(22, 2, m.EVENTS, returning=True)
    bench.say(22, m.Restore(7, {}, (m.RestoredClaim("g", 1, 3, b"", 1),), (), {}))
    assert bench.leave(two) == []
    bench.greet(23, 2)
    assert bench.say(23, gather(1, 3)) == []
    assert bench.say(bench.member(3), gather(2, 3)) == [Send([one, 23, 31], m.Arrived(3))]


def test_one_who_came_with_a_rank_of_another_does_not_take_it_along(bench: Bench) -> None:
    """It has lost the rank and does not know yet; who has it now was away for a moment."""
    one, two, owner = bench.member(1), bench.member(2), bench.member(3)
    bench.say(owner, m.ClaimRank(1, "g", 3, b"", 1, ()))
    bench.say(one, gather(0, 3))
    bench.say(two, gather(1, 3))
    bench.leave(30)
    bench.greet(32, 3, m.EVENTS, returning=True)
    bench.say(32, m.Restore(7, {}, (m.RestoredClaim("g", 1, 3, b"", 1),), (), {}))
    assert bench.leave(two) == []
    assert bench.say(owner, gather(1, 3)) == []
    assert bench.say(bench.member(4), gather(2, 3)) == [Send([one, owner, 41], m.Arrived(3))]


def test_one_who_gives_up_after_its_claim_has_ended_is_gone(bench: Bench) -> None:
    one, two = bench.member(1), bench.member(2)
    bench.say(two, m.ClaimRank(1, "g", 3, b"", 1, ()))
    bench.say(one, gather(0, 3))
    bench.say(two, gather(1, 3, timeout_s=1.0))
    bench.leave(20)
    timed_out, gone = bench.pass_time(1.1)
    assert isinstance(timed_out, Send)
    assert timed_out.connections == (two,)
    assert gone == Send([one], GONE)
