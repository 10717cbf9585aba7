"""Values when the store is lost between a request and its answer: none stays taken by nobody, none is given twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import FabricError, NoResources, NotConnected, TimedOut
from memfabric_hybrid.shm.atomic_values import AtomicValues
from memfabric_hybrid.store import InProcessServer, InProcessStore, OtherIncarnation, Snapshot
from memfabric_hybrid.store import messages as m
from support.threads import LONG_S, Beside

MOMENT_S = 0.1


class UnreliableStore(InProcessStore):
    """One participant's, whose next requests can be lost, before or after the store has carried them out."""

    def __init__(self, server: InProcessServer) -> None:
        super().__init__(server)
        self.lost_requests: list[FabricError] = []  # of the next swaps, each with what the caller learns
        self.lost_answers: list[FabricError] = []
        self.keys_hidden = 0  # in so many answers: a restarted store has not heard of them yet
        self.before_delete: Callable[[], object] = lambda: None

    def prefix(self, prefix: str, *, deadline: Deadline) -> Snapshot:
        found = super().prefix(prefix, deadline=deadline)
        if self.keys_hidden == 0:
            return found
        self.keys_hidden -= 1
        return Snapshot(found.revision, {})

    def _ask(self, request: m.Request, deadline: Deadline, incarnation: str | None = None) -> m.ServerMessage:
        if type(request) is m.Delete:
            self.before_delete()
        if type(request) is m.CompareAndSet and self.lost_requests:
            raise self.lost_requests.pop(0)
        reply = super()._ask(request, deadline, incarnation)
        if type(request) is m.CompareAndSet and self.lost_answers:
            raise self.lost_answers.pop(0)
        return reply


@pytest.fixture
def server() -> InProcessServer:
    return InProcessServer()


@pytest.fixture
def store(server: InProcessServer) -> Iterator[UnreliableStore]:
    with UnreliableStore(server) as store:
        yield store


@pytest.fixture
def other_store(server: InProcessServer) -> Iterator[InProcessStore]:
    with InProcessStore(server) as store:
        yield store


def values_of(store: InProcessStore, server: InProcessServer, rank: int = 0) -> AtomicValues:
    as_member(store, rank)
    return AtomicValues(store, lambda deadline: server.state.incarnation, "shm/0", rank)


def as_member(store: InProcessStore, rank: int) -> None:
    """Only members may have values."""
    store.claim_rank("shm/ranks", 8, b"", wanted=rank, deadline=soon())


def soon() -> Deadline:
    return Deadline(LONG_S)


def lost() -> NotConnected:
    return NotConnected("the store was lost after the request was sent")


def late() -> TimedOut:
    return TimedOut("the store did not answer; it may still do it")


def test_value_whose_answer_was_lost_is_given_after_all(store: UnreliableStore, server: InProcessServer) -> None:
    """The store has noted it as ours: it must not stay taken by a rank that does not know it."""
    values = values_of(store, server)
    store.lost_answers = [lost(), lost()]
    assert values.take(1, soon()) == 0
    assert store.lost_answers == []
    values.release(0, soon())
    assert store.prefix("shm-0-value/", deadline=soon()).entries == {}


def test_value_whose_request_was_lost_is_given_after_all(store: UnreliableStore, server: InProcessServer) -> None:
    values = values_of(store, server)
    store.lost_requests = [lost()]
    assert values.take(1, soon()) == 0


def test_value_that_another_rank_took_meanwhile_stays_with_it(
    store: UnreliableStore, other_store: InProcessStore, server: InProcessServer
) -> None:
    """Giving back what is perhaps ours must not take it from its owner."""
    values, others = values_of(store, server), values_of(other_store, server, rank=1)
    store.lost_requests = [lost()]
    theirs: list[int] = []

    def take_theirs() -> None:
        store.before_delete = lambda: None
        theirs.append(others.take(2, soon()))

    store.before_delete = take_theirs
    assert values.take(2, soon()) == 1
    assert theirs == [0]
    assert set(store.prefix("shm-0-value/", deadline=soon()).entries.values()) == {b"0", b"1"}
    others.release(0, soon())


