"""What a pool gives to a neighbour that asks."""

from __future__ import annotations

import os
import resource

import pytest

from memfabric_hybrid import bm
from memfabric_hybrid.address_space.messages import Accept, NotHere, Offer, Share
from memfabric_hybrid.address_space.pool import Pool
from memfabric_hybrid.bm import runtime
from memfabric_hybrid.errors import NoResources
from support import pool_twins
from support.pool_worker import MIB

pytestmark = pytest.mark.plain_user


SECRET = b"known to rank 1 only"
SHARE = Share(1, 4711, 1, os.getpid(), 8 * MIB, 4 * MIB, "", 1, ())


@pytest.fixture
def asked(pool: bm.BigMemory) -> Pool:
    """The pool of this process, to which the store shows rank 1."""
    [asked] = runtime.current_node().pools()
    asked.group._participants.facts[1] = pool_twins.join_fact(4711, "this host", secret=SECRET)
    return asked


def test_descriptors_of_an_answer_outlive_the_pool(pool: bm.BigMemory, asked: Pool) -> None:
    """The exchange sends them after the pool has let go of its lock: a destroy in between must not change them."""
    answer, fds = asked.handle(Offer(asked.spec.name, SHARE, SECRET), ()) or (None, ())
    try:
        assert isinstance(answer, Accept)
        pool.destroy()
        assert [os.fstat(fd).st_size for fd in fds] == [4 * MIB, 2 * MIB]
        assert asked.handle(Offer(asked.spec.name, SHARE, SECRET), ()) == (NotHere(), ())
    finally:
        for fd in fds:
            os.close(fd)


def test_answer_without_enough_descriptors_keeps_none(asked: Pool) -> None:
    """The leak check after the test counts them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    one_more = os.dup(0)
    os.close(one_more)  # the lowest free number; the second of two duplicates is beyond the limit
    resource.setrlimit(resource.RLIMIT_NOFILE, (one_more + 1, hard))
    try:
        with pytest.raises(NoResources, match="Too many open files"):
            asked.handle(Offer(asked.spec.name, SHARE, SECRET), ())
        assert asked.group.view()[1] == [0], "who gets no answer has not come"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    answer, fds = asked.handle(Offer(asked.spec.name, SHARE, SECRET), ()) or (None, ())
    assert isinstance(answer, Accept)
    assert one_more in fds, "it is free again"
    for fd in fds:
        os.close(fd)
