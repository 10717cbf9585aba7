"""Offer, Accept and Withdraw between twins of one host."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from memfabric_hybrid.address_space.exchange import Wait
from memfabric_hybrid.address_space.layout import MIB, Layout
from memfabric_hybrid.address_space.messages import Accept, Done, NotHere, Offer, Refuse, SegmentFact, Share, Withdraw
from memfabric_hybrid.address_space.node import Node
from memfabric_hybrid.address_space.pool import Pool
from memfabric_hybrid.address_space.pool_spec import PoolSpec
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import InvalidParam, MallocFailed, NoResources, NotConnected, TimedOut
from memfabric_hybrid.machine.peer_credentials import OtherUser
from support.pool_twins import SPEC, TwinHost, TwinNode, pool
from support.threads import wait_until


@pytest.fixture
def node(host: TwinHost) -> TwinNode:
    return host.node(0)


@pytest.fixture
def other(host: TwinHost) -> TwinNode:
    """A neighbour that has joined."""
    other = host.node(1)
    pool(other).join(Deadline(5))
    return other


@pytest.fixture
def joined(node: TwinNode, other: TwinNode) -> Pool:
    """Ours, which has joined, too."""
    joined = pool(node)
    joined.join(Deadline(5))
    return joined


def share_of(node: TwinNode, generation: int = 1 << 40) -> Share:
    """One that comes next; its segment is no file."""
    return Share(
        node.member.rank, node.member.instance, generation, 4711, 4 * MIB, 0, "", 1, (SegmentFact(0, 0, 2 * MIB),)
    )


# ---- asking ---------------------------------------------------------------------------------------------------------


def test_an_offer_is_accepted_with_the_others_share(joined: Pool, other: TwinNode) -> None:
    assert joined.group.view()[1] == [0, 1]
    assert other.pools[0].group.view()[1] == [0, 1]


def test_a_refusal_is_what_the_offer_raises(node: TwinNode, other: TwinNode) -> None:
    different = pool(node, spec=PoolSpec(SPEC.name, SPEC.title, Layout(4, 2 * MIB, 2 * MIB)))
    with pytest.raises(InvalidParam, match="all ranks must pass the same"):
        different.join(Deadline(5))


def test_who_is_alive_and_does_not_answer_is_named(joined: Pool, other: TwinNode) -> None:
    other.is_silent = True
    with pytest.raises(TimedOut, match=r"bm object 7: ranks \[1\] of this host did not take our memory within 0.05 s"):
        joined._protocol.offer(Deadline(0.05))


def test_who_is_dead_and_does_not_answer_is_not_named(joined: Pool, node: TwinNode, other: TwinNode) -> None:
    other.is_silent = True
    node.exchange.while_asking = node.exchange.links.clear
    joined._protocol.offer(Deadline(0.05))


def test_who_dies_after_its_answer_stays_dead(node: TwinNode, other: TwinNode) -> None:
    """The exchange has told us of its end already: nobody will tell again."""
    ours = pool(node)
    node.exchange.while_asking = node.exchange.links.clear
    ours.join(Deadline(5))
    assert ours.group.view()[1] == [0]


def test_who_answers_speaks_for_itself_only(
    node: TwinNode, other: TwinNode, capsys: pytest.CaptureFixture[str]
) -> None:
    def pretend(request: object, fds: object) -> tuple[Accept, tuple[int, ...]]:
        return Accept(Share(2, other.member.instance, 1, 4711, 4 * MIB, 0, "", 1, ())), ()

    other.handle = pretend  # type: ignore[method-assign, assignment]
    ours = pool(node)
    ours.join(Deadline(5))
    assert ours.group.view()[1] == [0]
    assert "rank 1 answered with a share of rank 2, which is ignored" in capsys.readouterr().err


def test_a_withdrawal_goes_to_those_who_have_something_of_ours(
    joined: Pool, host: TwinHost, node: TwinNode, other: TwinNode
) -> None:
    newcomer = host.node(2)
    newcomer.is_silent = True
    pool(newcomer).join(Deadline(5))
    wait_until(lambda: len(joined.group.neighbours()) == 2)
    node.exchange.links.discard(newcomer.member.instance)
    joined.leave(Deadline(5), "of our own accord")
    request, ranks = node.exchange.asked[-1]
    assert isinstance(request, Withdraw)
    assert ranks == [1]
    assert other.pools[0].group.gone() == {0: "rank 0 is gone: it has left: of our own accord"}


def test_an_end_does_not_fail_for_want_of_descriptors(
    joined: Pool, node: TwinNode, capsys: pytest.CaptureFixture[str]
) -> None:
    node.exchange.failure = NoResources("no descriptor")
    joined.leave(Deadline(5))
    assert not joined.joined
    assert "the neighbours did not hear that we leave: no descriptor" in capsys.readouterr().err


# ---- answering ------------------------------------------------------------------------------------------------------


def test_who_does_not_take_part_says_so(node: TwinNode, other: TwinNode) -> None:
    ours = pool(node)
    assert ours.handle(Offer(SPEC.name, share_of(other), b""), ()) == (NotHere(), ())


def test_who_is_not_shown_yet_has_to_wait(joined: Pool, host: TwinHost) -> None:
    newcomer = host.node(3)
    assert joined.handle(Offer(SPEC.name, share_of(newcomer), b""), ()) is Wait.FOR_THE_STORE
    assert joined.handle(Withdraw(SPEC.name, 3, 4711, 1), ()) == (Done(), ()), "of whom we never knew"


def test_who_comes_while_copies_run_in_its_place_has_to_wait(joined: Pool, other: TwinNode) -> None:
    offer = Offer(SPEC.name, share_of(other), other.member.secret)
    joined._space.is_busy = True  # type: ignore[attr-defined]
    assert joined.handle(offer, (99,)) is Wait.FOR_COPIES
    joined._space.is_busy = False  # type: ignore[attr-defined]
    decided = joined.handle(offer, (99,))
    assert not isinstance(decided, Wait)
    for fd in decided[1]:
        os.close(fd)


def test_who_cannot_prove_itself_is_refused(joined: Pool, other: TwinNode) -> None:
    with pytest.raises(NotConnected, match="a process claims to be rank 1 and cannot prove it"):
        joined.handle(Withdraw(SPEC.name, 1, *joined.group.stamps()[1], "", b"guessed"), ())
    assert joined.group.view()[1] == [0, 1]


def test_the_descriptors_of_an_acceptance_are_the_callers(joined: Pool, other: TwinNode) -> None:
    decided = joined.handle(Offer(SPEC.name, share_of(other), other.member.secret), (99,))
    assert not isinstance(decided, Wait)
    answer, fds = decided
    assert isinstance(answer, Accept)
    assert answer.share.segments == (SegmentFact(0, 0, 2 * MIB),)
    for fd in fds:
        os.close(fd)


def test_who_is_refused_gets_no_descriptors(joined: Pool, other: TwinNode) -> None:
    """The leak check after the test counts them."""
    joined._space.refusal = MallocFailed("no room")  # type: ignore[attr-defined]
    with pytest.raises(MallocFailed):
        joined.handle(Offer(SPEC.name, share_of(other), other.member.secret), (99,))


def test_who_asks_in_the_moment_in_which_we_leave_gets_nothing(
    joined: Pool, other: TwinNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    drain = joined._space._drain

    def leave_first(rank: int) -> None:
        drain(rank)
        joined.group.stop()

    monkeypatch.setattr(joined._space, "_drain", leave_first)
    assert joined.handle(Offer(SPEC.name, share_of(other), other.member.secret), (99,)) == (NotHere(), ())
    assert joined.group.stamps()[1].generation < 1 << 40


def test_process_of_another_user_is_refused_once_it_has_proved_its_rank(
    joined: Pool, other: TwinNode, host: TwinHost
) -> None:
    stranger, newcomer = OtherUser(4711, 12345), host.node(3)
    assert joined.handle(Offer(SPEC.name, share_of(newcomer), b""), (), stranger) is Wait.FOR_THE_STORE
    with pytest.raises(NotConnected, match=r"rank 0 refuses: .*not user 12345; run both as the same user"):
        joined.handle(Offer(SPEC.name, share_of(other), other.member.secret), (), stranger)
    assert joined.group.view()[1] == [0, 1], "who is here stays"
    assert joined.group.gone() == {}


def test_process_of_another_user_is_refused_also_when_we_have_left_on_its_account(
    joined: Pool, other: TwinNode
) -> None:
    """Otherwise it would wait for us until its time-out, and never learn why."""
    stranger, offer = OtherUser(4711, 12345), Offer(SPEC.name, share_of(other), other.member.secret)
    joined.group.stop()
    assert joined.handle(offer, ()) == (NotHere(), ())
    with pytest.raises(NotConnected, match="not user 12345; run both as the same user"):
        joined.handle(offer, (), stranger)
    without_objects: Any = SimpleNamespace(_lock=threading.Lock(), _pools={})
    assert Node._handle(without_objects, offer, (), None) == (NotHere(), ())
    answer, _ = Node._handle(without_objects, offer, (), stranger)  # type: ignore[misc]
    assert isinstance(answer, Refuse)
    assert "not user 12345; run both as the same user" in answer.sentence
