"""Everybody reaches everybody: what must be so again some seconds after the last fault has ended."""

from __future__ import annotations

import time

from chaos.plan import RECOVERY_S, SLOTS
from chaos.slot_driver import SlotDriver, Violation


def expect_recovered(driver: SlotDriver) -> None:
    """Everybody has reached everybody, in every way, since now."""
    since = time.monotonic()
    missing: list[str] = []

    def recovered() -> bool:
        missing[:] = [
            f"slot {slot} → {way} {target}"
            for slot, totals in enumerate(driver.workers.call_all("totals"))
            for way, targets in (("copy", range(SLOTS)), ("transfer", range(SLOTS)), ("heap", [slot]))
            for target in targets
            if totals["reached"].get((way, target), 0.0) < since
        ]
        return not missing

    try:
        driver.wait_for(recovered, RECOVERY_S, "everybody reaches everybody")
    except Violation as violation:
        raise Violation(f"{violation}\nmissing: {', '.join(missing)}") from None
    driver.say(f"all recovered after {time.monotonic() - since:.2f} s")
