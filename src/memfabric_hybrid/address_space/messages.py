"""What the processes of one host say to each other over the exchange. Descriptors travel beside the bytes.

One packet (SOCK_SEQPACKET) is one message. Only processes of the same user, or root, are heard at all, and they are
believed only about themselves: every request carries the secret that its sender, and nobody else, has published in the
store beside its rank.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from memfabric_hybrid import _native

Rank = Annotated[int, msgspec.Meta(ge=0, lt=_native.MAX_RANKS)]
Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class SegmentFact(msgspec.Struct, frozen=True, array_like=True):
    """One segment; its descriptor has the same position among the packet's descriptors."""

    tier: Annotated[int, msgspec.Meta(ge=0, le=1)]
    slot_offset: Number
    size_bytes: Number


class Share(msgspec.Struct, frozen=True, array_like=True):
    """One rank's part of an object: who, which life of it, and its segments.

    Descriptors beyond those of the segments are enclosures, whose meaning is the object's own business.
    """

    rank: Rank
    instance: Number
    generation: Number
    pid: int
    max_dram: Number
    max_hbm: Number
    tag: str
    op_type: Number
    segments: tuple[SegmentFact, ...]


class Offer(msgspec.Struct, frozen=True, array_like=True, tag="offer"):
    """I take part in `object_name`; here is my share. Answered by Accept, NotHere or Refuse."""

    object_name: str
    share: Share
    secret: bytes = b""

    @property
    def rank(self) -> int:
        return self.share.rank

    @property
    def instance(self) -> int:
        return self.share.instance


class Withdraw(msgspec.Struct, frozen=True, array_like=True, tag="withdraw"):
    """I leave `object_name`, for `reason` if it is not my own wish; answered by Done when the other side touches my
    memory no more."""

    object_name: str
    rank: Rank
    instance: Number
    generation: Number
    reason: str = ""
    secret: bytes = b""


class Accept(msgspec.Struct, frozen=True, array_like=True, tag="accept"):
    """Your share is mapped here; this is mine."""

    share: Share


class NotHere(msgspec.Struct, frozen=True, array_like=True, tag="not_here"):
    """This process does not take part in that object (yet)."""


class Refuse(msgspec.Struct, frozen=True, array_like=True, tag="refuse"):
    """The share does not fit; the sentence says why."""

    code: int
    sentence: str


class Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    """Withdrawn."""


class Nonsense(Exception):
    """The packet is no message of an exchange; the text says what is wrong with it."""


Request = Offer | Withdraw
Answer = Accept | NotHere | Refuse | Done

_DECODE_ERRORS = (msgspec.DecodeError, ValueError, RecursionError)  # text that is not UTF-8 is a ValueError
_encoder = msgspec.msgpack.Encoder()
_request_decoder: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_answer_decoder: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


def encode(message: Request | Answer) -> bytes:
    return _encoder.encode(message)


def decode_request(packet: bytes) -> Request:
    try:
        return _request_decoder.decode(packet)
    except _DECODE_ERRORS as error:
        raise Nonsense(f"{len(packet)} bytes are no request: {error}") from None


def decode_answer(packet: bytes) -> Answer:
    try:
        return _answer_decoder.decode(packet)
    except _DECODE_ERRORS as error:
        raise Nonsense(f"{len(packet)} bytes are no answer: {error}") from None
