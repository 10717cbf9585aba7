"""The life of an object between twins of one host; with real memory and real processes it is in the tests of bm."""

from __future__ import annotations

from typing import Any

import pytest

from memfabric_hybrid import clock
from memfabric_hybrid.address_space import join_fact
from memfabric_hybrid.address_space.layout import MIB, Tier
from memfabric_hybrid.address_space.messages import Offer
from memfabric_hybrid.address_space.pool import REANNOUNCE_PAUSE_S, Pool
from memfabric_hybrid.address_space.segments import Placement
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import Code, InvalidParam, NoResources, NotConnected, NotStarted, TimedOut
from memfabric_hybrid.membership.roster import Joined, Left
from memfabric_hybrid.store import FAREWELL_S, Refusal, WatchUpdate
from support.pool_twins import SPEC, TwinHost, TwinNode, TwinOwner, TwinSpace, pool
from support.threads import Beside, wait_until


@pytest.fixture
def node(host: TwinHost) -> TwinNode:
    return host.node(0)


@pytest.fixture
def owner() -> TwinOwner:
    return TwinOwner()


@pytest.fixture
def made(node: TwinNode, owner: TwinOwner) -> Pool:
    return pool(node, owner)


@pytest.fixture
def neighbour(host: TwinHost) -> Pool:
    """Of rank 1; it has joined."""
    neighbour = pool(host.node(1))
    neighbour.join(Deadline(5))
    return neighbour


def space_of(pool: Pool) -> TwinSpace:
    space: Any = pool._space
    return space


def published(node: TwinNode) -> list[str]:
    keys = node.member.store.prefix(f"{SPEC.name}/", deadline=Deadline(5)).entries
    return sorted(key.replace(f"/{join_fact.host_key(node.member.host)}/", "/") for key in keys)


# ---- joining and leaving --------------------------------------------------------------------------------------------


def test_join_and_leave(made: Pool, node: TwinNode, owner: TwinOwner, neighbour: Pool) -> None:
    made.join(Deadline(5))
    assert made.joined
    assert space_of(made).is_open
    assert published(node) == ["bm/7/0", "bm/7/1"]
    assert made.group.view()[1] == neighbour.group.view()[1] == [0, 1]
    made.join(Deadline(5))  # again: nothing happens
    made.leave(Deadline(5), "why not")
    assert not made.joined
    assert not space_of(made).is_open
    assert published(node) == ["bm/7/1"]
    assert made.group.view()[1] == []
    assert neighbour.group.gone() == {0: "rank 0 is gone: it has left: why not"}
    node.notices.run()
    assert owner.changes == [Joined(1), Left(1, "this process left")]


@pytest.mark.parametrize(("is_away", "farewell_s"), [(True, 0.2), (False, FAREWELL_S)])
def test_a_join_that_fails_waits_once_more_only_for_a_store_that_is_there(
    made: Pool, node: TwinNode, monkeypatch: pytest.MonkeyPatch, is_away: bool, farewell_s: float
) -> None:
    waits: list[float] = []

    def fail(*_: object, deadline: Deadline, **__: object) -> None:
        waits.append(deadline.timeout_s)
        raise TimedOut("the store does not answer")

    monkeypatch.setattr(node.member.store, "set", fail)
    monkeypatch.setattr(node.member.store, "delete", fail)
    node.store_is_away = is_away
    with pytest.raises(TimedOut):
        made.join(Deadline(5))
    assert waits[0] == 5
    assert waits[1] <= farewell_s


def test_every_join_has_a_number_of_its_own(made: Pool, neighbour: Pool) -> None:
    made.join(Deadline(5))
    first = made.group.own_stamp()
    made.leave(Deadline(5))
    made.join(Deadline(5))
    assert made.group.own_stamp() > first
    assert neighbour.group.stamps()[0] == made.group.own_stamp()


def test_there_is_nothing_to_leave_before_join(made: Pool) -> None:
    with pytest.raises(NotStarted, match="bm object 7 has not joined"):
        made.leave(Deadline(5))


def test_a_join_that_fails_leaves_nothing_behind(made: Pool, node: TwinNode, neighbour: Pool) -> None:
    node.exchange.failure = NoResources("no descriptor")
    with pytest.raises(NoResources):
        made.join(Deadline(5))
    assert not made.joined
    assert not space_of(made).is_open
    assert published(node) == ["bm/7/1"]
    made.join(Deadline(5))


