"""Our links: a connection to each neighbour that we have asked something, kept for the news of its end.

Threads: any. `_lock` guards the tables; it is held for moments, and nothing else is locked or called under it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from memfabric_hybrid import logs
from memfabric_hybrid._native import Endpoint, Link
from memfabric_hybrid.address_space.neighbour import Neighbour
from memfabric_hybrid.errors import NoResources, NotConnected
from memfabric_hybrid.machine.peer_credentials import OtherUser, check_peer

log = logs.get(__name__)
TOLD_ABOUT = 64  # neighbours of which the log has said why they cannot be reached


class Links:
    """`on_lost(instance)` is called once for each link that breaks, on the thread that sees it first."""

    def __init__(self, endpoint: Endpoint, on_lost: Callable[[int], None]) -> None:
        self._endpoint = endpoint
        self._on_lost = on_lost
        self._lock = threading.Lock()  # guards everything below
        self._by_instance: dict[int, Link] = {}  # of the other side
        self._instances: dict[Link, int] = {}
        self._untried: set[Link] = set()  # nothing was ever agreed on them
        self._told: dict[int, str] = {}  # instance → why it could not be reached, the latest ones

    def to(self, neighbour: Neighbour) -> Link | None:
        """The link to it, made now if there is none; None when it cannot be reached. One asker at a time.

        OtherUser: what listens there is no process of ours, and is told nothing.
        """
        return self._by_instance.get(neighbour.instance) or self._connect(neighbour)

    def _connect(self, neighbour: Neighbour) -> Link | None:
        try:
            link = Link.connect(neighbour.exchange_name)
            check_peer(link)
        except NoResources as failure:
            raise NoResources(f"rank {neighbour.rank} of this host cannot be asked: {failure}") from failure
        except OtherUser:
            raise
        except (NotConnected, PermissionError) as failure:
            self._tell(neighbour, str(failure))
            return None
        with self._lock:  # before it is watched: what comes on links that are not known is a stranger's
            self._by_instance[neighbour.instance] = link
            self._instances[link] = neighbour.instance
            self._untried.add(link)
        if self._endpoint.add(link):
            return link
        self._forget(link)
        raise NoResources(f"rank {neighbour.rank} of this host cannot be asked: the kernel watches no further socket")

    def _tell(self, neighbour: Neighbour, reason: str) -> None:
        """Once: while the store is away and its rank is still on show, the dead one is asked again and again."""
        with self._lock:
            is_known = self._told.pop(neighbour.instance, "") == reason
            self._told[neighbour.instance] = reason
            if len(self._told) > TOLD_ABOUT:
                del self._told[next(iter(self._told))]
        if not is_known:
            log.info("rank %d cannot be reached on this host: %s", neighbour.rank, reason)

    def __contains__(self, link: Link) -> bool:
        return link in self._instances

    def is_whole(self, instance: int) -> bool:
        """Whether there is a link to that process; once it breaks, `on_lost` has been or will be called."""
        with self._lock:
            return instance in self._by_instance

    def prove(self, link: Link) -> None:
        """The other side has answered."""
        with self._lock:
            self._untried.discard(link)

    def end(self, link: Link) -> None:
        """The other side is gone (or talks nonsense). The asker or the exchange's thread; whoever is first tells."""
        instance = self._forget(link)
        if instance is not None:
            self._on_lost(instance)

    def end_if_untried(self, link: Link) -> None:
        """The neighbour is short of descriptors, and this one has brought nothing. Nobody takes its end for a death:
        the other side does not know who we are."""
        if link in self._untried:
            self._forget(link)

    def _forget(self, link: Link) -> int | None:
        """The instance at its other end; None: somebody else has done it."""
        with self._lock:
            instance = self._instances.pop(link, None)
            if instance is not None:
                del self._by_instance[instance]
                self._untried.discard(link)
        if instance is not None:
            self._endpoint.drop(link)
        return instance
