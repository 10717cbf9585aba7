"""Our part in the store, and the others' as it shows them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from memfabric_hybrid.address_space import join_fact
from memfabric_hybrid.address_space.layout import MIB
from memfabric_hybrid.address_space.own_memory import OwnMemory
from memfabric_hybrid.address_space.publication import Publication
from memfabric_hybrid.address_space.ucx_memory import UcxMemory
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.membership.roster import Stamp
from memfabric_hybrid.store import WatchUpdate
from memfabric_hybrid.transports.ucx_offer import UcxOffer
from support.pool_twins import DATA, SPEC, TwinHost, TwinNode, TwinSpace, own_memory


@pytest.fixture
def node(host: TwinHost) -> TwinNode:
    return host.node(1)


@pytest.fixture
def own() -> Iterator[OwnMemory]:
    own = own_memory(TwinSpace(1))
    yield own
    own.close()


@pytest.fixture
def publication(node: TwinNode, own: OwnMemory) -> Publication:
    return Publication(node.member, SPEC, own, DATA, without_ucx(own))


def without_ucx(own: OwnMemory) -> UcxMemory:
    return UcxMemory(SPEC.title, own._space, UcxOffer(), is_demanded=False)


def test_others_see_who_we_are_and_what_we_have(publication: Publication, node: TwinNode, host: TwinHost) -> None:
    publication.publish(Stamp(node.member.instance, 3), Deadline(5))
    seen = host.node(0).member.store.prefix("bm/7/", deadline=Deadline(5)).entries
    [fact] = join_fact.decode(WatchUpdate(True, "", 1, seen)).facts.values()
    assert fact.stamp == Stamp(node.member.instance, 3)
    assert (fact.dram_bytes, fact.hbm_bytes) == (2 * MIB, 0)
    assert (fact.exchange_name, fact.secret) == (node.member.exchange_name, node.member.secret)
    assert (fact.max_dram, fact.max_hbm, fact.tag, fact.op_type) == (4 * MIB, 0, SPEC.tag, SPEC.op_type)
    assert fact.data == DATA


def test_the_first_sight_comes_before_we_count_as_watching(publication: Publication) -> None:
    seen: list[tuple[bool, bool]] = []
    publication.watch(lambda update, host: seen.append((update.snapshot, publication.is_watching)), Deadline(5))
    assert seen == [(True, False)]
    assert publication.is_watching
    publication.retract(Deadline(5))
    assert not publication.is_watching


class Watching:
    """A publication in a world whose ranks do not hear of all by themselves, and what its watches told."""

    def __init__(self, publication: Publication) -> None:
        self.publication = publication
        self.told: list[tuple[str | None, bool, list[int]]] = []  # host, is it a snapshot, ranks

    def begin(self) -> None:
        self.publication.watch(self._on_update, Deadline(5))

    def _on_update(self, update: WatchUpdate, host: str | None) -> None:
        self.told.append((host, update.snapshot, [int(key.rpartition("/")[2]) for key in update.entries]))


HERE, THERE = join_fact.host_key("this host"), join_fact.host_key("that host")


@pytest.fixture
def watching(node: TwinNode, own: OwnMemory, host: TwinHost) -> Watching:
    """Rank 0 is our neighbour, ranks 2 and 3 are on another host; all have published."""
    for rank, place in ((0, "this host"), (2, "that host"), (3, "that host")):
        others = host.node(rank, place)
        one = Publication(others.member, SPEC, own, DATA, without_ucx(own))
        one.publish(Stamp(others.member.instance, 1), Deadline(5))
    spec = msgspec.structs.replace(SPEC, follows_all=False)
    return Watching(Publication(node.member, spec, own, DATA, without_ucx(own)))


def test_in_a_large_world_the_own_host_is_followed(watching: Watching) -> None:
    watching.begin()
    assert watching.told == [(HERE, True, [0])]
    assert watching.publication.follows(HERE)
    assert not watching.publication.follows(THERE)
    assert not watching.publication.follows(None)


def test_who_is_sought_is_followed_with_its_host(watching: Watching) -> None:
    watching.begin()
    watching.publication.seek([0], Deadline(5))
    assert len(watching.told) == 1, "known already"
    watching.publication.seek([3], Deadline(5))
    watching.publication.seek([2, 3], Deadline(5))
    assert watching.told[1:] == [(THERE, True, [2, 3])]
    assert watching.publication.follows(THERE)


def test_nobody_is_found_where_nobody_is(watching: Watching, host: TwinHost) -> None:
    watching.begin()
    watching.publication.seek([77], Deadline(5))
    assert len(watching.told) == 1


def test_what_was_published_before_is_told_when_seek_returns(watching: Watching, host: TwinHost) -> None:
    watching.begin()
    watching.publication.seek([2], Deadline(5))
    [away] = [one for one in host._elsewhere if one.member.rank == 3]
    away.member.store.delete(join_fact.key(SPEC.name, "that host", 3), deadline=Deadline(5))
    watching.publication.seek([3], Deadline(5))
    assert watching.told[-1] == (THERE, False, [3])


def test_who_follows_all_needs_no_other_watch(watching: Watching) -> None:
    watching.begin()
    watching.publication.seek([2], Deadline(5))
    watching.publication.follow_all(Deadline(5))
    host_key, is_snapshot, ranks = watching.told[-1]
    assert (host_key, is_snapshot, sorted(ranks)) == (None, True, [0, 2, 3])
    told = len(watching.told)
    watching.publication.follow_all(Deadline(5))
    watching.publication.seek([3], Deadline(5))
    assert len(watching.told) == told
    assert list(watching.publication._watches) == [None]
    watching.publication.retract(Deadline(5))
    watching.begin()
    assert watching.told[-1][0] is None, "what was wanted once is wanted in the next participation, too"


def test_nobody_is_followed_who_is_sought_when_we_have_left(watching: Watching) -> None:
    watching.begin()
    watching.publication.retract(Deadline(5))
    watching.publication.seek([2], Deadline(5))
    assert not watching.publication.is_watching
    assert len(watching.told) == 1


def test_retracts_what_was_done(publication: Publication, node: TwinNode) -> None:
    publication.retract(Deadline(5))
    publication.publish(Stamp(1, 1), Deadline(5))
    publication.retract(Deadline(5))
    assert node.member.store.get(publication.key, deadline=Deadline(5)) is None


def test_an_end_does_not_fail_without_the_store(publication: Publication, node: TwinNode) -> None:
    publication.publish(Stamp(1, 1), Deadline(5))
    publication.watch(lambda update, host: None, Deadline(5))
    node.member.store.vanish()
    publication.retract(Deadline(5))
    assert not publication.is_watching
