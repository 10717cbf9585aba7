"""What a call of a simulated member raises."""

from __future__ import annotations


class Failed(Exception):
    """`attempts`: so many connections it took until the store itself said so; 0: it never did."""

    def __init__(self, code: int, sentence: str, attempts: int = 0) -> None:
        super().__init__(f"{code}: {sentence}")
        self.code = code
        self.attempts = attempts
