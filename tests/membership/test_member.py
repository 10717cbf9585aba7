"""Entering a cluster: which rank a process gets, from its host's rank sockets and from the store."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import Duplicated, InvalidParam, NoResources
from memfabric_hybrid.machine import file_descriptors
from memfabric_hybrid.machine.file_descriptors import enough_for
from memfabric_hybrid.machine.interruption import Interruption
from memfabric_hybrid.membership import rank_socket
from memfabric_hybrid.membership.member import Entry, Member
from memfabric_hybrid.store import connect, parse_url
from memfabric_hybrid.store.server import hosting

GROUP = "bm/ranks"


class StoreAndMembers:
    """A store and the members that entered through this fixture."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self.url = parse_url(url)
        self._stack = stack
        hosting.host(self.url, "test")
        stack.callback(hosting.release, self.url, "test")
        self.store = stack.enter_context(connect(self.url))
        self.name = f"bm@{self.store.peer_name(deadline=Deadline(10))}"

    def enter(self, capacity: int = 4, wanted: int | None = None) -> Member:
        entry = Entry(self.url, "bm", capacity, wanted, hosts_store=False, takes_over=False)
        member = Member.enter(entry, lambda event: None, Deadline(10), Interruption())
        self._stack.callback(member.leave, Deadline(10))
        return member

    def hold_rank_socket(self, rank: int) -> None:
        """A living process that the store does not know."""
        self._stack.enter_context(rank_socket.bind(rank_socket.socket_name(self.name, rank)))

    def register_elsewhere(self, rank: int, capacity: int = 4) -> None:
        """A member of another host: the store knows it, this host's rank sockets do not."""
        self.store.claim_rank(GROUP, capacity, b"", wanted=rank, deadline=Deadline(10))


@pytest.fixture
def cluster(store_url: str) -> Iterator[StoreAndMembers]:
    with ExitStack() as stack:
        yield StoreAndMembers(store_url, stack)


def test_lowest_rank_that_neither_the_host_nor_the_store_has(cluster: StoreAndMembers) -> None:
    cluster.hold_rank_socket(0)
    cluster.register_elsewhere(1)
    assert [cluster.enter().rank, cluster.enter().rank] == [2, 3]
    sentence = r"all 4 ranks of bm@.* 3 are registered in the store, it does not hear from \[0\].*rank 0 .*pid \d+"
    with pytest.raises(NoResources, match=sentence):
        cluster.enter()


def test_store_is_never_asked_for_the_rank_of_a_living_process(cluster: StoreAndMembers) -> None:
    """It would be refused to its owner, should that register again with a restarted store at this very moment."""
    seen: set[str] = set()
    cluster.hold_rank_socket(0)
    cluster.hold_rank_socket(2)
    with closing(cluster.store.watch(f"{GROUP}/", lambda told: seen.update(told.entries), deadline=Deadline(10))):
        assert [cluster.enter().rank, cluster.enter().rank] == [1, 3]
        with pytest.raises(Duplicated, match=r"rank 2 is in use: .*pid \d+\).*choose another"):
            cluster.enter(wanted=2)
        cluster.store.watch("end", lambda told: None, deadline=Deadline(10)).close()  # told behind all that was before
    assert seen == {f"{GROUP}/1", f"{GROUP}/3"}


def test_wanted_rank_of_another_host(cluster: StoreAndMembers) -> None:
    cluster.register_elsewhere(2)
    with pytest.raises(Duplicated, match="rank 2 of 'bm' is taken by another member"):
        cluster.enter(wanted=2)
    assert cluster.enter(wanted=1).rank == 1


def test_capacity_unlike_the_groups_is_the_reason_even_if_no_rank_socket_is_free(cluster: StoreAndMembers) -> None:
    cluster.enter()
    for capacity in (1, 5):
        with pytest.raises(InvalidParam, match=f"world size of 4, this one says {capacity}"):
            cluster.enter(capacity)


def test_refused_newcomer_leaves_no_rank_socket(cluster: StoreAndMembers) -> None:
    cluster.register_elsewhere(0)
    with pytest.raises(Duplicated):
        cluster.enter(wanted=0)
    cluster.hold_rank_socket(0)


def test_members_may_have_a_link_to_everybody(cluster: StoreAndMembers) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for ranks, before, after in ((1024, 600, min(enough_for(1024), hard)), (4, 600, 600), (1024, hard, hard)):
            resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))
            file_descriptors.allow_enough(ranks)
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (after, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
        cluster.enter(capacity=4)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (enough_for(4), hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
