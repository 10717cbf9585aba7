"""What client and server say to each other: one Struct per sentence, msgpack arrays that start with a small tag.

A request connection carries one request at a time and its reply. The event channel carries Hello and Restore once,
then heartbeats towards the server and pushes towards the client. Nothing here is ever pickled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Union

import msgspec

from memfabric_hybrid.store.frames import FrameError, frame

REQUESTS, EVENTS = 0, 1  # roles of a connection


class _Message(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    pass


# --- requests -------------------------------------------------------------------------------------------------------


class Hello(_Message, tag=1):
    """The first message. Its end makes servers of other protocols, which wait for a line, say what they are."""

    session: bytes
    role: int
    heartbeat_timeout_s: float
    returning: bool = False  # it was a member before its connection was lost, perhaps of an earlier store
    nonce: bytes = b""  # not empty: it has a token, and wants the store to prove that it has the same
    local_key: bytes = b""  # at the local socket of a protected store: what its Welcome at the address said
    number: int = 0  # of this connection among those of its process
    given_up: tuple[int, ...] = ()  # connections of its process: what comes on them from now on is not to be done
    end: str = "memfabric_hybrid\r\n\r\n"


class Heartbeat(_Message, tag=2):
    pass


class Goodbye(_Message, tag=3):
    pass


class Set(_Message, tag=4):
    key: str
    value: bytes
    ephemeral: bool


class Get(_Message, tag=5):
    key: str


class Wait(_Message, tag=6):
    key: str
    timeout_s: float


class Delete(_Message, tag=7):
    key: str


class Add(_Message, tag=8):
    key: str
    delta: int


class CompareAndSet(_Message, tag=9):
    key: str
    expected: bytes | None
    value: bytes
    ephemeral: bool


class Append(_Message, tag=10):
    key: str
    suffix: bytes


class ReadPrefix(_Message, tag=11):
    prefix: str


class StartWatch(_Message, tag=12):
    watch: int
    prefix: str


class EndWatch(_Message, tag=13):
    watch: int


class ClaimRank(_Message, tag=14):
    """`claim` is a number of the client's choice: the same number again is the same claim, repeated."""

    claim: int
    group: str
    capacity: int
    value: bytes
    wanted: int | None
    excluded: tuple[int, ...]


class ReleaseRank(_Message, tag=15):
    group: str
    rank: int


class HoldRange(_Message, tag=16):
    """`asked`: by whom and for what, in the words of programs; for the sentence when others ask for another size."""

    name: str
    size_bytes: int
    asked: str = ""


class ReleaseRange(_Message, tag=17):
    name: str


class Gather(_Message, tag=18):
    """`call` is a number of the client's choice: the same number again is the same call, repeated."""

    call: int
    group: str
    round: int
    rank: int
    size: int
    data: bytes
    timeout_s: float


class RestoredClaim(_Message):
    group: str
    rank: int
    capacity: int
    value: bytes
    claim: int


class RestoredRange(_Message):
    name: str
    base: int
    size_bytes: int


class Restore(_Message, tag=19):
    """All that the session owns; what the server still holds for it beyond this is dropped."""

    known_revision: int
    ephemerals: dict[str, bytes]
    claims: tuple[RestoredClaim, ...]
    ranges: tuple[RestoredRange, ...]
    watches: dict[int, str]


class Proof(_Message, tag=20):
    """The answer to a Challenge, see `proofs.py`. Empty: the store's own proof was wrong."""

    proof: bytes


class FreeRanks(_Message, tag=21):
    """Which ranks nobody has, the lowest `most` of them."""

    group: str
    capacity: int
    most: int


# --- replies --------------------------------------------------------------------------------------------------------


class Welcome(_Message, tag=64):
    incarnation: str
    revision: int
    local_key: bytes = b""  # of a protected store: for Hellos at its local socket


class Refused(_Message, tag=65):
    code: int
    sentence: str


class NoSession(_Message, tag=66):
    """The request needs a session and the server knows none: reconnect the event channel, then repeat."""


class Done(_Message, tag=67):
    revision: int


class Value(_Message, tag=68):
    value: bytes | None


class Flag(_Message, tag=69):
    value: bool


class Number(_Message, tag=70):
    value: int


class Swapped(_Message, tag=71):
    won: bool
    value: bytes | None


class Entries(_Message, tag=72):
    revision: int
    entries: dict[str, bytes]


class Gathered(_Message, tag=73):
    parts: list[bytes]


class Arrived(_Message, tag=74):
    """A rendezvous to which nobody brought data, in five bytes whatever its size: the barrier."""

    size: int


class Refusal(_Message):
    """One thing that could not be restored. `kind`: key, rank, range or watch; `name`: the key, range or prefix."""

    kind: str
    name: str
    code: int
    sentence: str


class Restored(_Message, tag=75):
    revision: int
    refused: tuple[Refusal, ...]


class Challenge(_Message, tag=76):
    """The answer to a Hello, by a store that has a token: its own proof, and a nonce for the client's."""

    nonce: bytes
    proof: bytes


class Ranks(_Message, tag=77):
    ranks: tuple[int, ...]


# --- pushes ---------------------------------------------------------------------------------------------------------


class WatchSnapshot(_Message, tag=96):
    watch: int
    revision: int
    entries: dict[str, bytes]


class Changed(_Message, tag=97):
    """For all watches of that prefix: the same bytes go to every session that has one."""

    prefix: str
    revision: int
    entries: dict[str, bytes | None]


Request = Union[  # noqa: UP007 - msgspec needs a runtime union, also on Python 3.10
    Hello, Heartbeat, Goodbye, Set, Get, Wait, Delete, Add, CompareAndSet, Append, ReadPrefix, StartWatch, EndWatch,
    ClaimRank, ReleaseRank, HoldRange, ReleaseRange, Gather, Restore, Proof, FreeRanks,
]  # fmt: skip
Reply = Union[  # noqa: UP007
    Welcome, Refused, NoSession, Done, Value, Flag, Number, Swapped, Entries, Gathered, Arrived, Restored, Challenge,
    Ranks,
]  # fmt: skip
Push = Union[WatchSnapshot, Changed]  # noqa: UP007
ServerMessage = Union[Reply, Push]  # noqa: UP007

encode = msgspec.msgpack.Encoder().encode
_decode_request: Callable[[bytes], Request] = msgspec.msgpack.Decoder(Request).decode
decode_answer: Callable[[bytes], ServerMessage] = msgspec.msgpack.Decoder(ServerMessage).decode
DECODE_ERRORS = (msgspec.DecodeError, ValueError, RecursionError)


def framed(message: Request | ServerMessage) -> bytes:
    """The bytes of a message as they go over the wire."""
    return frame(encode(message))


def decode_request(payload: bytes) -> Request:
    """Raises FrameError for anything that is not exactly one request."""
    try:
        return _decode_request(payload)
    except DECODE_ERRORS as error:
        raise FrameError(f"a frame of {len(payload)} bytes is not a request: {error}") from None


def decode_server_message(payload: bytes) -> ServerMessage:
    """Raises FrameError for anything that is not exactly one reply or push."""
    try:
        return decode_answer(payload)
    except DECODE_ERRORS as error:
        raise FrameError(f"a frame of {len(payload)} bytes is not an answer of a store: {error}") from None


HEARTBEAT_FRAME = framed(Heartbeat())
