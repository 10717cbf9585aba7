"""Who takes part: what follows from what the store and the neighbours show, one situation per test, and a model."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from memfabric_hybrid.address_space.join_fact import JoinFact, host_key
from memfabric_hybrid.address_space.neighbour import Neighbour
from memfabric_hybrid.address_space.participants import UNPUBLISHED, Participants
from memfabric_hybrid.membership.roster import Effect, Joined, Left, Returned, Roster, Stamp
from support import pool_twins

GRACE_S = 3.0
UNHEARD = "it did not register with the store again"
OWN = 100  # our instance
HERE, THERE = "this host", "another host"


def participants() -> Participants:
    return Participants(0, OWN, HERE, 4, Roster(own_rank=0, grace_s=GRACE_S))


def fact(instance: int, generation: int = 1, host: str = HERE, pid: int = 4711) -> JoinFact:
    return pool_twins.join_fact(instance, host, generation, pid=pid)


def stamp(instance: int, generation: int = 1) -> Stamp:
    return Stamp(instance, generation)


# ---- ourselves ------------------------------------------------------------------------------------------------------


def test_we_are_in_view_while_we_take_part() -> None:
    known = participants()
    assert known.view() == (0, [])
    assert known.begin(7) == Stamp(OWN, 7)
    assert known.view() == (0, [0])
    assert known.stamps() == {0: Stamp(OWN, 7)}


def test_leaving_forgets_everybody() -> None:
    known = participants()
    known.begin(1)
    known.all_shown({1: fact(11), 2: fact(22)}, "life", now=0.0)
    known.attached(1, stamp(11))
    known.attached(2, stamp(22))
    known.lost(22, "its process died")
    assert known.is_proved(1, 11, b"secret of 11")
    assert known.clear() == [Left(1, "this process left")]
    assert (known.facts, known.gone, known.roster.present) == ({}, {}, {})
    assert known.is_proved(1, 11, b"secret of 11") is None


# ---- the store's word -----------------------------------------------------------------------------------------------


def test_neighbours_are_those_of_this_host() -> None:
    known = participants()
    known.all_shown({0: fact(OWN), 1: fact(11), 2: fact(22, host=THERE)}, "life", now=0.0)
    assert known.neighbours() == [Neighbour(1, 11, "exchange of 11")]
    assert [known.is_distant(rank) for rank in range(4)] == [False, False, True, False]


def test_a_rank_of_another_host_is_present_once_it_is_shown() -> None:
    known = participants()
    assert known.shown({1: fact(11), 2: fact(22, host=THERE)}) == [Joined(2)]
    assert known.hosts() == [[0], [2]]
    assert known.shown({2: fact(22, 2, host=THERE)}) == [Left(2, "it joined anew"), Joined(2)]
    assert known.shown({2: None}) == [Left(2, UNPUBLISHED)]


def test_a_rank_of_another_host_is_back_when_its_predecessor_here_is_gone() -> None:
    """The last words of that one came late, and nobody here can be asked for its successor."""
    known = participants()
    assert known.all_shown({1: fact(22, host=THERE)}, "life", now=0.0) == [Joined(1)]
    assert known.attached(1, stamp(11)) == [Left(1, "it joined anew"), Joined(1)]
    assert known.lost(11, "its process died") == [Left(1, "its process died"), Joined(1)]
    assert known.roster.present == {1: stamp(22)}
    assert known.gone == {}


def test_a_rank_of_another_host_that_is_shown_again_is_there() -> None:
    known = participants()
    known.shown({2: fact(22, host=THERE)})
    known.shown({2: None})
    assert known.shown({2: fact(22, host=THERE)}) == [Joined(2)], "and nobody is asked for it"


def test_all_of_one_host_says_nothing_of_the_others() -> None:
    known = participants()
    known.attached(3, stamp(33))  # shows itself before the store shows it
    known.shown({1: fact(11, host=THERE), 2: fact(22, host=THERE)})
    assert known.all_shown({}, "second life", 0.0, host_key(HERE)) == []
    assert (sorted(known.facts), known.roster.unheard) == ([1, 2], [3])
    assert known.all_shown({2: fact(22, host=THERE)}, "second life", 0.0, host_key(THERE)) == []
    assert (sorted(known.facts), known.roster.unheard) == ([2], [1, 3])
    assert known.tick(GRACE_S) == [Left(3, UNHEARD), Left(1, UNHEARD)]


def test_a_rank_that_came_again_elsewhere_is_not_gone_with_its_old_place() -> None:
    known = participants()
    known.shown({1: fact(11, host=THERE)})
    assert known.is_known_at(1, host_key(THERE))
    known.shown({1: fact(12, host="a third host")})
    assert not known.is_known_at(1, host_key(THERE))
    assert known.all_shown({}, "life", 0.0, host_key(THERE)) == []
    assert known.roster.unheard == []
    assert known.is_known_at(2, host_key(THERE)), "nothing else is known of it"


def test_hosts_are_in_the_order_of_their_lowest_rank() -> None:
    known = Participants(2, OWN, HERE, 5, Roster(own_rank=2, grace_s=GRACE_S))
    known.shown({0: fact(1, host=THERE), 1: fact(2), 4: fact(5, host=THERE)})
    known.attached(1, stamp(2))
    known.attached(3, stamp(4))  # which the store has not shown yet: who shows itself is of this host
    assert known.hosts() == [[0, 4], [1, 2, 3]]


def test_who_has_not_registered_again_is_still_on_its_host() -> None:
    """A store that was restarted shows nobody at first, and who is there goes on taking part."""
    known = participants()
    known.all_shown({1: fact(11, host=THERE), 2: fact(22), 3: fact(33, host=THERE)}, "life", 0.0)
    known.attached(2, stamp(22))
    assert known.all_shown({}, "second life", 0.0) == []
    assert known.facts == {}
    assert known.hosts() == [[0, 2], [1, 3]]
    assert known.all_shown({2: fact(22)}, "second life", 0.0, host_key(HERE)) == []
    assert known.roster.unheard == [1, 3], "of them another watch tells"
    known.attached(1, stamp(12))
    assert known.hosts() == [[0, 1, 2], [3]], "who shows itself has come again, on this host"


def test_the_store_shows_a_process_until_another_has_its_rank() -> None:
    known = participants()
    known.shown({1: fact(11)})
    assert known.shows(Neighbour(1, 11, ""))
    assert not known.shows(Neighbour(2, 11, ""))
    known.shown({1: fact(12)})
    assert not known.shows(Neighbour(1, 11, ""))
    known.shown({1: None})
    assert not known.shows(Neighbour(1, 12, ""))


def test_a_snapshot_replaces_what_was_shown() -> None:
    known = participants()
    known.shown({1: fact(11), 2: fact(22)})
    known.all_shown({2: fact(22), 3: fact(33)}, "life", now=0.0)
    assert sorted(known.facts) == [2, 3]


# ---- proofs ---------------------------------------------------------------------------------------------------------


def test_a_secret_proves_one_process() -> None:
    known = participants()
    assert known.is_proved(1, 11, b"secret of 11") is None, "the store has not said"
    known.shown({1: fact(11)})
    assert known.is_proved(1, 11, b"secret of 11") is True
    assert known.is_proved(1, 11, b"") is False
    assert known.is_proved(1, 12, b"secret of 12") is None, "another life, which the store may show soon"


def test_nobody_proves_to_be_us() -> None:
    known = participants()
    known.shown({0: fact(OWN)})
    assert known.is_proved(0, OWN, b"secret of %d" % OWN) is False
    assert known.is_proved(0, 11, b"") is False


def test_a_proof_outlives_the_stores_memory_but_not_the_process() -> None:
    known = participants()
    known.shown({1: fact(11)})
    known.is_proved(1, 11, b"secret of 11")
    known.shown({1: None})
    assert known.is_proved(1, 11, b"secret of 11") is True, "it withdraws after the store has forgotten it"
    assert known.is_proved(1, 11, b"guessed") is False
    known.forget_process(11)
    assert known.is_proved(1, 11, b"secret of 11") is None


# ---- coming and going -----------------------------------------------------------------------------------------------


def test_missing_are_those_who_have_not_come_or_are_gone() -> None:
    known = participants()
    assert known.missing() == [1, 2, 3]
    known.attached(1, stamp(11))
    known.attached(3, stamp(33))
    assert known.missing() == [2]
    known.lost(33, "its process died")
    assert known.missing() == [2, 3]
    assert known.gone == {3: "rank 3 is gone: its process died"}


def test_who_comes_back_is_not_gone() -> None:
    known = participants()
    known.attached(1, stamp(11))
    known.withdrawn(1, stamp(11), "of its own accord")
    assert known.gone == {1: "rank 1 is gone: it has left: of its own accord"}
    assert known.attached(1, stamp(11, 2)) == [Joined(1)]
    assert known.gone == {}


def test_what_is_heard_too_late_does_not_count() -> None:
    known = participants()
    known.attached(1, stamp(11))
    known.withdrawn(1, stamp(11), "")
    assert known.attached(1, stamp(11)) is None


def test_the_same_share_again_counts_and_changes_nothing() -> None:
    known = participants()
    known.attached(1, stamp(11))
    assert known.attached(1, stamp(11)) == []


def test_who_is_missed_is_gone_for_whoever_waits_but_not_over_a_better_reason() -> None:
    known = participants()
    known.missed(1, "its process died")
    assert known.gone == {1: "rank 1 is gone: its process died"}
    known.missed(1, "something else")
    assert known.gone == {1: "rank 1 is gone: its process died"}
    assert known.view()[1] == []


def test_a_process_of_another_user_is_refused_whichever_is_heard_first() -> None:
    """That it has connected, or which rank the store shows it at."""
    known = participants()
    known.begin(1)
    known.shown({1: fact(11, pid=77), 3: fact(33, pid=77, host=THERE)})
    known.shown({1: None})  # refused, so it leaves; perhaps before we hear that it has connected
    known.met_other_user(77, "it is not ours")
    known.met_other_user(88, "neither is this")
    assert known.refuse_other_users() == [(1, "it is not ours")]
    assert known.refuse_other_users() == []
    known.shown({2: fact(22, pid=88)})
    assert known.refuse_other_users() == [(2, "neither is this")]
    assert known.gone == {
        1: "rank 1 cannot be reached: it is not ours",
        2: "rank 2 cannot be reached: neither is this",
    }
    known.shown({1: fact(12)})
    known.attached(1, stamp(12))
    assert 1 not in known.gone, "somebody else came with that rank"


def test_who_is_here_is_not_refused() -> None:
    known = participants()
    known.begin(1)
    known.shown({1: fact(11, pid=77)})
    known.attached(1, stamp(11))
    known.met_other_user(77, "a process of another container that has the same number")
    assert known.refuse_other_users() == []
    assert known.gone == {}


def test_few_processes_of_other_users_are_remembered() -> None:
    known = participants()
    known.begin(1)
    for pid in range(1000):
        known.met_other_user(pid, "it is not ours")
    known.shown({1: fact(11, pid=0), 2: fact(22, pid=999)})
    assert known.refuse_other_users() == [(2, "it is not ours")]


def test_time_is_the_rosters() -> None:
    known = participants()
    known.all_shown({1: fact(11)}, "first life", now=0.0)
    known.attached(1, stamp(11))
    assert known.all_shown({}, "second life", now=1.0) == []
    assert known.tick(1.0 + GRACE_S) == [Left(1, "it did not register with the store again")]
    assert 1 in known.gone
    assert known.shown({1: fact(11)}) == [Returned(1)]


# ---- any order ------------------------------------------------------------------------------------------------------


class AnyOrder(RuleBasedStateMachine):
    """Whatever is heard in whichever order: the effects, the view and who is gone tell the same story."""

    ranks = st.integers(1, 3)
    instances = st.integers(11, 14)
    generations = st.integers(1, 3)
    hosts = st.sampled_from([HERE, THERE])

    def __init__(self) -> None:
        super().__init__()
        self.known = participants()
        self.present: set[int] = set()  # as the effects tell
        self.reasons: dict[int, str] = {}
        self.now = 0.0

    def hear(self, effects: list[Effect] | None) -> None:
        for effect in effects or []:
            if isinstance(effect, Joined):
                assert effect.rank not in self.present
                self.present.add(effect.rank)
                self.reasons.pop(effect.rank, None)
            elif isinstance(effect, Left):
                assert effect.rank in self.present
                self.present.remove(effect.rank)
                self.reasons[effect.rank] = effect.reason

    @rule(rank=ranks, instance=instances, generation=generations, host=hosts)
    def show(self, rank: int, instance: int, generation: int, host: str) -> None:
        self.hear(self.known.shown({rank: fact(instance, generation, host)}))

    @rule(rank=ranks)
    def show_no_more(self, rank: int) -> None:
        self.hear(self.known.shown({rank: None}))

    @rule(shown=st.dictionaries(ranks, st.tuples(instances, generations, hosts)), life=st.sampled_from("ab"))
    def show_all(self, shown: dict[int, tuple[int, int, str]], life: str) -> None:
        self.now += 1.0
        self.hear(self.known.all_shown({rank: fact(*what) for rank, what in shown.items()}, life, self.now))

    @rule(shown=st.dictionaries(ranks, st.tuples(instances, generations)), host=hosts, life=st.sampled_from("ab"))
    def show_all_of_one_host(self, shown: dict[int, tuple[int, int]], host: str, life: str) -> None:
        """What is known of others, and how long they are waited for, stays as it is."""
        self.now += 1.0
        others = {rank: one for rank, one in self.known.facts.items() if one.host != host and rank not in shown}
        facts = {rank: fact(instance, generation, host) for rank, (instance, generation) in shown.items()}
        unheard = set(self.known.roster.unheard)
        self.hear(self.known.all_shown(facts, life, self.now, host_key(host)))
        assert self.known.facts == {**others, **facts}
        assert not (set(self.known.roster.unheard) - unheard) & others.keys()

    @rule(rank=ranks, instance=instances, generation=generations)
    def attach(self, rank: int, instance: int, generation: int) -> None:
        effects = self.known.attached(rank, stamp(instance, generation))
        assert (effects is None) == (self.known.roster.present.get(rank) != stamp(instance, generation))
        self.hear(effects)

    @rule(rank=ranks, instance=instances, generation=generations)
    def withdraw(self, rank: int, instance: int, generation: int) -> None:
        self.hear(self.known.withdrawn(rank, stamp(instance, generation), ""))

    @rule(instance=instances)
    def lose(self, instance: int) -> None:
        self.hear(self.known.lost(instance, "its process died"))
        self.known.forget_process(instance)

    @rule(seconds=st.floats(0, 5))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.hear(self.known.tick(self.now))

    @rule()
    def leave(self) -> None:
        self.hear(self.known.clear())
        assert self.present == set()
        self.reasons.clear()

    @invariant()
    def effects_tell_the_truth(self) -> None:
        assert set(self.known.roster.present) == self.present
        assert self.known.missing() == sorted({1, 2, 3} - self.present)
        assert self.known.gone == {rank: f"rank {rank} is gone: {why}" for rank, why in self.reasons.items()}

    @invariant()
    def every_rank_is_on_one_host(self) -> None:
        assert sorted(rank for ranks in self.known.hosts() for rank in ranks) == sorted({0, *self.present})


TestAnyOrder = AnyOrder.TestCase
