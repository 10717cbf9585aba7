"""What is heard of other ranks, decided and carried out: on a space that keeps books, with nobody behind it."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from memfabric_hybrid import clock
from memfabric_hybrid.address_space import join_fact
from memfabric_hybrid.address_space.group import Group
from memfabric_hybrid.address_space.join_fact import DataPlace, JoinFact
from memfabric_hybrid.address_space.layout import MIB
from memfabric_hybrid.address_space.messages import SegmentFact, Share
from memfabric_hybrid.address_space.neighbour import Neighbour
from memfabric_hybrid.address_space.participants import Participants
from memfabric_hybrid.address_space.peer_memory import PeerMemory
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import InvalidParam, MallocFailed, NotConnected, TimedOut
from memfabric_hybrid.membership.roster import Joined, Left, Roster, Stamp
from memfabric_hybrid.store import WatchUpdate
from memfabric_hybrid.store.protection.data_tls import DataTls
from memfabric_hybrid.transports.routes import Route
from support import pool_twins
from support.pool_twins import CAPACITY, SPEC, TwinExchange, TwinOwner, TwinQueue, TwinSpace
from support.threads import Beside

GRACE_S = 3.0
HERE, THERE = "this host", "another host"
FD = 99  # of nothing; a twin opens none


class Scene:
    """A group of rank 0, and everything around it."""

    def __init__(self) -> None:
        self.space = TwinSpace(0)
        self.owner = TwinOwner()
        self.exchange = TwinExchange({})
        self.notices = TwinQueue()
        self.reannounced = 0
        self.hosts: dict[int, str] = {}  # where the store showed each rank last
        node: Any = SimpleNamespace(
            exchange=self.exchange, notices=self.notices, data_address="10.0.0.1:4711", data_tls=DataTls()
        )
        space: Any = self.space
        known = Participants(0, 100, HERE, CAPACITY, Roster(own_rank=0, grace_s=GRACE_S))
        self.group = Group(node, known, PeerMemory(SPEC, space), self.owner, self._reannounce)

    def _reannounce(self) -> None:
        self.reannounced += 1

    def admit(self, rank: int, instance: int, generation: int = 1, max_dram: int = 4 * MIB) -> Stamp | None:
        shown = (SegmentFact(0, 0, 2 * MIB),)
        return self.group.admit(
            Share(rank, instance, generation, 4711, max_dram, 0, "", 1, shown), [FD, FD], if_still=lambda: True
        )

    def show(self, facts: Mapping[int, JoinFact | None], snapshot: bool = False, life: str = "life") -> None:
        self.hosts.update({rank: fact.host for rank, fact in facts.items() if fact is not None})
        entries = {
            join_fact.key(SPEC.name, self.hosts.get(rank, HERE), rank): None if fact is None else join_fact.encode(fact)
            for rank, fact in facts.items()
        }
        self.group.show(WatchUpdate(snapshot, life, 1, entries))

    def changes(self) -> list[Joined | Left]:
        self.notices.run()
        return self.owner.changes


@pytest.fixture
def scene() -> Scene:
    return Scene()


def fact(instance: int, host: str = HERE, **changed: Any) -> JoinFact:
    return pool_twins.join_fact(instance, host, **changed)


# ---- coming ---------------------------------------------------------------------------------------------------------


def test_who_shows_its_memory_is_mapped_and_told(scene: Scene) -> None:
    scene.group.begin(7)
    assert scene.admit(1, 11) == Stamp(100, 7)
    assert scene.space.done == [("drain", 1), ("attach", 1, 0, True), ("activate", 1)]
    assert scene.owner.told == [("enclosed", 1, 1), ("back", 1, Stamp(11, 1))]
    assert scene.changes() == [Joined(1)]
    assert scene.group.view() == (1, [0, 1])


def test_what_is_not_wanted_any_more_does_not_happen(scene: Scene) -> None:
    share = Share(1, 11, 1, 4711, 4 * MIB, 0, "", 1, ())
    assert scene.group.admit(share, [], if_still=lambda: False) is None
    assert scene.space.live == set()
    assert scene.group.view() == (0, [])


def test_a_share_that_does_not_fit_has_not_come(scene: Scene) -> None:
    with pytest.raises(InvalidParam, match="all ranks must pass the same"):
        scene.admit(1, 11, max_dram=2 * MIB)
    assert scene.group.view() == (0, [])
    assert scene.group.gone() == {}


def test_its_predecessor_goes_first(scene: Scene) -> None:
    scene.admit(1, 11)
    scene.space.done.clear()
    scene.admit(1, 12)
    assert [what[0] for what in scene.space.done] == ["drain", "revoke", "detach", "attach", "activate"]
    assert scene.owner.told[-3:] == [
        ("gone", 1, "rank 1 is gone: it joined anew"),
        ("enclosed", 1, 1),
        ("back", 1, Stamp(12, 1)),
    ]
    assert scene.changes() == [Joined(1), Left(1, "it joined anew"), Joined(1)]


def test_who_cannot_be_mapped_is_gone(scene: Scene) -> None:
    scene.space.refusal = MallocFailed("no room")
    with pytest.raises(MallocFailed):
        scene.admit(1, 11)
    assert scene.space.live == set()
    assert scene.group.gone() == {1: "rank 1 is gone: its memory cannot be mapped here: no room"}
    assert scene.changes() == [Left(1, "its memory cannot be mapped here: no room")]


def test_who_must_not_be_reached_takes_part_all_the_same(scene: Scene) -> None:
    scene.owner.usual = Route("none", "no route to tag 'b'")
    scene.admit(1, 11)
    assert scene.space.done[-1] == ("revoke", 1, "no route to tag 'b'")
    assert scene.changes() == [Joined(1)]


def test_who_has_left_meanwhile_is_not_mapped(scene: Scene) -> None:
    scene.group.withdrawn(1, Stamp(11, 1), "")
    assert scene.admit(1, 11) is not None
    assert scene.space.live == set()
    assert scene.changes() == []


# ---- going ----------------------------------------------------------------------------------------------------------


def test_a_death_is_carried_out_at_once(scene: Scene) -> None:
    scene.admit(1, 11)
    scene.group.lost(11)
    assert scene.space.done[-2:] == [("revoke", 1, "its process died"), ("detach", 1)]
    assert scene.owner.told[-1] == ("gone", 1, "rank 1 is gone: its process died")
    assert scene.exchange.ticks == 0
    assert scene.changes() == [Joined(1), Left(1, "its process died")]


def test_memory_that_copies_keep_is_looked_at_again(scene: Scene) -> None:
    scene.admit(1, 11)
    scene.space.is_busy = True
    scene.group.lost(11)
    assert scene.exchange.ticks == 1
    assert scene.group.tick()
    scene.space.is_busy = False
    assert not scene.group.tick()


def test_a_restarted_store_gives_time(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.show({1: fact(11)}, snapshot=True, life="first")
    scene.admit(1, 11)
    scene.show({}, snapshot=True, life="second")
    assert scene.exchange.ticks == 1
    assert scene.group.tick()
    assert not scene.group.is_overdue()
    late = clock.now() + GRACE_S
    monkeypatch.setattr(clock, "now", lambda: late)
    assert scene.group.is_overdue()
    assert scene.group.tick(), "whether the store could hear of it is not known yet"
    scene.group.wait_for_unheard()
    assert not scene.group.is_overdue()
    later = late + GRACE_S
    monkeypatch.setattr(clock, "now", lambda: later)
    assert scene.group.is_overdue()
    scene.group.give_up_unheard()
    assert not scene.group.tick()
    assert scene.group.gone() == {1: "rank 1 is gone: it did not register with the store again"}
    scene.show({1: fact(11)})
    assert scene.reannounced == 1, "it is there again, and has to be asked for its memory"


def test_leaving_unmaps_everybody_and_misses_nobody(scene: Scene) -> None:
    scene.group.begin(1)
    scene.admit(1, 11)
    scene.group.stop()
    assert not scene.group.takes_part
    scene.group.clear()
    assert scene.space.live == set()
    assert scene.group.view()[1] == []
    assert scene.group.gone() == {}


# ---- other hosts ----------------------------------------------------------------------------------------------------


def test_ranks_of_other_hosts_are_reached_over_the_network(scene: Scene) -> None:
    scene.show({1: fact(11), 2: fact(22, THERE)})
    assert scene.group.view()[1] == [2]
    assert scene.space.done == [("attach remote", 2, 0, 2 * MIB), ("activate", 2)]
    assert scene.group.neighbours() == [Neighbour(1, 11, "exchange of 11")]
    assert scene.group.route(2) == Route("tcp", "it is on another host")
    assert scene.changes() == [Joined(2)]


def test_a_rank_of_another_host_grows(scene: Scene) -> None:
    scene.show({2: fact(22, THERE)})
    scene.space.done.clear()
    scene.show({2: fact(22, THERE, dram_bytes=4 * MIB)})
    assert scene.space.done == [("attach remote", 2, 2 * MIB, 2 * MIB), ("activate", 2)]
    assert scene.changes() == [Joined(2)]


def test_a_rank_of_another_host_goes_and_comes_back(scene: Scene) -> None:
    scene.show({2: fact(22, THERE)})
    scene.show({2: None})
    assert scene.space.live == set()
    with pytest.raises(NotConnected, match="rank 2 is gone"):
        scene.group.route(2)
    scene.show({2: fact(22, THERE)})
    assert scene.space.live == {2}
    assert scene.space.done[-2:] == [("attach remote", 2, 0, 2 * MIB), ("activate", 2)]


def test_its_successor_waits_for_running_copies_and_nobody_waits_for_it(scene: Scene) -> None:
    scene.show({2: fact(22, THERE)})
    scene.space.is_busy = True
    scene.show({2: fact(33, THERE)})
    assert scene.space.live == set()
    assert scene.group.tick(), "there is something to be done"
    scene.space.is_busy = False
    assert not scene.group.tick()
    assert scene.space.live == {2}


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"max_dram": 2 * MIB}, "all ranks must pass the same"),
        ({"data": DataPlace("127.0.0.1:1", bytes(16), bytes(16))}, "set_nic"),
        ({"data": DataPlace("[::1]:1", bytes(16), bytes(16))}, "set_nic"),
        ({"data": DataPlace("nowhere", bytes(16), bytes(16))}, "nowhere"),
        ({"data": DataPlace("10.0.0.1:1", b"", b"")}, "expected 16"),
    ],
)
def test_who_cannot_be_reached_takes_part_and_the_reason_is_known(
    scene: Scene, changed: dict[str, Any], named: str
) -> None:
    scene.show({2: fact(22, THERE, **changed)})
    assert scene.group.view()[1] == [2]
    [(_, _, reason)] = [what for what in scene.space.done if what[0] == "revoke"]
    assert named in reason
    assert scene.group.route(2) == Route("none", reason)


def test_a_neighbour_that_must_not_be_mapped_is_reached_over_the_network(scene: Scene) -> None:
    scene.owner.usual = Route("tcp", "as it likes")
    scene.show({1: fact(11)})
    scene.admit(1, 11)
    assert scene.space.done == [("drain", 1), ("attach remote", 1, 0, 2 * MIB), ("activate", 1)]
    assert scene.group.route(1) == Route("tcp", "as it likes")


# ---- waiting --------------------------------------------------------------------------------------------------------


def test_waits_until_all_are_here(scene: Scene) -> None:
    waiting = Beside(lambda: scene.group.wait_for_all(Deadline(60)))
    for rank in (1, 2, 3):
        assert waiting.runs
        scene.admit(rank, 10 + rank)
    waiting.result()
    assert scene.group.hosts() == [[0, 1, 2, 3]]


def test_waits_in_vain_for_who_is_gone(scene: Scene) -> None:
    scene.admit(1, 11)
    waiting = Beside(lambda: scene.group.wait_for_all(Deadline(60)))
    scene.group.lost(11)
    with pytest.raises(NotConnected, match="rank 1 is gone: its process died"):
        waiting.result()


def test_waits_in_vain_for_who_is_missed(scene: Scene) -> None:
    waiting = Beside(lambda: scene.group.wait_for_all(Deadline(60)))
    scene.group.miss(3, "its process died")
    with pytest.raises(NotConnected, match="rank 3 is gone: its process died"):
        waiting.result()


def test_does_not_wait_for_ever(scene: Scene) -> None:
    scene.admit(2, 22)
    with pytest.raises(TimedOut, match=r"2 of 4 ranks did not come within 0\.01 s: 1, 3"):
        scene.group.wait_for_all(Deadline(0.01))


def test_waits_no_more_when_it_is_called_off(scene: Scene) -> None:
    waiting = Beside(lambda: scene.group.wait_for_all(Deadline(60)))
    scene.group.call_off(InvalidParam("destroyed"))
    with pytest.raises(InvalidParam, match="destroyed"):
        waiting.result()
    with pytest.raises(InvalidParam, match="destroyed"):
        scene.group.check_wanted()
    scene.group.resume()
    scene.group.check_wanted()


def test_answers_are_expected_from_who_is_shown_while_they_are_wanted(scene: Scene) -> None:
    one = Neighbour(1, 11, "")
    assert not scene.group.expects(one)
    scene.show({1: fact(11)})
    assert scene.group.expects(one)
    scene.group.call_off(InvalidParam("destroyed"))
    assert not scene.group.expects(one)
    assert scene.group.expects(one, even_if_called_off=True)
    scene.show({1: fact(12)})
    assert not scene.group.expects(one, even_if_called_off=True)


def test_waits_for_the_life_of_the_store_that_knows_everybody(scene: Scene) -> None:
    scene.show({1: fact(11)}, snapshot=True, life="first")
    scene.admit(1, 11)
    assert scene.group.wait_for_store(Deadline(0)) == "first"
    scene.show({}, snapshot=True, life="second")
    with pytest.raises(TimedOut, match=r"ranks \[1\] have not registered there again"):
        scene.group.wait_for_store(Deadline(0.01))
    waiting = Beside(lambda: scene.group.wait_for_store(Deadline(60)))
    scene.show({1: fact(11)})
    assert waiting.result() == "second"
