"""What the store accepts, in one place: sizes, counts, and the checks that name the value and the limit. Pure.

Both sides use these: the client before it sends, the server because it trusts nobody.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from memfabric_hybrid import _native
from memfabric_hybrid.errors import InvalidParam

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MAX_GROUP_RANKS = 16 * 1024  # of one group: more than a world can have today, so that the store is not what limits it
BACKLOG = 4 * _native.MAX_RANKS  # all members may connect in the same instant

MAX_KEY_BYTES = 1024
MAX_VALUE_BYTES = 64 * MIB
MAX_RANK_VALUE_BYTES = 64 * KIB  # of the key that a claimed rank is
MAX_GATHER_BYTES = _native.MAX_GATHER_BYTES
MAX_REVISION = 1 << 62  # that anybody is believed to have seen; leaves room for all that will ever be written
MAX_TIMEOUT_S = float(1 << 32)
MAX_EPHEMERAL_BYTES = 32 * MIB  # per session: all of it must fit into one Restore
MAX_MEMBERS_BYTES = 512 * MIB  # of all members' keys together, see `state/ownership.py`
MAX_EPHEMERALS_BYTES = 256 * MIB  # of all other ephemeral keys and ranks together
MAX_PLAIN_BYTES = 256 * MIB  # of all keys together that belong to nobody
SMALL_CLAIM_BYTES = 2 * KIB  # a claim of a rank that is not larger can always wait, as a member's does
MAX_WAITING_CLAIMS_BYTES = 64 * MIB  # of larger ones, while a store that was just started lets them wait
MAX_RANGES = MAX_WATCHES = 4096  # per session
SMALL_WATCHES = 4  # of a session: so many always find room
MAX_MEMBERS_WATCHES_BYTES, MAX_OTHERS_WATCHES_BYTES = 256 * MIB, 64 * MIB  # of all sessions together
MAX_MEMBERS_RANGES_BYTES, MAX_OTHERS_RANGES_BYTES = 256 * MIB, MIB  # the same; others' are looked through by each other
SMALL_GATHER_BYTES = KIB  # what a rank brings to a rendezvous; so much always finds room
MAX_MEMBERS_GATHERS_BYTES, MAX_OTHERS_GATHERS_BYTES = 512 * MIB, 64 * MIB  # of larger ones, while some are missing
MAX_SESSION_CONNECTIONS = 1024  # of one session: as many threads of a process can be inside a call
MAX_PREFIX_BYTES = 256 * MIB  # one prefix read or watch snapshot
MAX_PUSH_BYTES = 64 * MIB  # one push of changes; more changes make more pushes

MAX_REQUEST_FRAME_BYTES = MAX_VALUE_BYTES + 64 * KIB
MAX_GREETING_FRAME_BYTES = 64 * KIB  # until the connection has said Hello
MAX_REPLY_FRAME_BYTES = GIB

SESSION_ID_BYTES = 16
MIN_COUNTER, MAX_COUNTER = -(1 << 63), (1 << 63) - 1
_COUNTER = re.compile(rb"-?[0-9]{1,19}")

SHOWN_RANKS = _native.SHOWN_RANKS

KINDS = ("bm", "shm", "offload")  # of members, see `state/ownership.py`
KEPT = tuple(f"{kind}{separator}" for kind in KINDS for separator in "/-")


def is_kept(name: str) -> bool:
    """A key, a range or a rendezvous of members."""
    return name.startswith(KEPT)


def shown(text: str) -> str:
    """A key as a sentence shows it: quoted, not longer than a line."""
    return repr(text if len(text) <= 80 else text[:77] + "...")


def listed(ranks: list[int]) -> str:
    """As a sentence shows them: not all of a thousand."""
    return ", ".join(map(str, ranks[:SHOWN_RANKS])) + (", ..." if len(ranks) > SHOWN_RANKS else "")


def check_key(key: str, what: str = "key") -> None:
    size_bytes = utf8_size_bytes(key, what)
    if not 1 <= size_bytes <= MAX_KEY_BYTES:
        raise InvalidParam(f"{what} {shown(key)} has {size_bytes} bytes of UTF-8, allowed are 1 to {MAX_KEY_BYTES}")


def check_prefix(prefix: str) -> None:
    size_bytes = utf8_size_bytes(prefix, "prefix")
    if size_bytes > MAX_KEY_BYTES:
        raise InvalidParam(f"prefix {shown(prefix)} has {size_bytes} bytes of UTF-8, allowed are 0 to {MAX_KEY_BYTES}")


def utf8_size_bytes(text: str, what: str) -> int:
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise InvalidParam(f"{what} {shown(text)} holds a lone surrogate and cannot be UTF-8") from None


def check_value(key: str, value: bytes) -> None:
    if len(value) > MAX_VALUE_BYTES:
        raise InvalidParam(f"value of key {shown(key)} has {len(value)} bytes, allowed are 0 to {MAX_VALUE_BYTES}")


def check_rank_value(key: str, value: bytes) -> None:
    if len(value) > MAX_RANK_VALUE_BYTES:
        raise InvalidParam(
            f"rank {shown(key)}: its value has {len(value)} bytes, allowed are 0 to {MAX_RANK_VALUE_BYTES}"
        )


def check_counter(key: str, value: int, what: str) -> None:
    if not MIN_COUNTER <= value <= MAX_COUNTER:
        raise InvalidParam(f"{what} {value} of counter {shown(key)} does not fit into signed 64 bits")


def counter(key: str, value: bytes) -> int:
    if not _COUNTER.fullmatch(value):
        raise InvalidParam(f"key {shown(key)} holds {value[:32]!r}, which is no counter")
    return int(value)


def check_timeout(timeout_s: float) -> float:
    if not 0 <= timeout_s <= MAX_TIMEOUT_S:
        raise InvalidParam(f"timeout {timeout_s} s is outside 0 to {MAX_TIMEOUT_S:.0f}")
    return timeout_s


def check_capacity(group: str, capacity: int) -> None:
    if not 1 <= capacity <= MAX_GROUP_RANKS:
        raise InvalidParam(f"capacity {capacity} of group {shown(group)} is outside 1 to {MAX_GROUP_RANKS}")


def check_wanted(group: str, capacity: int, wanted: int | None) -> None:
    if wanted is not None and not 0 <= wanted < capacity:
        raise InvalidParam(f"wanted rank {wanted} of group {shown(group)} is outside 0 to {capacity - 1}")


def check_excluded(group: str, excluded: Collection[int]) -> None:
    if len(excluded) > MAX_GROUP_RANKS:
        raise InvalidParam(
            f"claim of a rank of {shown(group)}: {len(excluded)} ranks are excluded, allowed are {MAX_GROUP_RANKS}"
        )


def check_gather(group: str, rank: int, size: int, data: bytes) -> None:
    """On the hot path, on both sides: one look when all is well."""
    known_good_name = 0 < len(group) <= MAX_KEY_BYTES and group.isascii()
    if known_good_name and 0 <= rank < size <= MAX_GROUP_RANKS and len(data) <= MAX_GATHER_BYTES:
        return
    check_key(group, "group")
    if not 1 <= size <= MAX_GROUP_RANKS:
        raise InvalidParam(f"gather {shown(group)}: size {size} is outside 1 to {MAX_GROUP_RANKS}")
    if not 0 <= rank < size:
        raise InvalidParam(f"gather {shown(group)}: rank {rank} is outside 0 to {size - 1}")
    if len(data) > MAX_GATHER_BYTES:
        raise InvalidParam(
            f"gather {shown(group)}: rank {rank} brings {len(data)} bytes, allowed are 0 to {MAX_GATHER_BYTES}"
        )


def rank_key(group: str, rank: int) -> str:
    """The ephemeral key that a claimed rank is."""
    return f"{group}/{rank}"
