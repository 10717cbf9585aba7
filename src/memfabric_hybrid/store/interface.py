"""The store as one participant sees it: keys and values with sessions, watches, ranks, address ranges and rendezvous.

Everything above this layer talks to a `Store`, never to a socket, and gets it from `connect`; `StoreClient` (tcp),
`EtcdStore` and `InProcessStore` (twin for tests and single-process use) pass one conformance suite. Every call takes a
deadline and fails with an exception of `errors.py`: TimedOut when the deadline passes, NotConnected when the outcome is
unknown, InvalidParam before anything is sent when a value is outside its limits.

Members need neither `wait`, `add`, `append` and `barrier`, nor `release_rank`: a rank ends with its session. These are
here for tests and benchmarks, which meet in the store and compare it with others that have them.

An ephemeral key can be changed or deleted only by the participant that owns it (others get Duplicated).

Session-bound things (ephemeral keys, claimed ranks, held ranges, watches) belong to the participant, not to a
connection: they survive reconnects and a restarted server, and vanish when the participant closes or dies.

Whoever makes a participant may give it a `SessionCallback`. It hears SessionConnected when the session begins, with the
first thing that is bound to it at the latest; then SessionLost and SessionRestored as the store goes and comes back.
After SessionFailed the participant gets no events any more, and session-bound calls fail with NotConnected.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import TypeVar

import msgspec

from memfabric_hybrid import _native
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import NotConnected
from memfabric_hybrid.store.session_events import SessionEvent
from memfabric_hybrid.store.url import StoreUrl

FAREWELL_S = _native.FAREWELL_S  # how long an orderly goodbye may wait for a store that does not answer
MOMENT_S = 0.1  # for last words to the store, when others have used up the farewell: it answers faster


class Snapshot(msgspec.Struct, frozen=True):
    """All keys under a prefix at one revision of the store."""

    revision: int
    entries: dict[str, bytes]


class WatchUpdate(msgspec.Struct, frozen=True):
    """What a watch saw. A snapshot replaces everything known before; otherwise `entries` are changes (None = deleted).

    `revision` grows within one `incarnation`; a restarted server has another incarnation and starts with a snapshot.
    """

    snapshot: bool
    incarnation: str
    revision: int
    entries: Mapping[str, bytes | None]


class OtherIncarnation(NotConnected):
    """The store was restarted meanwhile; nothing was done."""


WatchCallback = Callable[[WatchUpdate], None]
SessionCallback = Callable[[SessionEvent], None]  # on the event thread, as watch callbacks: must not block
LookAround = Callable[[], "list[bytes] | None"]
_Self = TypeVar("_Self", bound="Store")  # typing.Self needs Python 3.11


class Watch(ABC):
    """A running watch; `close()` ends it. A callback that is running at that moment may still finish."""

    @abstractmethod
    def close(self) -> None:
        """Idempotent. May be called from the callback itself. Does not fail when the store is away."""


class Store(ABC):
    """One participant's view. Thread-safe: a blocking call in one thread never delays another thread's calls."""

    @property
    def url(self) -> StoreUrl | None:
        """Where it is now; None: inside this process."""
        return None

    @abstractmethod
    def set(self, key: str, value: bytes, *, deadline: Deadline, ephemeral: bool = False) -> int:
        """Write; the revision of the write. An ephemeral key vanishes with this participant."""

    @abstractmethod
    def get(self, key: str, *, deadline: Deadline) -> bytes | None:
        """The value now, or None."""

    @abstractmethod
    def wait(self, key: str, *, deadline: Deadline) -> bytes:
        """The value as soon as there is one; TimedOut names the key."""

    @abstractmethod
    def delete(self, key: str, *, deadline: Deadline) -> bool:
        """True if the key existed."""

    @abstractmethod
    def add(self, key: str, delta: int, *, deadline: Deadline) -> int:
        """Add to a signed 64-bit counter (decimal text, absent = 0); the new value."""

    @abstractmethod
    def compare_and_set(
        self,
        key: str,
        expected: bytes | None,
        value: bytes,
        *,
        deadline: Deadline,
        ephemeral: bool = False,
        incarnation: str | None = None,
    ) -> tuple[bool, bytes | None]:
        """Write if the value is `expected` (None = absent). (won, value stored now).

        With an `incarnation` (as watches tell it) only in that life of the store: OtherIncarnation otherwise, and
        nothing was done. A store that was restarted calls things free whose owners have not told it yet.
        """

    @abstractmethod
    def append(self, key: str, suffix: bytes, *, deadline: Deadline) -> int:
        """Append (absent = empty); the new length in bytes."""

    @abstractmethod
    def prefix(self, prefix: str, *, deadline: Deadline) -> Snapshot:
        """All keys that start with `prefix`."""

    @abstractmethod
    def watch(self, prefix: str, callback: WatchCallback, *, deadline: Deadline) -> Watch:
        """Follow all keys that start with `prefix`.

        The callback has run once with a snapshot before this returns, then runs with changes in order of revision, and
        with a snapshot again after every reconnect. It runs on the event thread and must not block or call the store.
        """

    @abstractmethod
    def claim_rank(
        self,
        group: str,
        capacity: int,
        value: bytes,
        *,
        wanted: int | None = None,
        excluded: Collection[int] = (),
        deadline: Deadline,
    ) -> int:
        """Take the lowest free rank of 0..capacity-1 (or the wanted one), as ephemeral key `f"{group}/{rank}"`.

        InvalidParam: capacity outside 1..MAX_GROUP_RANKS or unlike the living group's. Duplicated: wanted rank taken.
        NoResources: no rank free.
        """

    @abstractmethod
    def free_ranks(self, group: str, capacity: int, most: int, *, deadline: Deadline) -> Sequence[int]:
        """Ranks of 0..capacity-1 that nobody has now, at most so many: the lowest, but those who ask at the same time
        may be told different ones first.

        For who has to do something on its own machine before it may claim one: it asks for few bytes, however large the
        group is. A store that does not know yet which ranks are free says what it knows.
        """

    @abstractmethod
    def release_rank(self, group: str, rank: int, *, deadline: Deadline) -> None:
        """Give a claimed rank back; NotExist if this participant does not hold it."""

    @abstractmethod
    def hold_range(self, name: str, size_bytes: int, *, asked: str = "", deadline: Deadline) -> int:
        """The base address of the cluster-wide range `name`, allocated by the first holder, shared by all.

        InvalidParam: held by others with another size; what both `asked` for then stands in the sentence ("rank 0 asked
        for …"). NoResources: no room for it.
        """

    @abstractmethod
    def release_range(self, name: str, *, deadline: Deadline) -> None:
        """Stop holding; the range is free when nobody holds it. NotExist if this participant does not hold it."""

    @abstractmethod
    def gather(
        self,
        group: str,
        round: int,
        rank: int,
        size: int,
        data: bytes,
        *,
        deadline: Deadline,
        look_around: LookAround | None = None,
    ) -> list[bytes]:
        """All `size` ranks bring data (0..64 KiB) to (group, round); everyone gets all of it in rank order.

        TimedOut names the ranks that did not arrive. NotConnected names a missing rank whose claim
        `f"{group}/{rank}"` ended while we waited. Duplicated: the rank arrived already from somebody else.

        `look_around` is called before, and now and then while others are waited for: what it raises ends the call, and
        so does a result that it knows. Whoever met the others before that, or with its last look at them, has their
        data all the same.
        """

    def barrier(self, group: str, round: int, rank: int, size: int, *, deadline: Deadline) -> None:
        """`gather` of nothing: returns when all `size` ranks arrived."""
        self.gather(group, round, rank, size, b"", deadline=deadline)

    @abstractmethod
    def peer_name(self, *, deadline: Deadline) -> str:
        """What to call the store on this machine; connects if nothing is connected yet.

        All participants that reach the same store in the same way see one name, also after a restart of the store, and
        no other store has it. It may become part of names that live in the machine, such as those of sockets.
        """

    @abstractmethod
    def update_url(self, url: StoreUrl) -> None:
        """The store has moved: everything under way is repeated there, where that is safe.

        InvalidParam: a store of this kind cannot be there; then all is as before.
        """

    @abstractmethod
    def give_up(self) -> None:
        """From any thread: calls under way end with NotStarted, as later ones do. `close` is still to be called."""

    @abstractmethod
    def hurry(self, farewell: Deadline) -> None:
        """The process leaves: whatever is still said to the store has to be said by then, and `close` returns.

        Without it, `close` takes FAREWELL_S at most. What needs a moment and nobody's answer is done in any case.
        """

    @abstractmethod
    def close(self) -> None:
        """Orderly goodbye: session-bound things vanish at once. Idempotent; later calls raise NotStarted."""

    @abstractmethod
    def abandon_after_fork(self) -> None:
        """In a forked child: let go without a word; the parent goes on with what it has. As closed from then on.

        Called by the child's only thread, whatever the parent's threads were doing: they may hold any lock.
        """

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
