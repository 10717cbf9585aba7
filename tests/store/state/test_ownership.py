"""Members' keys are written by their owners only, whatever a stranger says, and one stray key splits nothing."""

from __future__ import annotations

import pytest

from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.state.effects import Effect, Send
from memfabric_hybrid.store.state.ownership import ANY_RANK, NO_RANK, Keeper, keeper_of
from memfabric_hybrid.store.state.placement import ALIGNMENT_BYTES
from memfabric_hybrid.store.state.ranks import SETTLE_S
from store.bench import Bench, answer, session_id


@pytest.mark.parametrize(
    ("key", "keeper"),
    [
        ("bm/0/h/7", Keeper("bm/ranks", 7)),
        ("bm/ranks/7", Keeper("bm/ranks", 7)),
        ("offload/0/h/1023", Keeper("offload/ranks", 1023)),
        ("shm-0-exit/3-77-1", Keeper("shm/ranks", ANY_RANK)),
        *[(f"bm/0/h/{rank}", Keeper("bm/ranks", NO_RANK)) for rank in ("zzz", "07", "-1", "٣", " 3", "", "100000")],
        ("bm/0/3", Keeper("bm/ranks", NO_RANK)),
        ("bm/0/h/x/3", Keeper("bm/ranks", NO_RANK)),
        ("bm/ranks/h/3", Keeper("bm/ranks", NO_RANK)),
        ("bm/3", Keeper("bm/ranks", NO_RANK)),
        ("bmx/0/3", None),
        ("transfer/sessions/a", None),
        ("k", None),
    ],
)
def test_whose_a_key_is(key: str, keeper: Keeper | None) -> None:
    assert keeper_of(key) == keeper


def refusal(bench: Bench, connection: int, request: m.Request) -> str:
    reply = answer(bench.say(connection, request))
    assert isinstance(reply, m.Refused), reply
    return reply.sentence


@pytest.fixture
def member(bench: Bench) -> int:
    """Holds rank 0 of Big Memory's members, and has joined object 0."""
    connection = bench.member(1)
    assert answer(bench.say(connection, m.ClaimRank(1, "bm/ranks", 4, b"", None, ()))) == m.Number(0)
    assert isinstance(answer(bench.say(connection, m.Set("bm/0/h/0", b"fact", True))), m.Done)
    return connection


@pytest.mark.parametrize(
    "request_",
    [
        m.Set("bm/0/h/zzz", b"stray", False),
        m.Set("bm/0/h/zzz", b"stray", True),
        m.Set("bm/0/h/1", b"somebody else's place", True),
        m.Set("bm/0/h/x/0", b"looks like rank 0", True),
        m.Set("bm/ranks/2", b"a rank that nobody claimed", False),
        m.CompareAndSet("bm/0/h/2", None, b"", True),
        m.Add("bm/0/h/3", 1),
        m.Append("bm/0/h/3", b"x"),
        m.Set("shm-0-exit/0-1-1", b"9", True),
        m.HoldRange("bm/0", ALIGNMENT_BYTES),
        m.Gather(1, "bm/0/0", 1, 0, 1, b"", 1.0),
    ],
    ids=repr,
)
def test_strangers_write_nothing_of_members(bench: Bench, member: int, request_: m.Request) -> None:
    """The first of them over TCP once made every later join see nobody."""
    stranger = bench.member(2)
    assert "member" in refusal(bench, stranger, request_)
    entries = answer(bench.say(stranger, m.ReadPrefix("bm/")))
    assert isinstance(entries, m.Entries)
    assert set(entries.entries) == {"bm/0/h/0", "bm/ranks/0"}


def test_strangers_delete_nothing_of_members(bench: Bench, member: int) -> None:
    stranger = bench.member(2)
    for key in ("bm/0/h/0", "bm/ranks/0"):
        assert "belongs to another member" in refusal(bench, stranger, m.Delete(key))


