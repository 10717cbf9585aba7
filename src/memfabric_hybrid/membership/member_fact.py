"""What a member publishes under its rank: for people, for tools, for who finds the rank taken or looks for its host."""

from __future__ import annotations

import msgspec


class MemberFact(msgspec.Struct, frozen=True, array_like=True):
    pid: int
    host: str
    instance: int


_decode = msgspec.msgpack.Decoder(MemberFact).decode
encode = msgspec.msgpack.Encoder().encode


def host_in(value: bytes | None) -> str | None:
    """The host that such a fact names; None for no fact, or for what no member has written."""
    try:
        return None if value is None else _decode(value).host
    except msgspec.DecodeError:
        return None
