"""What the driver and the members of the campaign across hosts have agreed on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

HOSTS = 3  # with members; one more has the store
RANKS_PER_HOST = 2
RANKS = HOSTS * RANKS_PER_HOST
PORT = 9000
MIB = 1 << 20

# ---- time limits of the library --------------------------------------------------------------------------------------

HEARTBEAT_S = 2.5
OPERATION_TIMEOUT_S = 3
TRANSFER_TIMEOUT_S = 3.0

# A fault is much shorter than the heartbeat time-out, or so much longer that everybody has noticed. In between TCP may
# be silent for longer than the fault was, and who hears from the store first takes the others for gone for a moment.
LASTS_S = (0.1, 0.4, 2 * HEARTBEAT_S + 0.5)

# ---- what is a failure of the campaign -------------------------------------------------------------------------------

LATE_S = 12.0  # beyond the time-outs, on a machine that does much else
RECOVERY_S = 40.0  # once all is well outside, everybody reaches everybody again within this time
IDLE_S = 1.0  # how long idle members are looked at ...
IDLE_SHARE = 0.05  # ... and how much of a core one may use

# ---- where bytes go: in everybody's memory each writer has a lane ----------------------------------------------------

LANE = MIB
MEMORY = RANKS * LANE
SIZES = (64, 4096, 100_000, LANE)
POOL, HEAP, ENGINE = 1, 2, 3  # kinds of memory, part of every pattern
KINDS = {"pool": POOL, "heap": HEAP, "engine": ENGINE}


class Place(NamedTuple):
    """Where a member's engine is reached."""

    session: str
    address: int


Places = Mapping[int, Place]  # by rank


def host_of(rank: int) -> int:
    return rank // RANKS_PER_HOST


def ranks_on(host: int) -> range:
    return range(host * RANKS_PER_HOST, (host + 1) * RANKS_PER_HOST)


def environment() -> dict[str, str]:
    return {
        "MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S": f"{HEARTBEAT_S:g}",
        "MF_TRANSFER_TIMEOUT_MS": f"{TRANSFER_TIMEOUT_S * 1000:.0f}",
        "MF_LOG_LEVEL": "1",  # shown if it fails: when who was lost, by whose account
    }
