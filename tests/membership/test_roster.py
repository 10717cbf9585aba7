"""The roster's decisions, one situation per test. What random interleavings do to it is in the properties' file."""

from __future__ import annotations

import pytest

from memfabric_hybrid.membership.roster import MOST_WITHDRAWN, Joined, Left, Returned, Roster, Stamp

GRACE_S = 3.0
ALICE, BOB = Stamp(instance=11, generation=1), Stamp(instance=22, generation=1)
ALICE_AGAIN = Stamp(instance=11, generation=2)


def roster() -> Roster:
    return Roster(own_rank=0, grace_s=GRACE_S)


def with_alice(published: bool = True) -> Roster:
    """Rank 1 is Alice's, seen by both sources (or by the exchange only)."""
    made = roster()
    made.snapshot({}, "first", now=0.0)
    if published:
        made.published(1, ALICE)
    made.attached(1, ALICE)
    return made


def reason(effects: list[object]) -> str:
    (left,) = effects
    assert isinstance(left, Left)
    return left.reason


def test_member_is_present_when_attached_not_when_published() -> None:
    made = roster()
    assert made.published(1, ALICE) == []
    assert made.present == {}
    assert made.attached(1, ALICE) == [Joined(1)]
    assert made.present == {1: ALICE}


def test_attaching_the_same_life_again_changes_nothing() -> None:
    made = with_alice()
    epoch = made.epoch
    assert made.attached(1, ALICE) == []
    assert made.epoch == epoch


def test_every_change_numbers_a_new_view() -> None:
    made = with_alice()
    assert made.epoch == 1
    made.attached(2, BOB)
    made.lost(BOB.instance, "died")
    assert made.epoch == 3


def test_new_participation_ends_the_one_before() -> None:
    made = with_alice()
    left, joined = made.attached(1, ALICE_AGAIN)
    assert left == Left(1, "it joined anew")
    assert joined == Joined(1)
    assert made.present == {1: ALICE_AGAIN}


def test_unpublished_rank_is_gone() -> None:
    made = with_alice()
    assert reason(made.unpublished(1, "silent")) == "silent"
    assert made.present == {}


def test_rank_nobody_knows_can_be_unpublished() -> None:
    assert roster().unpublished(5, "silent") == []


def test_own_rank_is_not_a_member_of_ones_own_roster() -> None:
    made = roster()
    assert made.published(0, ALICE) == []
    assert made.unpublished(0, "silent") == []


def test_lost_process_takes_all_its_ranks_along() -> None:
    made = with_alice()
    assert reason(made.lost(ALICE.instance, "its process died")) == "its process died"
    assert made.lost(ALICE.instance, "died") == [], "a death is told once"


def test_lost_stranger_changes_nothing() -> None:
    assert with_alice().lost(99, "died") == []


def test_withdrawal_names_the_participation_it_ends() -> None:
    made = with_alice()
    assert reason(made.withdrawn(1, ALICE)) == "it has left"
    assert made.withdrawn(1, ALICE) == []


# ---- late words about earlier lives ---------------------------------------------------------------------------------


def test_late_unpublish_of_the_dead_does_not_touch_the_successor() -> None:
    made = with_alice()
    made.lost(ALICE.instance, "died")
    made.attached(1, BOB)
    assert made.unpublished(1, "silent") == []
    assert made.present == {1: BOB}


def test_late_publication_of_the_dead_does_not_touch_the_successor() -> None:
    """The successor's own offer can overtake the store's news about the one before it."""
    made = roster()
    made.attached(1, BOB)
    assert made.published(1, ALICE) == []
    assert made.unpublished(1, "silent") == []
    assert made.published(1, BOB) == []
    assert made.present == {1: BOB}


def test_late_withdrawal_does_not_touch_the_next_participation() -> None:
    made = with_alice()
    made.attached(1, ALICE_AGAIN)
    assert made.withdrawn(1, ALICE) == []
    assert made.present == {1: ALICE_AGAIN}


