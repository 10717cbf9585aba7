"""Sessions whose names are no addresses: the store as a directory from a name to the address of its engine.

Nobody needs it whose session ids are addresses; an engine with such an id never talks to a store.
"""

from __future__ import annotations

import socket

from memfabric_hybrid import logs, settings
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import Duplicated, NotConnected, ResourceInUse, TimedOut
from memfabric_hybrid.membership import left_ranks
from memfabric_hybrid.store import StoreUrl, connect
from memfabric_hybrid.store.server import hosting

log = logs.get(__name__)
_PREFIX = "transfer/sessions/"
LOOK_S = 0.5  # whether somebody listens at an address
NOTICED_S = 2.0  # a store may notice a death so much later than after its heartbeat time-out


class Directory:
    """One engine's use of the store. Connects on first use; `close()` takes the engine's name out again."""

    def __init__(self, url: StoreUrl, *, may_host: bool, timeout_s: float) -> None:
        self._hosted = url
        self._timeout_s = timeout_s
        self._owner = f"transfer/{id(self):x}"
        if may_host and hosting.is_local(url):
            try:
                hosting.host(url, self._owner)
            except ResourceInUse as failure:
                log.info("the store runs elsewhere: %s", failure)
        self._store = connect(url)

    def publish(self, session: str, address: str) -> None:
        """`session` is found at `address` as long as this engine lives. TimedOut when no store answers.

        Duplicated: another engine has that name. One that is dead is waited for until the store has noticed its end,
        which after a loss of its own may take it another time-out; TimedOut if it takes longer.
        """
        key, value = _PREFIX + session, address.encode()
        try:
            self._store.set(key, value, deadline=Deadline(self._timeout_s), ephemeral=True)
            return
        except Duplicated:
            holder = self._store.get(key, deadline=Deadline(self._timeout_s))
        if holder is not None and _somebody_listens(holder.decode()):
            raise Duplicated(
                f"session {session!r} is the name of another engine, at {holder.decode()}; stop that one, or choose "
                "another name"
            )
        noticed = Deadline(max(self._timeout_s, 2 * settings.heartbeat_timeout_s() + NOTICED_S))
        if holder is not None and not left_ranks.wait_for_end(self._store, key, noticed):
            raise TimedOut(
                f"session {session!r} is the name of a dead engine, whose end store {self._store.url} has not noticed "
                f"within {noticed.timeout_s:g} s; try again"
            )
        self._store.set(key, value, deadline=Deadline(self._timeout_s), ephemeral=True)

    def find(self, session: str) -> str:
        """The address of a session; NotConnected when nobody has that name."""
        found = self._store.get(_PREFIX + session, deadline=Deadline(self._timeout_s))
        if found is None:
            raise NotConnected(
                f"session {session!r} is no address, and the store {self._store.url} knows no engine of that name"
            )
        return found.decode()

    def give_up(self) -> None:
        """From any thread: `publish` and `find` end at once. `close` is still to be called."""
        self._store.give_up()

    def close(self, farewell: Deadline) -> None:
        self._store.hurry(farewell)
        self._store.close()
        hosting.release(self._hosted, self._owner)

    def abandon_after_fork(self) -> None:
        """In a forked child: the connections are the parent's."""
        self._store.abandon_after_fork()


def _somebody_listens(address: str) -> bool:
    """False only if the machine of that address says so itself: who does not answer may be alive."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=LOOK_S).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True
    return True
