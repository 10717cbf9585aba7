"""What the driver and the members of the campaign against the store have agreed on."""

from __future__ import annotations

import os

from chaos.plan import HEARTBEAT_S, SLOTS, environment

__all__ = ["HEARTBEAT_S", "SLOTS", "environment"]
SECONDS = 26.0  # of all worlds together, in the ordinary suite
SEED_VARIABLE = "MF_STORE_FAULT_SEED"

# ---- faults ---------------------------------------------------------------------------------------------------------

AWAY_S = (0.0, 0.3, 4.5)  # how long a killed store stays away: control calls go on, or time out
BRIEFLY_S = 0.5 * HEARTBEAT_S  # nobody may notice
LONG_S = HEARTBEAT_S + 2.0  # everybody has noticed; an etcd's leases end half a second later, in whole seconds

# ---- what is a failure of the campaign ------------------------------------------------------------------------------

SETTLE_S = 6.0  # after its trouble somebody may still be missed for so long
CALM_S = 1.0  # nothing fails in this time, once everybody has reached everybody
LOG_LATE_S = 5.0  # a line may come so much later than what it explains
FLOOD_LINES, FLOOD_S = 30, 10.0  # more lines of one kind than this, within so many seconds, are a flood
UNSERVED_S = 0.5 * HEARTBEAT_S  # an etcd that nobody has disturbed and that answers no later cannot keep leases alive
STARVED_S = 0.3  # who did not get the processor for so long is in trouble, as if it had been stopped


def switched_off() -> frozenset[str]:
    """Faults that are not injected: MF_STORE_FAULT_WITHOUT (names with commas between) narrows down what is wrong."""
    return frozenset(filter(None, os.environ.get("MF_STORE_FAULT_WITHOUT", "").split(",")))


def with_hosts() -> bool:
    """Whether a world of several hosts is among them: after a pause of a host, creates of a heap can fail each other
    for seconds, which is longer than the ordinary suite can allow.
    """
    return "MF_STORE_FAULT_SECONDS" in os.environ


def seconds() -> float:
    """How long all worlds together are in trouble."""
    return float(os.environ.get("MF_STORE_FAULT_SECONDS") or SECONDS)