def test_a_node_that_has_failed_lets_nobody_join(made: Pool, node: TwinNode) -> None:
    node.failure = NotConnected("nobody would notice deaths")
    with pytest.raises(NotConnected):
        made.join(Deadline(5))
    assert published(node) == []


def test_leave_ends_a_join_that_is_under_way(made: Pool, node: TwinNode, neighbour: Pool) -> None:
    leaving: list[Beside[None]] = []

    def leave_now() -> None:
        node.exchange.while_asking = lambda: None
        leaving.append(Beside(lambda: made.leave(Deadline(5))))
        wait_until(lambda: made.group._called_off is not None)

    node.exchange.while_asking = leave_now
    with pytest.raises(NotStarted, match="bm object 7 was left while join"):
        made.join(Deadline(5))
    leaving[0].result()
    assert not made.joined
    made.join(Deadline(5))
    assert space_of(made).is_open


# ---- extending ------------------------------------------------------------------------------------------------------


def test_what_is_added_is_offered_before_it_is_published(made: Pool, node: TwinNode, neighbour: Pool) -> None:
    made.join(Deadline(5))
    seen: list[int] = []
    node.exchange.while_asking = lambda: seen.append(neighbour.group._participants.facts[0].dram_bytes)
    made.extend(Tier.DRAM, 2 * MIB, Placement(), Deadline(5))
    assert seen == [2 * MIB]
    assert space_of(neighbour).mapped[0, 0] == 4 * MIB
    wait_until(lambda: neighbour.group._participants.facts[0].dram_bytes == 4 * MIB)


def test_memory_may_be_added_before_join(made: Pool, node: TwinNode, neighbour: Pool) -> None:
    made.extend(Tier.DRAM, 2 * MIB, Placement(), Deadline(5))
    assert node.exchange.asked == []
    made.join(Deadline(5))
    assert space_of(neighbour).mapped[0, 0] == 4 * MIB


# ---- the end --------------------------------------------------------------------------------------------------------


def test_destroy_takes_everything_back(made: Pool, node: TwinNode, neighbour: Pool) -> None:
    made.join(Deadline(5))
    made.destroy(Deadline(5), "enough")
    assert node.pools == []
    assert published(node) == ["bm/7/1"]
    assert space_of(made).done[-1] == ("close",)
    assert neighbour.group.gone() == {0: "rank 0 is gone: it has left: enough"}
    made.destroy(Deadline(5))  # again: nothing happens
    with pytest.raises(InvalidParam, match="bm object 7 is destroyed"):
        made.join(Deadline(5))


def test_destroy_ends_a_join_that_is_under_way(made: Pool, node: TwinNode, neighbour: Pool) -> None:
    destroying: list[Beside[None]] = []

    def destroy_now() -> None:
        destroying.append(Beside(lambda: made.destroy(Deadline(5))))
        wait_until(lambda: made.destroyed)

    node.exchange.while_asking = destroy_now
    with pytest.raises(InvalidParam, match="bm object 7 was destroyed meanwhile"):
        made.join(Deadline(5))
    destroying[0].result()
    assert not space_of(made).is_open
    assert node.pools == []


