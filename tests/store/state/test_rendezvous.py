"""The state machine's rendezvous: who is told what, and what is remembered."""

from __future__ import annotations

from memfabric_hybrid.errors import Code
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.state.effects import Close, Send
from store.bench import Bench, answer, gather


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
    assert refused == m.Refused(Code.NOT_CONNECTED, "gather 'g' round 2: rank 1 left or died before it arrived")


def test_the_death_of_one_who_arrived_withdraws_it_when_its_connection_closes(bench: Bench) -> None:
    one, two = bench.member(1), bench.member(2)
    bench.say(two, m.ClaimRank(1, "g", 2, b"", 1, ()))
    bench.say(two, gather(1, 2))
    assert bench.leave(20) == []
    bench.leave(two)
    assert bench.say(one, gather(0, 2)) == []
