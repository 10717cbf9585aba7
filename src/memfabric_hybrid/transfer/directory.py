"""Sessions whose names are no addresses: the store as a directory from a name to the address of its engine.

Nobody needs it whose session ids are addresses; an engine with such an id never talks to a store.
"""

from __future__ import annotations

from memfabric_hybrid import logs
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import NotConnected, ResourceInUse
from memfabric_hybrid.store import StoreUrl, connect
from memfabric_hybrid.store.server import hosting

log = logs.get(__name__)
_PREFIX = "transfer/sessions/"


class Directory:
    """One engine's use of the store. Connects on first use; `close()` takes the engine's name out again."""

    def __init__(self, url: StoreUrl, *, may_host: bool, timeout_s: float) -> None:
        self.url = url
        self._timeout_s = timeout_s
        self._owner = f"transfer/{id(self):x}"
        if may_host and hosting.is_local(url):
            try:
                hosting.host(url, self._owner)
            except ResourceInUse as failure:
                log.info("the store runs elsewhere: %s", failure)
        self._store = connect(url)

    def publish(self, session: str, address: str) -> None:
        """`session` is found at `address` as long as this engine lives. TimedOut when no store answers."""
        self._store.set(_PREFIX + session, address.encode(), deadline=Deadline(self._timeout_s), ephemeral=True)

    def find(self, session: str) -> str:
        """The address of a session; NotConnected when nobody has that name."""
        found = self._store.get(_PREFIX + session, deadline=Deadline(self._timeout_s))
        if found is None:
            raise NotConnected(
                f"session {session!r} is no address, and the store {self.url} knows no engine of that name"
            )
        return found.decode()

    def give_up(self) -> None:
        """From any thread: `publish` and `find` end at once. `close` is still to be called."""
        self._store.give_up()

    def close(self, farewell: Deadline) -> None:
        self._store.hurry(farewell)
        self._store.close()
        hosting.release(self.url, self._owner)

    def abandon_after_fork(self) -> None:
        """In a forked child: the connections are the parent's."""
        self._store.abandon_after_fork()
