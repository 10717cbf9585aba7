"""What a member publishes under its rank; for people, for tools, and for who finds the rank taken. Not for routing."""

from __future__ import annotations

import msgspec


class MemberFact(msgspec.Struct, frozen=True, array_like=True):
    pid: int
    host: str
    instance: int
