"""Which network interface a program chooses: the limits of what it may say."""

from __future__ import annotations

from memfabric_hybrid.errors import InvalidParam

MAX_CHARACTERS = 63


def check_length(nic: str) -> None:
    if len(nic) > MAX_CHARACTERS:
        raise InvalidParam(f"nic has {len(nic)} characters, the limit is {MAX_CHARACTERS}")