def test_strangers_cannot_restore_what_is_a_members(bench: Bench, member: int) -> None:
    """A Restore is a list of writes, and nobody has to have been a member to send one."""
    bench.greet(77, 9, m.EVENTS, returning=True)
    held = m.RestoredRange("bm/5", 1 << 44, 1 << 30)
    reply = answer(bench.say(77, m.Restore(0, {"bm/0/h/1": b"", "bm/0/h/zzz": b""}, (), (held,), {})))
    assert isinstance(reply, m.Restored)
    assert {one.name for one in reply.refused} == {"bm/0/h/1", "bm/0/h/zzz", "bm/5"}


def test_a_member_writes_what_is_its_own_and_that_vanishes_with_it(bench: Bench, member: int) -> None:
    assert "must vanish with it" in refusal(bench, member, m.Set("bm/1/h/0", b"", False))
    assert "rank 1 of 'bm/ranks'" in refusal(bench, member, m.Set("bm/1/h/1", b"", True))
    assert isinstance(answer(bench.say(member, m.Set("bm-0-x/anything", b"", True))), m.Done)
    assert isinstance(answer(bench.say(member, m.HoldRange("bm/1", ALIGNMENT_BYTES))), m.Number)
    assert isinstance(answer(bench.say(member, m.Gather(1, "bm/0/0", 1, 0, 1, b"", 1.0))), m.Arrived)
    assert isinstance(answer(bench.say(member, m.Set("bm/ranks/0", b"anew", False))), m.Done), "its rank stays one"


def test_a_session_has_one_rank_of_members(bench: Bench, member: int) -> None:
    """Otherwise one that never joins could take all that are free."""
    again = m.ClaimRank(2, "bm/ranks", 4, b"", None, ())
    assert "has a rank of group 'bm/ranks' already" in refusal(bench, member, again)
    assert answer(bench.say(member, m.ClaimRank(1, "bm/ranks", 4, b"", None, ()))) == m.Number(0), "repeated"
    assert answer(bench.say(member, m.ClaimRank(3, "shm/ranks", 4, b"", None, ()))) == m.Number(0), "another kind"
    assert isinstance(answer(bench.say(member, m.ReleaseRank("bm/ranks", 0))), m.Done)
    assert answer(bench.say(member, m.ClaimRank(4, "bm/ranks", 4, b"", 3, ()))) == m.Number(3)
    assert answer(bench.say(member, m.ClaimRank(5, "g", 4, b"", None, ()))) == m.Number(0)
    assert answer(bench.say(member, m.ClaimRank(6, "g", 4, b"", None, ()))) == m.Number(1), "other groups are free"


def test_who_comes_back_is_asked_for_its_restore_first(bench: Bench) -> None:
    """A rendezvous of members that it asks for in that moment is not refused: the client waits and asks again."""
    bench.greet(50, 5, m.EVENTS, returning=True)
    bench.greet(51, 5)
    meeting = m.Gather(1, "shm/0/x", 1, 0, 1, b"", 1.0)
    assert answer(bench.say(51, meeting)) == m.NoSession()
    claim = m.RestoredClaim("shm/ranks", 0, 4, b"", 1)
    assert isinstance(answer(bench.say(50, m.Restore(0, {}, (claim,), (), {}))), m.Restored)
    assert isinstance(answer(bench.say(51, meeting)), m.Arrived)


# --- who has claimed a rank and does not come in --------------------------------------------------------------------


def claim(bench: Bench, connection: int, wanted: int | None = None, capacity: int = 4) -> m.ServerMessage:
    return answered(bench.say(connection, m.ClaimRank(1, "bm/ranks", capacity, b"", wanted, ())), connection)


def answered(effects: list[Effect], connection: int) -> m.ServerMessage:
    [reply] = [e.message for e in effects if isinstance(e, Send) and tuple(e.connections) == (connection,)]
    return reply


def come_in(bench: Bench, connection: int, rank: int) -> m.ServerMessage:
    return answered(bench.say(connection, m.Set(f"bm/members/here/{rank}", b"", True)), connection)


def wait_until_settled(bench: Bench, *channels: int) -> None:
    for _ in range(4):
        bench.pass_time(SETTLE_S / 4)
        for channel in channels:
            bench.say(channel, m.Heartbeat())


