"""Values that one rank at a time can have: the lowest free one is given, those of the dead are free again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from memfabric_hybrid import logs
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import Duplicated, InvalidParam, NoResources, NotConnected, NotExist, TimedOut
from memfabric_hybrid.store import OtherIncarnation, Refusal, Store

log = logs.get(__name__)


class AtomicValues:
    """The values of one object, kept as keys of the store that vanish with whoever holds them.

    A store that was restarted hears from their holders one by one. `whole_store(deadline)` waits until it has heard
    from every rank of the object, and says which life of the store that is: only there is a value given.
    """

    def __init__(self, store: Store, whole_store: Callable[[Deadline], str], object_name: str, rank: int) -> None:
        self._store = store
        self._whole_store = whole_store
        self._prefix = f"{object_name.replace('/', '-')}-value/"
        self._owner = str(rank).encode()
        self._turn = threading.Lock()  # one thread at a time: what one gives back must not be what another has got
        self._lock = threading.Lock()  # guards what is held; for moments
        self._held: set[int] = set()
        self._doubtful: set[int] = set()  # asked for or released, and not answered: the store may call them ours
        self._lost: set[int] = set()  # of these, those that somebody else has since the store was away

    def take(self, limit: int, deadline: Deadline) -> int:
        """The lowest free value below `limit`, which is ours until `release`."""
        if limit == 0:
            raise InvalidParam("limit is 0, expected at least 1: values are below it")
        with self._in_turn(deadline):
            return self._take(limit, deadline)

    @contextmanager
    def _in_turn(self, deadline: Deadline) -> Iterator[None]:
        if not self._turn.acquire(timeout=deadline.remaining_s()):
            raise TimedOut(
                f"another thread of this rank asks for or releases a value, for {deadline.timeout_s:g} s now"
            )
        try:
            yield
        finally:
            self._turn.release()

    def _take(self, limit: int, deadline: Deadline) -> int:
        while True:
            self._give_back_doubtful(deadline)
            incarnation = self._whole_store(deadline)
            names = (
                key.removeprefix(self._prefix) for key in self._store.prefix(self._prefix, deadline=deadline).entries
            )
            taken = {int(name) for name in names if name.isdecimal()}
            free = next((value for value in range(limit) if value not in taken), None)
            if free is None:
                raise NoResources(f"all {limit} values are in use; release one or raise the limit")
            with self._lock:
                self._doubtful.add(free)
            try:
                won, _ = self._store.compare_and_set(
                    self._key(free), None, self._owner, deadline=deadline, ephemeral=True, incarnation=incarnation
                )
            except OtherIncarnation as restarted:  # nothing was done; what looked free may even be held by us
                log.debug("a value is asked for again: %s", restarted)
                with self._lock:
                    self._doubtful.discard(free)
                continue
            except NotConnected as lost:  # before it answered: nobody shall have got it that way
                log.debug("a value is asked for again: %s", lost)
                continue
            with self._lock:
                self._doubtful.discard(free)
                if won:
                    self._lost.discard(free)
                    self._held.add(free)
                    return free

    def refused(self, refusals: Sequence[Refusal]) -> None:
        """Values of ours that somebody else has since the store was away (store's event thread)."""
        for refusal in refusals:
            number = refusal.name.removeprefix(self._prefix)
            if refusal.name.startswith(self._prefix) and number.isdecimal():
                with self._lock:
                    self._held.discard(int(number))
                    if int(number) in self._doubtful:
                        self._lost.add(int(number))
                log.error("value %s belongs to another rank now: %s", number, refusal.sentence)

    def release(self, value: int, deadline: Deadline) -> None:
        with self._lock:
            if value not in self._held:
                raise NotExist(f"value {value} is not held by this rank: it did not get it from atomic_alloc_value()")
            self._held.discard(value)
            self._doubtful.add(value)
        with self._in_turn(deadline):
            self._give_back_doubtful(deadline)
        with self._lock:
            if value in self._lost:
                self._lost.discard(value)
                raise NotExist(f"value {value} belongs to another rank since the store was away")

    def release_all(self, deadline: Deadline) -> None:
        """The end of the object: whoever else asks for something now gets nothing."""
        with self._lock:
            self._doubtful |= self._held
            self._held = set()
        self._give_back_doubtful(deadline)

    def _give_back_doubtful(self, deadline: Deadline) -> None:
        """A store that was restarted meanwhile does not hear of them from us any more: others may have them already."""
        with self._lock:
            doubtful = list(self._doubtful)
        for value in doubtful:
            try:
                self._store.delete(self._key(value), deadline=deadline)
            except Duplicated as others:
                log.debug("value %d is another rank's: %s", value, others)
            with self._lock:
                self._doubtful.discard(value)

    def _key(self, value: int) -> str:
        return f"{self._prefix}{value}"
