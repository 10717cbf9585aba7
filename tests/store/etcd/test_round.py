"""A rendezvous as one rank follows it: complete at the first moment at which all are there, whatever happens next."""

from __future__ import annotations

import pytest

from memfabric_hybrid.errors import NotConnected, TimedOut
from memfabric_hybrid.store.etcd.round import Arrival, Round


def here(data: bytes = b"", size: int = 3) -> Arrival:
    return Arrival(size, 1, False, data)


def test_complete_when_all_are_there_and_for_good() -> None:
    round = Round("g", 0, 3)
    round.start({1: here(b"1")}, set())
    round.changed(0, here(b"0"))
    assert not round.is_complete
    round.changed(2, here(b"2"))
    for rank in range(3):
        round.changed(rank, None)
        round.claim_ended(rank)
    assert (round.is_complete, round.parts) == (True, [b"0", b"1", b"2"])


def test_never_all_at_the_same_time() -> None:
    round = Round("g", 0, 3)
    round.start({0: here(), 1: here()}, set())
    round.changed(1, None)
    round.changed(2, here())
    round.changed(0, Arrival(3, 1, True, b""))
    round.changed(1, here())
    assert not round.is_complete
    with pytest.raises(
        TimedOut, match=r"^gather 'g' round 0: 0 of 3 .* within 1\.00 s:  \(arrived, but gave up before: 0\)"
    ):
        raise round.failure(1.0)


def test_other_sizes_are_other_rounds() -> None:
    round = Round("g", 0, 2)
    round.start({0: here(size=2), 1: here(size=3)}, set())
    assert not round.is_complete


def test_a_rank_that_ends_before_it_arrives() -> None:
    round = Round("g", 4, 3)
    round.start({0: here(), 1: here()}, {1, 2})
    round.claim_ended(1)
    assert round.lost is None, "it is here"
    round.claim_ended(7)
    assert round.lost is None, "it has no part in this"
    round.claim_ended(2)
    with pytest.raises(NotConnected, match="gather 'g' round 4: rank 2 left or died before all had arrived"):
        raise round.failure(1.0)


def test_a_rank_that_arrived_and_ends() -> None:
    """The keys of one lease vanish one after the other."""
    round = Round("g", 4, 3)
    round.start({0: here(), 1: here()}, {1, 2})
    round.claim_ended(1)
    round.changed(1, here())
    assert round.lost is None, "it is here"
    round.changed(1, None)
    assert round.lost == 1


def test_a_rank_that_arrived_and_is_claimed_again() -> None:
    round = Round("g", 4, 3)
    round.start({0: here(), 1: here()}, {1, 2})
    round.claim_ended(1)
    round.claimed(1)
    round.changed(1, None)
    assert round.lost is None


def test_a_claim_that_ended_while_nothing_could_be_heard() -> None:
    round = Round("g", 0, 2)
    round.start({0: here(size=2)}, {0, 1})
    round.start({0: here(size=2)}, {0})
    assert round.lost == 1