def test_destroy_leaves_the_end_to_a_call_that_hangs(
    made: Pool, node: TwinNode, neighbour: Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    node.exchange.while_asking = lambda: Beside(lambda: made.destroy(Deadline(0.05))).result()
    with pytest.raises(InvalidParam):
        made.join(Deadline(5))
    assert node.pools == [], "whoever had the turn has ended it"
    assert "the object's memory is freed when that call returns" in capsys.readouterr().err


def test_a_forked_child_ends_nothing_of_its_parent(made: Pool, node: TwinNode) -> None:
    made.abandoned = True
    made.destroy(Deadline(5))
    assert node.pools == [made]
    made.abandoned = False


# ---- after a silence ------------------------------------------------------------------------------------------------


def test_a_store_that_comes_back_makes_us_offer_again(made: Pool, node: TwinNode, neighbour: Pool) -> None:
    made.join(Deadline(5))
    neighbour.group.lost(node.member.instance)
    node.reannouncements.post(made.reannounce)
    node.reannouncements.run()
    assert neighbour.group.view()[1] == [0, 1]
    assert isinstance(node.exchange.asked[-1][0], Offer)


def test_what_cannot_be_offered_again_is_tried_anew(
    made: Pool, node: TwinNode, neighbour: Pool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made.join(Deadline(5))
    node.exchange.failure = NoResources("no descriptor")
    made.reannounce()
    assert "could not be offered again, which is tried anew soon: no descriptor" in capsys.readouterr().err
    assert node.exchange.ticks > 0
    assert made.on_tick()
    assert node.reannouncements.calls == []
    later = clock.now() + REANNOUNCE_PAUSE_S
    monkeypatch.setattr(clock, "now", lambda: later)
    assert not made.on_tick()
    assert len(node.reannouncements.calls) == 1


def test_who_has_not_registered_is_gone_only_if_the_store_could_hear_it(
    made: Pool, node: TwinNode, neighbour: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.join(Deadline(5))
    neighbour.join(Deadline(5))
    rank, now = neighbour._node.member.rank, [clock.now()]
    monkeypatch.setattr(clock, "now", lambda: now[0])
    node.reannouncements.calls.clear()
    made._on_update(WatchUpdate(True, "another life", 1, {}), None)
    node.reannouncements.calls.clear()  # our own offer
    store_answers = [False, True]

    def catch_up(deadline: Deadline) -> None:
        if not store_answers.pop(0):
            raise TimedOut("it stands still")

    monkeypatch.setattr(made._publication, "catch_up", catch_up)
    for is_heard in list(store_answers):
        now[0] += 100
        made.on_tick()
        made.on_tick()
        [judge] = node.reannouncements.calls  # asked once
        node.reannouncements.calls.clear()
        judge()
        assert (rank in made.group.view()[1]) is not is_heard
    assert "did not register with the store again" in made.group.gone()[rank]


def test_what_is_due_does_not_wait_for_copies(
    made: Pool, node: TwinNode, neighbour: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies that keep a dead neighbour's memory busy: its successor must not wait for our offer."""
    made.join(Deadline(5))
    node.exchange.failure = NoResources("no descriptor")
    made.reannounce()
    space_of(made).is_busy = True
    made.group.lost(neighbour._node.member.instance)
    later = clock.now() + REANNOUNCE_PAUSE_S
    monkeypatch.setattr(clock, "now", lambda: later)
    assert made.on_tick(), "memory is still to be collected"
    assert len(node.reannouncements.calls) == 1


def test_nothing_is_offered_again_without_a_join(made: Pool, node: TwinNode, neighbour: Pool) -> None:
    made.reannounce()
    assert node.exchange.asked == []
    made.destroy(Deadline(5))
    made.reannounce()
    assert node.exchange.asked == []


def test_whoever_lost_its_rank_shuts_itself(
    made: Pool, node: TwinNode, owner: TwinOwner, neighbour: Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    made.join(Deadline(5))
    refused = [
        Refusal("key", join_fact.key("bm/7", node.member.host, 0), -2006, "it belongs to another"),
        Refusal("key", "shm-7/5", -2006, "it belongs to another"),
    ]
    made.on_refused(refused)
    assert not space_of(made).is_open
    sentence = "this process was declared dead and lost its rank: it belongs to another"
    assert space_of(made).done[-1] == ("shut", int(Code.NOT_CONNECTED), f"bm object 7: {sentence}")
    assert owner.told[-2:] == [("gone", 0, sentence), ("refused", ["shm-7/5"])]
    assert sentence in capsys.readouterr().err
    asked = len(node.exchange.asked)
    made.reannounce()
    assert len(node.exchange.asked) == asked, "it has nothing to offer any more"


def test_whoever_loses_its_rank_while_it_joins_does_not_join(made: Pool, node: TwinNode, neighbour: Pool) -> None:
    node.exchange.while_asking = lambda: made.evict("the rank is another's")
    with pytest.raises(NotConnected, match="bm object 7: the rank is another's"):
        made.join(Deadline(5))
    assert not made.joined
    assert not space_of(made).is_open
    assert published(node) == ["bm/7/1"]
    with pytest.raises(NotConnected, match="the rank is another's"):
        made.join(Deadline(5))


def test_news_of_a_neighbour_that_waits_for_them(made: Pool, node: TwinNode, host: TwinHost) -> None:
    made.join(Deadline(5))
    node.exchange.awaits_news = True
    pool(host.node(1)).join(Deadline(5))
    wait_until(lambda: node.exchange.ticks > 0)
