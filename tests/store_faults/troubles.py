"""Who was in trouble, and when: what failed meanwhile had a cause, what failed otherwise is a violation. Pure.

A slot is in trouble while its process is dead, stopped, starved or has not joined yet; the store while it is away,
stopped or on its way to another place. Both may be missed for a while afterwards.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from store_faults.plan import SETTLE_S

STORE, NODES = -1, -2  # beside the slots: the store, and single nodes of one that serves all the time
UNENDING = float("inf")


class Span(NamedTuple):
    begins: float
    ends: float

    def meets(self, begins: float, ends: float) -> bool:
        return self.begins <= ends and begins <= self.ends


class Troubles:
    def __init__(self) -> None:
        self._spans: dict[int, list[Span]] = defaultdict(list)  # by slot, or STORE

    def begin(self, who: int, now: float) -> None:
        """Nothing happens if it is in trouble already."""
        spans = self._spans[who]
        if not spans or spans[-1].ends != UNENDING:
            spans.append(Span(now, UNENDING))

    def end(self, who: int, now: float) -> None:
        spans = self._spans[who]
        if spans and spans[-1].ends == UNENDING:
            spans[-1] = Span(spans[-1].begins, max(now, spans[-1].begins))

    def add(self, who: int, begins: float, ends: float) -> None:
        """A trouble that is over already; before one that goes on."""
        spans = self._spans[who]
        spans.insert(len(spans) - 1 if spans and spans[-1].ends == UNENDING else len(spans), Span(begins, ends))

    def met(self, who: int, begins: float, ends: float) -> bool:
        """Itself, at that time, without what follows."""
        return any(span.meets(begins, ends) for span in self._spans[who])

    def excuse_call(self, caller: int, towards: int, began: float, ended: float) -> bool:
        """Whether a call of one slot about another one may have failed: the store does not matter."""
        return any(self._missed(who, began, ended) for who in {caller, towards})

    def excuse_control(self, began: float, ended: float) -> bool:
        """Whether a call that needs the store, or all slots, may have failed."""
        return any(self._missed(who, began, ended) for who in list(self._spans) if who != NODES)

    def _missed(self, who: int, began: float, ended: float) -> bool:
        return any(span.begins <= ended and began <= self._settled(span) for span in self._spans[who])

    def _settled(self, span: Span) -> float:
        """Until when somebody may be missed: whoever has to be heard of through the store waits for it as well."""
        until = span.ends + SETTLE_S
        for away in sorted(self._spans[STORE]):
            if away.meets(span.begins, until):
                until = max(until, away.ends + SETTLE_S)
        return until