def test_late_loss_of_the_dead_does_not_touch_the_successor() -> None:
    made = with_alice()
    made.attached(1, BOB)
    assert made.lost(ALICE.instance, "died") == []
    assert made.present == {1: BOB}


def test_answer_read_after_the_withdrawal_brings_nobody_back() -> None:
    made = roster()
    made.withdrawn(1, ALICE)
    assert made.attached(1, ALICE) == []
    assert made.present == {}
    assert made.attached(1, ALICE_AGAIN) == [Joined(1)]


def test_answer_from_an_earlier_participation_does_not_end_the_present_one() -> None:
    made = with_alice()
    made.attached(1, ALICE_AGAIN)
    assert made.attached(1, ALICE) == []
    assert made.present == {1: ALICE_AGAIN}


def test_rank_shown_with_another_process_is_taken_over() -> None:
    made = with_alice()
    assert reason(made.published(1, BOB)) == "it was taken over by another process"


def test_next_participation_of_the_same_process_does_not_end_the_present_one_before_it_is_attached() -> None:
    made = with_alice()
    assert made.published(1, ALICE_AGAIN) == []
    assert made.present == {1: ALICE}


# ---- the store comes back -------------------------------------------------------------------------------------------


def test_same_store_without_the_rank_means_nothing_yet() -> None:
    """All were cut off from the store for long; we are the first to be back."""
    made = with_alice()
    assert made.snapshot({}, "first", now=1.0) == []
    assert made.present == {1: ALICE}
    assert made.published(1, ALICE) == []
    assert made.tick(100.0) == []
    assert made.present == {1: ALICE}


def test_rank_that_the_same_store_shows_no_more_is_gone_after_the_grace() -> None:
    made = with_alice()
    made.snapshot({}, "first", now=1.0)
    assert reason(made.tick(1.0 + GRACE_S)) == "it did not register with the store again"
    assert made.published(1, ALICE) == [Returned(1)]


def test_same_store_without_a_rank_it_never_showed_means_nothing_yet() -> None:
    made = with_alice(published=False)
    assert made.snapshot({}, "first", now=1.0) == []
    assert made.present == {1: ALICE}
    assert len(made.tick(1.0 + GRACE_S)) == 1, "but it has to show it in time"


def test_restarted_store_gets_grace_to_hear_from_the_members() -> None:
    made = with_alice()
    assert made.snapshot({}, "second", now=10.0) == []
    assert made.waits_for_time
    assert made.tick(10.0 + GRACE_S - 0.1) == []
    assert reason(made.tick(10.0 + GRACE_S)) == "it did not register with the store again"
    assert not made.waits_for_time


def test_member_that_registers_in_time_stays() -> None:
    made = with_alice()
    made.snapshot({}, "second", now=10.0)
    assert made.published(1, ALICE) == []
    assert not made.waits_for_time
    assert made.tick(100.0) == []
    assert made.present == {1: ALICE}


def test_second_restart_does_not_prolong_the_grace() -> None:
    made = with_alice()
    made.snapshot({}, "second", now=10.0)
    made.snapshot({}, "third", now=12.0)
    assert len(made.tick(10.0 + GRACE_S)) == 1


def test_a_store_that_is_lost_again_has_heard_nobody() -> None:
    """Who could not register there while it was away gets the whole time when it is back."""
    made = with_alice()
    made.snapshot({}, "second", now=10.0)
    assert made.shown_by is None
    made.store_lost()
    assert not made.waits_for_time
    assert made.shown_by is None, "nobody knows what it shows"
    assert made.tick(100.0) == []
    made.snapshot({}, "third", now=100.0)
    assert not made.is_overdue(100.0 + GRACE_S - 0.1)
    assert made.is_overdue(100.0 + GRACE_S)
    made.wait_longer(100.0 + GRACE_S)
    assert made.tick(100.0 + GRACE_S) == []
    assert len(made.tick(100.0 + 2 * GRACE_S)) == 1


def test_grace_of_the_dead_does_not_end_the_successor() -> None:
    made = with_alice()
    made.snapshot({}, "second", now=10.0)
    made.attached(1, BOB)
    assert made.tick(100.0) == []
    assert made.present == {1: BOB}


