"""What the driver and the workers of the chaos campaign have agreed on: places, sizes, time limits, switches."""

from __future__ import annotations

import os
import secrets

SLOTS = 5  # worker processes; one that ends is followed by another in the same slot
WORLD = 8  # ranks of the pool: the slots', and some for forked children
MIB = 1 << 20

# ---- time limits of the library, short, so that much happens in a minute --------------------------------------------

HEARTBEAT_S = 1.5
TRANSFER_TIMEOUT_S = 1.0
INIT_TIMEOUT_S = 6
CREATE_TIMEOUT_S = 3
OPERATION_TIMEOUT_S = 2
FAREWELL_S = 1.0  # `destroy` and `uninitialize`: how long they may wait for a store that is away

# ---- what is a failure of the campaign ------------------------------------------------------------------------------

SLACK_S = 3.0  # a call may be late by this much beyond its documented time limit, on a machine that does much else
FALSE_SUCCESS_S = 5.0  # nobody may reach a process that has been dead for so long
RECOVERY_S = 25.0  # once all is well outside, everybody reaches everybody again within this time
LEAVE_S = 10.0  # an orderly exit
FOOTPRINT_SPREAD = 10  # descriptors or mappings that one worker may have more than another in the same state

# ---- where bytes go: every slot has a zone in everybody's memory, every thread of it a lane there --------------------

LANES = 6
LANE_BYTES = MIB
BIG_BYTES = 40 * MIB
ZONE_BYTES = LANES * LANE_BYTES + BIG_BYTES
MEMORY_BYTES = SLOTS * ZONE_BYTES
HEAP_ZONE_BYTES = MIB
HEAP_BYTES = SLOTS * HEAP_ZONE_BYTES
LOOSE_BYTES = MIB  # memory that is registered and unregistered all the time
MIXED_LANE = 4  # copies between two other ranks end here: the pattern names the rank that they come from
MAIN_LANE = 5  # the main thread's, which has signal handlers
VALUES = 12  # limit of atomic values

POOL, ARENA, PRIVATE, HEAP, LOOSE = 1, 2, 3, 4, 5  # kinds of memory, part of every pattern


def switched_off() -> frozenset[str]:
    """Faults that are not injected: MF_CHAOS_WITHOUT (names with commas between) narrows down what is wrong."""
    return frozenset(filter(None, os.environ.get("MF_CHAOS_WITHOUT", "").split(",")))


def seconds() -> float:
    """How long the driver makes trouble."""
    return float(os.environ.get("MF_CHAOS_SECONDS") or 60)


def seed() -> int:
    """Another one each time, unless one is to be repeated."""
    return int(os.environ.get("MF_CHAOS_SEED") or secrets.randbelow(1 << 31))


def environment() -> dict[str, str]:
    """Of every process of the campaign."""
    return {
        "MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S": str(HEARTBEAT_S),
        "MF_TRANSFER_TIMEOUT_MS": str(int(TRANSFER_TIMEOUT_S * 1000)),
    }


def lane_offset(writer: int, lane: int) -> int:
    """Where a writer's lane begins in anybody's memory; lane LANES is the big one."""
    return writer * ZONE_BYTES + lane * LANE_BYTES
