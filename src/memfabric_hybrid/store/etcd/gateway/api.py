"""What is said to etcd's JSON gateway and what it answers, as far as the store needs it. Pure.

Bytes are base64 and 64-bit numbers are text on the wire; what is zero or empty is left out. Requests are plain
dictionaries, made here only.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

RANGE, TXN = "/v3/kv/range", "/v3/kv/txn"
GRANT, REVOKE, KEEP_ALIVE, TIME_TO_LIVE = (
    "/v3/lease/grant",
    "/v3/lease/revoke",
    "/v3/lease/keepalive",
    "/v3/lease/timetolive",
)
WATCH, AUTHENTICATE = "/v3/watch", "/v3/auth/authenticate"

Body = dict[str, Any]


class Header(msgspec.Struct):
    cluster_id: int = 0
    revision: int = 0


class KeyValue(msgspec.Struct):
    key: bytes
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    lease: int = 0


class Found(msgspec.Struct):
    """The answer to a range request."""

    header: Header = msgspec.field(default_factory=Header)
    kvs: list[KeyValue] = []


class Deleted(msgspec.Struct):
    deleted: int = 0


class Part(msgspec.Struct):
    """The answer to one request of a transaction."""

    response_range: Found | None = None
    response_delete_range: Deleted | None = None


class Outcome(msgspec.Struct):
    """The answer to a transaction."""

    header: Header
    succeeded: bool = False
    responses: list[Part] = []

    def found(self, index: int) -> list[KeyValue]:
        answer = self.responses[index].response_range
        return [] if answer is None else answer.kvs

    def deleted(self, index: int) -> int:
        answer = self.responses[index].response_delete_range
        return 0 if answer is None else answer.deleted


class Lease(msgspec.Struct):
    """Of a grant, of a look at its keys, and inside `KeptAlive`: there no TTL means that it is gone."""

    header: Header = msgspec.field(default_factory=Header)
    TTL: int = 0
    keys: list[bytes] = []


class KeptAlive(msgspec.Struct):
    result: Lease = msgspec.field(default_factory=Lease)


class Event(msgspec.Struct):
    kv: KeyValue
    type: str = "PUT"

    @property
    def value(self) -> bytes | None:
        """None: it is gone."""
        return None if self.type == "DELETE" else self.kv.value


class Seen(msgspec.Struct):
    """One line of a watch."""

    header: Header = msgspec.field(default_factory=Header)
    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    events: list[Event] = []


class Watched(msgspec.Struct):
    result: Seen | None = None
    error: Any = None


class Authenticated(msgspec.Struct):
    token: str = ""


class Complaint(msgspec.Struct):
    """What it says instead: the code is gRPC's."""

    code: int = 2
    error: str = ""


_Answer = TypeVar("_Answer")
# Made here, by the one thread that imports this: what msgspec finds out about a type when that is decoded first is only
# half there for another thread that decodes it meanwhile, and ends the process.
_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind, strict=False)
    for kind in (Found, Outcome, Lease, KeptAlive, Watched, Authenticated, Complaint)
}


def encode(body: Body) -> bytes:
    return msgspec.json.encode(body)


def decode(answer: bytes, kind: type[_Answer]) -> _Answer:
    """msgspec.DecodeError for what is none of that kind."""
    decoded: _Answer = _DECODERS[kind].decode(answer)
    return decoded


def of_key(key: bytes) -> Body:
    return {"key": key}


def end_of(prefix: bytes) -> bytes:
    """The first name behind all that start with the prefix, which is ours and does not end with 0xff."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))


def of_prefix(prefix: bytes) -> Body:
    return {"key": prefix, "range_end": end_of(prefix)}


def of_prefix_then(prefix: bytes, revision: int) -> Body:
    """As it was at that revision; Compacted when nobody knows any more."""
    return {**of_prefix(prefix), "revision": revision}


def read(what: Body) -> Body:
    return {"request_range": what}


def put(key: bytes, value: bytes, lease: int = 0) -> Body:
    return {"request_put": {"key": key, "value": value, "lease": lease}}


def delete(what: Body) -> Body:
    return {"request_delete_range": what}


def transaction(compare: list[Body], success: list[Body], failure: list[Body]) -> Body:
    return {"compare": compare, "success": success, "failure": failure}


def is_absent(key: bytes) -> Body:
    return {"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": 0}


def is_leased(key: bytes, lease: int) -> Body:
    """With lease 0: absent, or nobody's."""
    return {"key": key, "target": "LEASE", "result": "EQUAL", "lease": lease}


def is_unchanged(key: bytes, mod_revision: int) -> Body:
    """With revision 0: absent."""
    return {"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": mod_revision}


def is_still(seen: KeyValue) -> Body:
    """It was there all the time since it was seen, whatever was written to it."""
    return {"key": seen.key, "target": "CREATE", "result": "EQUAL", "create_revision": seen.create_revision}


def has_nothing_newer(prefix: bytes, revision: int) -> Body:
    """Nothing under the prefix was written after that revision, unless it is gone again."""
    return {**of_prefix(prefix), "target": "MOD", "result": "LESS", "mod_revision": revision + 1}


def has_value(key: bytes, value: bytes) -> Body:
    return {"key": key, "target": "VALUE", "result": "EQUAL", "value": value}
