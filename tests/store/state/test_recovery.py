"""A store that was just started gives nobody a rank that a living member of an earlier one may hold."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from memfabric_hybrid.errors import Code
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.limits import MAX_GROUP_RANKS, MAX_RANK_VALUE_BYTES
from memfabric_hybrid.store.state.effects import Effect, Send
from memfabric_hybrid.store.state.machine import StoreState
from memfabric_hybrid.store.state.recovery import RETURN_S
from store.bench import TIMEOUT_S, Bench, answer, session_id

CAPACITY = 4


@pytest.fixture
def bench() -> Bench:
    """A store that may have members on other hosts, and has just been started."""
    bench = Bench()
    bench.state.tables.recovery.begin(bench.now)
    return bench


def claim(number: int, wanted: int | None = None) -> m.ClaimRank:
    return m.ClaimRank(number, "g", CAPACITY, b"", wanted, ())


def come_back(bench: Bench, session: int, rank: int) -> list[Effect]:
    bench.greet(10 * session, session, m.EVENTS, returning=True)
    return bench.say(10 * session, m.Restore(7, {}, (m.RestoredClaim("g", rank, CAPACITY, b"", 1),), (), {}))


def ranks_told(effects: list[Effect]) -> dict[int, int]:
    """By connection."""
    return {
        effect.connections[0]: effect.message.value
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, m.Number)
    }


def test_newcomers_wait_until_who_runs_has_been_heard(bench: Bench) -> None:
    newcomer = bench.member(1)
    assert bench.say(newcomer, claim(1)) == []
    assert bench.state.next_deadline == bench.now + RETURN_S
    assert ranks_told(bench.pass_time(RETURN_S / 2)) == {}
    assert ranks_told(bench.pass_time(RETURN_S)) == {newcomer: 0}
    assert answer(bench.say(bench.member(2), claim(1))) == m.Number(1), "and from then on nobody"


def test_who_comes_back_has_its_rank_and_gives_the_others_their_time(bench: Bench) -> None:
    newcomer = bench.member(1)
    bench.say(newcomer, claim(1))
    come_back(bench, 2, 0)
    for _ in range(2):
        assert ranks_told(bench.pass_time(TIMEOUT_S / 2 - 0.2)) == {}
        bench.say(10, m.Heartbeat())
        bench.say(20, m.Heartbeat())
    come_back(bench, 3, 1)
    assert ranks_told(bench.pass_time(0.5)) == {newcomer: 2}


def test_who_comes_back_is_not_held_back() -> None:
    bench = Bench()
    bench.state = StoreState("one", first=session_id(1))
    bench.state.tables.recovery.begin(bench.now)
    first = bench.member(1)
    bench.say(first, claim(1))
    assert bench.greet(5, 5) == []
    come_back(bench, 2, 0)
    bench.pass_time(RETURN_S)
    bench.say(10, m.Heartbeat())
    bench.say(20, m.Heartbeat())
    assert ranks_told(bench.pass_time(TIMEOUT_S - RETURN_S)) == {first: 1}


def test_a_claim_that_waits_may_fail_and_may_be_given_up(bench: Bench) -> None:
    first, second, third = (bench.member(session) for session in (1, 2, 3))
    bench.say(first, claim(1, wanted=2))
    bench.say(second, claim(1, wanted=2))
    bench.say(third, claim(1))
    assert bench.leave(third) == []
    effects = bench.pass_time(RETURN_S)
    assert ranks_told(effects) == {first: 2}
    [refused] = [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, m.Refused)]
    assert refused.code == Code.DUPLICATED


def test_a_request_behind_a_claim_that_waits_is_against_the_protocol(bench: Bench) -> None:
    newcomer = bench.member(1)
    bench.say(newcomer, claim(1))
    bench.say(newcomer, m.Get("k"))
    assert newcomer not in bench.connections


def test_a_stranger_makes_nobody_wait_longer_than_a_stopped_member_would(bench: Bench) -> None:
    """It says that it returns, with a heartbeat time-out of a century, to a store that was just started."""
    newcomer = bench.member(1)
    bench.say(newcomer, claim(1))
    bench.connect(99)
    bench.say(99, m.Hello(session_id(9), m.EVENTS, 4e9, returning=True))
    for _ in range(2):
        assert ranks_told(bench.pass_time(TIMEOUT_S / 2 - 0.1)) == {}
        bench.say(10, m.Heartbeat())
    assert ranks_told(bench.pass_time(0.4)) == {newcomer: 0}


def test_members_with_long_time_outs_wait_for_a_minute_at_most(bench: Bench) -> None:
    recovery = bench.state.tables.recovery
    recovery.heard(4e9)
    assert not recovery.is_over(bench.now + 59, 3600)
    assert recovery.is_over(bench.now + 60, 3600)


@pytest.mark.parametrize(
    "unfit",
    [
        m.ClaimRank(1, "g", CAPACITY, bytes(MAX_RANK_VALUE_BYTES + 1), None, ()),
        m.ClaimRank(1, "g", 0, b"", None, ()),
        m.ClaimRank(1, "g" * 2000, CAPACITY, b"", None, ()),
        m.ClaimRank(1, "g", CAPACITY, b"", None, (0,) * (MAX_GROUP_RANKS + 1)),
    ],
)
def test_what_can_never_be_granted_does_not_wait(bench: Bench, unfit: m.ClaimRank) -> None:
    assert isinstance(answer(bench.say(bench.member(1), unfit)), m.Refused)
    assert not bench.state.tables.recovery.waiting


def test_what_waits_holds_so_much_memory_and_members_always_have_room(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memfabric_hybrid.store.state.recovery.MAX_WAITING_CLAIMS_BYTES", 100_000)
    large = m.ClaimRank(1, "g", CAPACITY, bytes(60_000), None, ())
    first = bench.member(1)
    assert bench.say(first, large) == []
    refused = answer(bench.say(bench.member(2), large))
    assert isinstance(refused, m.Refused)
    assert refused.code == Code.NO_RESOURCES
    assert "60004 bytes wait, allowed are 100000" in refused.sentence
    newcomer = bench.member(3)
    assert bench.say(newcomer, claim(1)) == []
    bench.leave(first)
    assert bench.say(bench.member(4), large) == [], "who leaves makes room"
    assert newcomer in ranks_told(bench.pass_time(RETURN_S))


def test_a_rank_stays_as_small_as_it_was_claimed() -> None:
    bench = Bench()
    member = bench.member(1)
    bench.say(member, claim(1))
    for request in (
        m.Set("g/0", bytes(MAX_RANK_VALUE_BYTES + 1), True),
        m.CompareAndSet("g/0", b"", bytes(MAX_RANK_VALUE_BYTES + 1), True),
    ):
        assert isinstance(answer(bench.say(member, request)), m.Refused)


def test_a_store_of_one_host_waits_for_nobody() -> None:
    bench = Bench()
    assert answer(bench.say(bench.member(1), claim(1))) == m.Number(0)


class RestartedStore(RuleBasedStateMachine):
    """Members of an earlier store come back in any order, newcomers claim in between: no rank has two owners.

    Members that run come back within RETURN_S; those that were stopped or cut off come within their time-out, if at
    least one runs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.bench.state.tables.recovery.begin(self.bench.now)
        self.began = self.bench.now
        self.away = {101: 0, 102: 1, 103: 3}  # session → rank
        self.back: dict[int, int] = {}
        self.newcomers: dict[int, int | None] = {}  # request connection → rank
        self.channels: list[int] = []

    @rule()
    def a_newcomer_claims(self) -> None:
        if len(self.newcomers) < 3:
            connection = self.bench.member(len(self.newcomers) + 1)
            self.channels.append(connection - 1)
            self.newcomers[connection] = None
            self._note(self.bench.say(connection, claim(1)))

    @rule(step=st.integers(1, 4))
    def time_passes(self, step: int) -> None:
        seconds = step * 0.2
        age_s = self.bench.now + seconds - self.began
        while self.away and (age_s >= TIMEOUT_S or (age_s >= RETURN_S and not self.back)):
            self.a_member_comes_back(min(self.away))  # by then it has to be
        for channel in self.channels:
            self.bench.say(channel, m.Heartbeat())
        self._note(self.bench.pass_time(seconds))

    @precondition(lambda self: self.away)
    @rule(pick=st.integers(0, 2))
    def any_member_comes_back(self, pick: int) -> None:
        self.a_member_comes_back(sorted(self.away)[pick % len(self.away)])

    def a_member_comes_back(self, session: int) -> None:
        rank = self.away.pop(session)
        [restored] = [
            effect.message
            for effect in come_back(self.bench, session, rank)
            if isinstance(effect, Send) and isinstance(effect.message, m.Restored)
        ]
        assert restored.refused == (), "its rank was given away"
        self.channels.append(10 * session)
        self.back[session] = rank

    def _note(self, effects: list[Effect]) -> None:
        for connection, rank in ranks_told(effects).items():
            self.newcomers[connection] = rank

    @invariant()
    def a_rank_has_one_owner(self) -> None:
        owned = [rank for rank in self.newcomers.values() if rank is not None]
        everybody = [*owned, *self.back.values(), *self.away.values()]
        assert len(everybody) == len(set(everybody)), everybody


TestRestartedStore = RestartedStore.TestCase