def test_value_of_a_call_that_timed_out_is_free_for_the_next(store: UnreliableStore, server: InProcessServer) -> None:
    values = values_of(store, server)
    store.lost_answers = [late()]
    with pytest.raises(TimedOut):
        values.take(1, soon())
    assert values.take(1, soon()) == 0


def test_value_of_a_call_that_timed_out_is_free_at_the_end(
    store: UnreliableStore, other_store: InProcessStore, server: InProcessServer
) -> None:
    values, others = values_of(store, server), values_of(other_store, server, rank=1)
    store.lost_answers = [late()]
    with pytest.raises(TimedOut):
        values.take(1, soon())
    with pytest.raises(NoResources):
        others.take(1, soon())
    values.release_all(soon())
    assert others.take(1, soon()) == 0


def test_one_thread_does_not_give_back_what_another_has_got(store: UnreliableStore, server: InProcessServer) -> None:
    """One stands before it gives back a value that it may have; the other must not get that one meanwhile."""
    values = values_of(store, server)
    store.lost_requests = [lost()]
    stands, goes_on = threading.Event(), threading.Event()

    def stand() -> None:
        stands.set()
        assert goes_on.wait(LONG_S)

    store.before_delete = stand
    first = Beside(lambda: values.take(8, soon()))
    try:
        assert stands.wait(LONG_S)
        with pytest.raises(TimedOut, match="another thread of this rank"):
            values.take(8, Deadline(MOMENT_S))
    finally:
        goes_on.set()
    assert sorted([first.result(), values.take(8, soon())]) == [0, 1]
    assert len(store.prefix("shm-0-value/", deadline=soon()).entries) == 2


def test_threads_that_take_at_once_get_different_values(store: UnreliableStore, server: InProcessServer) -> None:
    values, count = values_of(store, server), 16
    store.lost_answers = [lost() for _ in range(count // 2)]
    together = threading.Barrier(count)

    def take() -> int:
        together.wait(LONG_S)
        return values.take(count, soon())

    takers = [Beside(take) for _ in range(count)]
    assert sorted(taker.result() for taker in takers) == list(range(count))


def test_release_that_is_repeated_takes_nothing_from_the_next_holder(
    store: UnreliableStore, other_store: InProcessStore, server: InProcessServer
) -> None:
    """The answer to a release was lost with the store, and another rank was faster than its repetition."""
    values, others = values_of(store, server), values_of(other_store, server, rank=1)
    assert values.take(1, soon()) == 0

    def released_by_a_restart() -> None:
        store.before_delete = lambda: None
        store.delete("shm-0-value/0", deadline=soon())
        assert others.take(1, soon()) == 0

    store.before_delete = released_by_a_restart
    values.release(0, soon())
    assert store.get("shm-0-value/0", deadline=soon()) == b"1"
    with pytest.raises(NoResources):
        values.take(1, soon())
    others.release(0, soon())
    assert values.take(1, soon()) == 0


def test_value_that_looks_free_in_a_restarted_store_stays_held(store: UnreliableStore, server: InProcessServer) -> None:
    """Which life of the store answers is known only when it is asked: nothing was done, so nothing is given back."""
    values = values_of(store, server)
    assert values.take(2, soon()) == 0
    keys, store.keys_hidden = store.prefix("shm-0-value/", deadline=soon()).entries, 1
    assert list(keys) == ["shm-0-value/0"]
    store.lost_requests = [OtherIncarnation("the store was restarted")]
    assert values.take(2, soon()) == 1
    assert store.get("shm-0-value/0", deadline=soon()) == b"0"


def test_value_is_not_taken_from_a_store_that_was_restarted_unnoticed(
    store: UnreliableStore, other_store: InProcessStore, server: InProcessServer
) -> None:
    """What we know of is its earlier life; the new one hears from the holder of value 0 only after we have asked."""
    others = values_of(other_store, server, rank=1)
    lives: list[str] = []

    def whole_store(deadline: Deadline) -> str:
        lives.append("earlier" if not lives else server.state.incarnation)
        if len(lives) == 2:
            assert others.take(1, deadline) == 0
        return lives[-1]

    as_member(store, 0)
    values = AtomicValues(store, whole_store, "shm/0", 0)
    assert values.take(2, soon()) == 1
    assert store.get("shm-0-value/0", deadline=soon()) == b"1"
