"""Our own memory, as UCX serves it to others while we take part.

Threads: a turn of the pool.
"""

from __future__ import annotations

from memfabric_hybrid import _native, logs
from memfabric_hybrid.address_space.join_fact import UcxPlace
from memfabric_hybrid.errors import FabricError
from memfabric_hybrid.transports.ucx_ends import UcxEnd
from memfabric_hybrid.transports.ucx_offer import UcxOffer

log = logs.get(__name__)


class UcxMemory:
    """`is_demanded`: nothing else would do. The space ends what is served, when it is concealed or closed."""

    def __init__(self, title: str, space: _native.Space, offer: UcxOffer, *, is_demanded: bool) -> None:
        self._title = title
        self._space = space
        self._offer = offer
        self._is_demanded = is_demanded
        self._place: UcxPlace | None = None  # while we take part

    def serve(self) -> UcxPlace:
        """Where others find it. All of it, again when it has grown.

        A FabricError if it must be served and cannot. If other ways are left, the place says why it has none; memory
        that grows later must be served like what was there before: its users cannot change the way.
        """
        place = self._place
        if self._offer.context is None or (place is not None and place.end.obstacle):
            self._place = place or UcxPlace(self._offer.end)
            return self._place
        try:
            served = UcxPlace(self._offer.end, *self._space._serve_ucx(self._offer.context))
        except FabricError as failure:
            if self._is_demanded or place is not None:
                raise
            log.warning("%s: not served by UCX: %s", self._title, failure)
            served = UcxPlace(UcxEnd(obstacle=str(failure)))
        self._place = served
        return served

    def conceal(self) -> None:
        """When it returns, nobody of another host touches our memory any more."""
        self._space._conceal()
        self._place = None
