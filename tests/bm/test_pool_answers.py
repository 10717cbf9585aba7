"""What a pool gives to a neighbour that asks."""

from __future__ import annotations

import os

from memfabric_hybrid import bm
from memfabric_hybrid.address_space.messages import Accept, NotHere, Offer, Share
from memfabric_hybrid.bm import runtime
from support.pool_worker import MIB


def test_descriptors_of_an_answer_outlive_the_pool(pool: bm.BigMemory) -> None:
    """The exchange sends them after the pool has let go of its lock: a destroy in between must not change them."""
    [asked] = runtime.current_site().pools()
    share = Share(1, 4711, 1, os.getpid(), 8 * MIB, 4 * MIB, "", 1, ())
    answer, fds = asked.handle(Offer(asked.name, share), ())
    try:
        assert isinstance(answer, Accept)
        pool.destroy()
        assert [os.fstat(fd).st_size for fd in fds] == [4 * MIB, 2 * MIB]
        assert asked.handle(Offer(asked.name, share), ()) == (NotHere(), ())
    finally:
        for fd in fds:
            os.close(fd)
