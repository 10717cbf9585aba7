"""The mishaps, dealt like cards: each once before any comes again, in an order that the seed decides."""

from __future__ import annotations

import random
from collections import Counter

from chaos.plan import switched_off

MISHAPS = (
    "kill",
    "kill two",
    "kill while stopped",
    "stop briefly",
    "stop for long",
    "restart the store",
    "stop the store",
    "take descriptors",
    "close standard error",
    "break standard error",
    "signals that run",
    "signals that raise",
    "fork and check",
    "fork and use anew",
    "leave",
    "leave while busy",
)


class Deck:
    """Every card has random choices of its own, which depend on the seed and its number only."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.kinds = frozenset(MISHAPS) - switched_off()
        self._cards: list[str] = []
        self._number = 0
        self.dealt: Counter[str] = Counter()

    @property
    def all_dealt_once(self) -> bool:
        return self.kinds <= set(self.dealt)

    def deal(self) -> tuple[str, random.Random]:
        if not self._cards:
            self._cards = sorted(self.kinds)
            random.Random(f"{self._seed}:deck:{self._number}").shuffle(self._cards)
        card = self._cards.pop()
        self.dealt[card] += 1
        self._number += 1
        return card, random.Random(f"{self._seed}:card:{self._number}")
