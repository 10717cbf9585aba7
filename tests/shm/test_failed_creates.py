"""A `create` that fails leaves nothing behind, at whatever step it fails: the next one with the same id works at once.

The collector is off and the exceptions are kept, as a program may do: neither may keep memory or descriptors.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import _native, shm
from memfabric_hybrid.errors import NoResources
from memfabric_hybrid.shm import runtime
from support import pause_points
from support.leaks import Snapshot
from support.threads import Beside, wait_until
from support.workers import Cluster

SIZE = 2 << 20
REGION = range(_native.REGION_START, _native.REGION_END)  # where objects have their ranges


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def other(store_url: str) -> Iterator[Cluster]:
    """This process is rank 0, a worker is rank 1 and has not come to `create` yet."""
    with Cluster(2, "support.heap_worker") as cluster:
        config = shm.ShmConfig()
        config.create_timeout = 20
        assert shm.initialize(store_url, 2, 0, 0, config) == 0, mf.get_last_err_msg()
        assert cluster.call(1, "enter", store_url, 2)[0] == 0
        yield cluster
        cluster.call(1, "uninitialize")


def memory() -> list[str]:
    """What this process has of objects: ranges that are reserved, mappings, and descriptors of memory files."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    ranges = [line for line in lines if int(line.split("-", 1)[0], 16) in REGION]
    snapshot = Snapshot.take()
    files = [target for target in snapshot.descriptors.values() if target.startswith("/memfd:")]
    return [*ranges, *snapshot.mapped_files.elements(), *files]


def fail_to_create(expected: str, rank_size: int = 2) -> pytest.ExceptionInfo[RuntimeError]:
    with pytest.raises(RuntimeError, match=expected) as failure:
        shm.create(0, rank_size, 0, SIZE)
    return failure


def create_together(other: Cluster) -> None:
    coming = other.begin(1, "create", 2, 0, SIZE)
    with shm.create(0, 2, 0, SIZE) as heap:
        assert coming.result() == heap.gva
        leaving = other.begin(1, "call", "barrier")
        assert heap.barrier() == 0, mf.get_last_err_msg()
        assert leaving.result()[0] == 0
    other.call(1, "destroy")


def test_rank_that_never_comes(other: Cluster) -> None:
    config = runtime.current().config
    config.create_timeout = 1
    kept = [fail_to_create("rank") for _ in range(2)]
    assert memory() == []
    config.create_timeout = 20
    create_together(other)
    assert len(kept) == 2


def test_failure_when_everything_is_mapped(other: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last step of the object's own construction fails: it keeps the memory of all ranks mapped by then."""

    def refuse(*arguments: object) -> None:
        raise NoResources("no room in the table of this test")

    with monkeypatch.context() as patch:
        patch.setattr(_native, "device_table_enter", refuse)
        coming = other.begin(1, "try_to_create", 2, 0, SIZE)
        kept = fail_to_create("no room in the table")
        assert coming.result()[1], "a rank has the object alone"  # at once, or after its time if it did not see us come
    assert memory() == []
    create_together(other)
    assert kept.value is not None


def test_rank_that_dies_before_the_first_barrier(other: Cluster, store_url: str) -> None:
    other.call(1, "hold_at", "shm.failed_ranks.tell")  # a rank that has arrived there may as well die afterwards
    with pause_points.held("shm.failed_ranks.tell") as point:
        other.begin(1, "try_to_create", 2, 0, SIZE)
        creating = Beside(lambda: fail_to_create("rank 1"))
        point.wait_until_reached()
        other.kill(1)
        point.release()
        kept = creating.result()
    assert memory() == []
    other.start(1)
    wait_until(lambda: other.call(1, "enter", store_url, 2)[0] == 0)  # the store needs a moment to free the rank
    create_together(other)
    assert kept.value is not None


def test_who_gives_up_on_account_of_a_death_says_of_which(store_url: str) -> None:
    """It had entered the control page, the dead rank had not: nobody reads there that it died."""
    with Cluster(3, "support.heap_worker") as cluster:
        assert shm.initialize(store_url, 3, 0, 0, shm.ShmConfig()) == 0, mf.get_last_err_msg()
        for rank in (1, 2):
            assert cluster.call(rank, "enter", store_url, 3)[0] == 0
        cluster.call(1, "map_late", 2)
        cluster.call(2, "hold_at", "shm.create.all_are_here")
        with pause_points.held("shm.failed_ranks.tell") as point:
            cluster.begin(2, "try_to_create", 3, 0, SIZE)
            giving_up = cluster.begin(1, "try_to_create", 3, 0, SIZE)
            creating = Beside(lambda: fail_to_create("rank 2 ", rank_size=3))
            point.wait_until_reached()
            cluster.kill(2)
            assert "rank 2 " in giving_up.result()[1]
            point.release()
            creating.result()
        cluster.call(1, "uninitialize")
