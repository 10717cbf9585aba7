"""Sessions that come back to the state machine: what they get again and what they do not."""

from __future__ import annotations

import pytest

from memfabric_hybrid.errors import Code
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.state.effects import Close, Send
from memfabric_hybrid.store.state.placement import ALIGNMENT_BYTES, REGION_END, REGION_START
from store.bench import Bench, answer, session_id

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
    closed, reply = bench.say(12, full_restore(known_revision=0))[:2]
    assert closed == Close(10, "its session has a new event channel")
    assert isinstance(reply, Send)
    assert isinstance(reply.message, m.Restored)
    assert reply.message.refused == ()
    assert answer(bench.say(request, m.Get("unlisted"))) == m.Value(None)
    assert answer(bench.say(request, m.Get("k"))) == m.Value(b"v")
    assert bench.state.tables.sessions.get(session_id(1)).ranges == {"r"}  # type: ignore[union-attr]


def test_others_learn_what_came_back(bench: Bench) -> None:
    watcher = bench.member(1)
    bench.say(watcher, m.StartWatch(1, "g/"))
    bench.greet(20, 2, m.EVENTS)
    bench.say(20, full_restore())
    assert bench.pushes() == [Send([10, 20], m.Changed("g/", 52, {"g/1": b"rank"}))]


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
    assert "rank 1 of 'g' is taken" in reply.message.refused[0].sentence
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
        reply = answer(bench.say(one, m.HoldRange(f"pool/{number}", ALIGNMENT_BYTES)))
        assert isinstance(reply, m.Number)
        bases[f"pool/{number}"] = reply.value
    assert len(set(bases.values())) == 32
    fresh = Bench()
    two = fresh.member(1)
    for name in reversed(bases):
        assert answer(fresh.say(two, m.HoldRange(name, ALIGNMENT_BYTES))) == m.Number(bases[name])


def test_an_impossible_revision_expels(bench: Bench) -> None:
    bench.greet(10, 1, m.EVENTS)
    assert Close(10, "Restore with the impossible revision -1") in bench.say(10, full_restore(-1))


@pytest.mark.parametrize("revision", [1 << 62, (1 << 62) + 1, (1 << 64) - 1])
def test_a_revision_that_a_stranger_made_up_expels_nobody(bench: Bench, revision: int) -> None:
    """What it says is told to all members, who repeat it to this store and to the next one."""
    bench.greet(90, 9, m.EVENTS)
    bench.say(90, m.Restore(revision, {}, (), (), {}))
    told = bench.state.tables.keyspace.revision
    for store in (bench, Bench()):
        store.greet(10, 1, m.EVENTS)
        restored = store.say(10, full_restore(told))[0]
        assert isinstance(restored, Send)
        assert isinstance(restored.message, m.Restored)
        assert restored.message.refused == ()
        assert restored.message.revision < 1 << 63
