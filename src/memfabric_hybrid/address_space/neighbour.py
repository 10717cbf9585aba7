"""Another process of this host, as the exchange finds it."""

from __future__ import annotations

import msgspec


class Neighbour(msgspec.Struct, frozen=True):
    """Which life of which rank, and where it listens."""

    rank: int
    instance: int
    exchange_name: str