@pytest.fixture
def strangers(bench: Bench) -> list[int]:
    """Their sessions have claimed all ranks and keep them alive."""
    connections = [bench.member(session) for session in range(10, 14)]
    assert [claim(bench, one) for one in connections] == [m.Number(rank) for rank in range(4)]
    return connections


def test_ranks_of_who_does_not_come_in_are_given_to_who_does(bench: Bench, strangers: list[int]) -> None:
    newcomer = bench.member(1)
    early = claim(bench, newcomer)
    assert isinstance(early, m.Refused)
    assert "4 by processes that have not come in yet and lose them 5 s later" in early.sentence
    channels = [10, *(one - 1 for one in strangers)]
    wait_until_settled(bench, *channels)
    assert answer(bench.say(newcomer, m.FreeRanks("bm/ranks", 4, 9))) == m.Ranks((0, 1, 2, 3))
    assert claim(bench, newcomer) == m.Number(0)
    assert isinstance(come_in(bench, newcomer, 0), m.Done)
    assert isinstance(come_in(bench, strangers[0], 0), m.Refused), "it is too late for that"
    second = bench.member(2)
    assert claim(bench, second, wanted=2) == m.Number(2), "the one that is wanted"
    wait_until_settled(bench, *channels, 20)
    assert isinstance(claim(bench, bench.member(3), wanted=0), m.Refused), "who has come in keeps its rank"


def test_who_has_come_in_keeps_its_rank_whatever_it_does_then(bench: Bench) -> None:
    members = [bench.member(session) for session in range(1, 5)]
    for rank, one in enumerate(members):
        assert claim(bench, one) == m.Number(rank)
        come_in(bench, one, rank)
        bench.say(one, m.Delete(f"bm/members/here/{rank}"))
    wait_until_settled(bench, *(one - 1 for one in members))
    refused = claim(bench, bench.member(9))
    assert isinstance(refused, m.Refused)
    assert "come in" not in refused.sentence


def test_a_world_size_that_only_strangers_have_named_binds_nobody(bench: Bench) -> None:
    stranger = bench.member(9)
    assert claim(bench, stranger, capacity=7) == m.Number(0)
    first = bench.member(1)
    assert isinstance(claim(bench, first), m.Refused)
    wait_until_settled(bench, 10, 90)
    assert claim(bench, first) == m.Number(0)
    come_in(bench, first, 0)
    assert claim(bench, bench.member(2)) == m.Number(1)
    assert isinstance(claim(bench, bench.member(3), capacity=7), m.Refused)


def test_who_comes_back_gets_its_rank_from_who_has_only_claimed_it(bench: Bench) -> None:
    """A stranger is quicker than the members of a store that was restarted, and names another world size."""
    assert claim(bench, bench.member(9), capacity=7) == m.Number(0)
    bench.greet(10, 1, m.EVENTS, returning=True)
    mine = m.Restore(7, {"bm/members/here/0": b""}, (m.RestoredClaim("bm/ranks", 0, 4, b"me", 1),), (), {})
    assert m.Restored in [type(e.message) for e in bench.say(10, mine) if isinstance(e, Send) and not e.message.refused]  # type: ignore[union-attr]
    assert isinstance(claim(bench, bench.member(2), wanted=0), m.Refused)


def test_who_gives_its_rank_back_keeps_nothing_that_is_members(bench: Bench, member: int) -> None:
    """Neither addresses nor keys, in which its successor would find somebody else's."""
    assert isinstance(answer(bench.say(member, m.HoldRange("bm/0", ALIGNMENT_BYTES))), m.Number)
    bench.say(member, m.HoldRange("mine", ALIGNMENT_BYTES))
    bench.say(member, m.Set("own", b"", True))
    bench.say(member, m.ReleaseRank("bm/ranks", 0))
    session = bench.state.tables.sessions.get(session_id(1))
    assert session is not None
    assert (set(session.keys), session.ranges) == ({"own"}, {"mine"})
    successor = bench.member(2)
    assert claim(bench, successor) == m.Number(0)
    assert isinstance(answered(bench.say(successor, m.Set("bm/0/h/0", b"new", True)), successor), m.Done)
