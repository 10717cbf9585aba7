"""Our part in the store, and the others' as it shows them."""

from __future__ import annotations

from collections.abc import Iterator

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
    ucx = UcxMemory(SPEC.title, own._space, UcxOffer(), is_demanded=False)
    return Publication(node.member, SPEC, own, DATA, ucx)


def test_others_see_who_we_are_and_what_we_have(publication: Publication, node: TwinNode, host: TwinHost) -> None:
    publication.publish(Stamp(node.member.instance, 3), Deadline(5))
    seen = host.node(0).member.store.prefix("bm/7/", deadline=Deadline(5)).entries
    [fact] = join_fact.decode(WatchUpdate(True, "", 1, seen)).values()
    assert fact is not None
    assert fact.stamp == Stamp(node.member.instance, 3)
    assert (fact.dram_bytes, fact.hbm_bytes) == (2 * MIB, 0)
    assert (fact.exchange_name, fact.secret) == (node.member.exchange_name, node.member.secret)
    assert (fact.max_dram, fact.max_hbm, fact.tag, fact.op_type) == (4 * MIB, 0, SPEC.tag, SPEC.op_type)
    assert fact.data == DATA


def test_the_first_sight_comes_before_we_count_as_watching(publication: Publication) -> None:
    seen: list[tuple[bool, bool]] = []
    publication.watch(lambda update: seen.append((update.snapshot, publication.is_watching)), Deadline(5))
    assert seen == [(True, False)]
    assert publication.is_watching
    publication.retract(Deadline(5))
    assert not publication.is_watching


def test_retracts_what_was_done(publication: Publication, node: TwinNode) -> None:
    publication.retract(Deadline(5))
    publication.publish(Stamp(1, 1), Deadline(5))
    publication.retract(Deadline(5))
    assert node.member.store.get(publication.key, deadline=Deadline(5)) is None


def test_an_end_does_not_fail_without_the_store(publication: Publication, node: TwinNode) -> None:
    publication.publish(Stamp(1, 1), Deadline(5))
    publication.watch(lambda update: None, Deadline(5))
    node.member.store.vanish()
    publication.retract(Deadline(5))
    assert not publication.is_watching
