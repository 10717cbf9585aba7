"""Sizes of copies: small and large ones equally often."""

from __future__ import annotations

import random


def some_size(choices: random.Random, most: int) -> int:
    """1 to `most` bytes; every power of two is as likely as the next."""
    return min(most, int(2 ** choices.uniform(0, most.bit_length())) or 1)
