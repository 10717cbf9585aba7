"""Members that go through a series of rendezvous of the store in step, whatever happens to the store.

A rendezvous that has failed has not happened, so its number is used again. But a store may be lost after it has
answered some and not others, and whoever gives up may have been counted just before: then some are one step ahead, and
wait in vain for those who are one behind. So whoever waits shows the result of the step before, and who finds its own
step there has met the others after all. Nobody can be further ahead: the next step needs everybody.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import msgspec

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import FabricError, NotConnected
from memfabric_hybrid.store import Store

LOOK_S = 0.2  # for each request about steps that others have made; the store may be away
CheckFailedRanks = Callable[[], None]


class Step(msgspec.Struct, frozen=True, array_like=True):
    """A rendezvous that has happened: its number, and what everybody brought."""

    number: int
    parts: list[bytes]


_decode_step = msgspec.msgpack.Decoder(Step).decode


class RendezvousSeries:
    """One place among `size`. Calls come one at a time."""

    def __init__(self, store: Store, group: str, place: int, size: int) -> None:
        self._store = store
        self._group = group
        self._place = place
        self._size = size
        self._last: Step | None = None
        self._shown: Step | None = None
        self._prefix = f"{group}/met/"

    def next(self, data: bytes, deadline: Deadline, check: CheckFailedRanks) -> list[bytes]:
        """Everybody's data, in order of place. Ends at once when `check`, which is asked now and then, raises.

        TimedOut: it has not happened, as far as can be known; whoever calls again must bring the same.
        NotConnected: it did, and this time something else was brought.
        """
        number = 0 if self._last is None else self._last.number + 1
        has_waited = False

        def look_around() -> list[bytes] | None:
            nonlocal has_waited
            check()
            found = self._met_without_us(number, data) if has_waited else None
            has_waited = True
            return found

        parts = self._store.gather(
            self._group, number, self._place, self._size, data, deadline=deadline, look_around=look_around
        )
        self._last = Step(number, parts)
        self._hide()  # everybody has come to this step: nobody is behind the last one
        return parts

    def close(self) -> None:
        self._hide()

    def _met_without_us(self, number: int, data: bytes) -> list[bytes] | None:
        """The result of our step, if somebody is ahead of us."""
        try:
            self._show()
            shown = self._store.prefix(self._prefix, deadline=Deadline(LOOK_S)).entries
        except FabricError:  # it is away: whoever waits for it is told by the rendezvous
            return None
        steps = [_decode_step(value) for value in shown.values()]
        parts = next((step.parts for step in steps if step.number == number), None)
        if parts is not None and parts[self._place] != data:
            raise NotConnected(
                f"gather {self._group!r} round {number} has happened with what this place brought in a call that timed "
                "out, and this call brings something else; create the object again"
            )
        return parts

    def _show(self) -> None:
        if self._last is not None and self._shown != self._last:
            key = f"{self._prefix}{self._place}"
            self._store.set(key, msgspec.msgpack.encode(self._last), deadline=Deadline(LOOK_S), ephemeral=True)
            self._shown = self._last

    def _hide(self) -> None:
        if self._shown is not None:
            self._shown = None
            with suppress(FabricError):  # it goes with us
                self._store.delete(f"{self._prefix}{self._place}", deadline=Deadline(LOOK_S))
