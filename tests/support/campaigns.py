"""How long a campaign is and which random choices it makes: both from the environment, both shown in the report."""

from __future__ import annotations

import os
import random
import secrets


def length(variable: str, ordinary: int) -> int:
    """Rounds of a campaign: `ordinary` in the normal suite, what the variable says under `scripts/soak`."""
    return int(os.environ.get(variable) or ordinary)


def notice_s() -> float:
    """How soon survivors must have been told of a death: generous in the normal suite, whose machine may be busy."""
    return float(os.environ.get("MF_KILL_NOTICE_S") or 5)


def seed() -> int:
    """MF_SEED, or 1: the ordinary suite makes the same choices every time."""
    return int(os.environ.get("MF_SEED") or 1)


def generator(name: str) -> random.Random:
    """Random choices that depend on the seed and the name only, not on what ran before."""
    return random.Random(f"{seed()}:{name}")


def fresh_seed(variable: str) -> int:
    """What the variable says, or another one each time; said in the output either way, so that it can be repeated."""
    chosen = int(os.environ.get(variable) or secrets.randbelow(1 << 31))
    print(f"{variable}={chosen}")
    return chosen
