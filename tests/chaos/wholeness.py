"""Everybody reaches everybody: what must be so again some seconds after the last mishap has ended."""

from __future__ import annotations

import time

from chaos.plan import SLOTS, WHOLE_S
from chaos.referee import Referee, Violation


def expect_whole(referee: Referee) -> None:
    """Everybody has reached everybody, in every way, since now."""
    since = time.monotonic()
    missing: list[str] = []

    def whole() -> bool:
        missing[:] = [
            f"slot {slot} → {way} {target}"
            for slot, totals in enumerate(referee.workers.call_all("totals"))
            for way, targets in (("copy", range(SLOTS)), ("transfer", range(SLOTS)), ("heap", [slot]))
            for target in targets
            if totals["reached"].get((way, target), 0.0) < since
        ]
        return not missing

    try:
        referee.wait_for(whole, WHOLE_S, "everybody reaches everybody")
    except Violation as violation:
        raise Violation(f"{violation}\nmissing: {', '.join(missing)}") from None
    referee.say(f"all whole after {time.monotonic() - since:.2f} s")