def test_snapshot_shows_who_was_taken_over() -> None:
    made = with_alice()
    assert reason(made.snapshot({1: BOB}, "second", now=1.0)) == "it was taken over by another process"


def test_rank_that_was_given_up_and_is_shown_again_has_to_be_asked() -> None:
    """A stopped process goes on: the store takes its word back, and nobody has our memory mapped any more."""
    made = with_alice()
    made.unpublished(1, "silent")
    assert made.published(1, ALICE) == [Returned(1)]
    assert made.published(1, ALICE) == [], "once is enough"
    assert made.attached(1, ALICE) == [Joined(1)]


def test_newcomer_is_not_asked_it_comes_by_itself() -> None:
    made = with_alice()
    made.unpublished(1, "silent")
    assert made.published(1, BOB) == []


def test_leaving_forgets_everybody_and_everything() -> None:
    made = with_alice()
    made.snapshot({}, "second", now=1.0)
    assert reason(made.clear()) == "this process left"
    assert made.present == {}
    assert not made.waits_for_time
    assert made.unpublished(1, "silent") == []


def test_last_words_of_an_earlier_life_do_not_hide_its_successor() -> None:
    """They can be read after the successor's first ones, and before the store's: it is asked for again."""
    made = with_alice()
    assert made.attached(1, BOB) == [Left(1, "it joined anew"), Joined(1)]
    made.attached(1, ALICE)
    effects = made.lost(ALICE.instance, "its process died")
    effects += made.unpublished(1, "its process died")
    effects += made.published(1, BOB)
    assert effects == [Left(1, "its process died"), Returned(1)]
    assert made.attached(1, BOB) == [Joined(1)]
    assert made.present == {1: BOB}


@pytest.mark.parametrize("is_unpublished", [True, False])
def test_last_words_of_an_earlier_life_count_no_more_once_the_store_has_shown_its_successor(
    is_unpublished: bool,
) -> None:
    made = with_alice()
    if is_unpublished:
        made.unpublished(1, "its process died")
    made.published(1, BOB)
    assert made.attached(1, BOB) == [Joined(1)]
    assert made.attached(1, ALICE) == []
    assert made.lost(ALICE.instance, "its process died") == []
    assert made.present == {1: BOB}


def test_an_earlier_life_that_the_store_shows_again_counts_again() -> None:
    made = with_alice()
    made.published(1, BOB)
    made.published(1, ALICE)
    assert made.attached(1, BOB) == []
    assert made.attached(1, ALICE) == [Joined(1)]


def test_who_gets_its_rank_back_is_asked_again_though_others_had_it_meanwhile() -> None:
    made = with_alice()
    made.unpublished(1, "it was silent")
    made.published(1, BOB)
    assert made.attached(1, BOB) == [Joined(1)]
    assert made.unpublished(1, "it left") == [Left(1, "it left")]
    assert made.attached(1, ALICE) == [], "the store has not taken back what it said of her"
    assert made.published(1, ALICE) == [Returned(1)]
    assert made.attached(1, ALICE) == [Joined(1)]


def test_who_has_left_and_died_does_not_come_back_by_earlier_words() -> None:
    """They came on another connection than the end of its process did, and are acted upon later."""
    made = with_alice()
    assert made.withdrawn(1, ALICE) == [Left(1, "it has left")]
    assert made.lost(ALICE.instance, "its process died") == []
    assert made.attached(1, ALICE) == []
    assert made.present == {}


def test_only_so_many_last_words_are_remembered() -> None:
    made = Roster(own_rank=0, grace_s=GRACE_S)
    for instance in range(2 * MOST_WITHDRAWN):
        made.withdrawn(1, Stamp(instance, 1))
        made.withdrawn(2, ALICE)
    assert made.attached(1, Stamp(2 * MOST_WITHDRAWN - 1, 1)) == []
    assert made.attached(2, ALICE) == []
    assert made.attached(1, Stamp(0, 1)) == [Joined(1)], "long ago"
