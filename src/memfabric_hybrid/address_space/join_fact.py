"""What a rank publishes in the store about its part in an object; its neighbours get the rest through the exchange.

A fact's key names its host before its rank, so that the facts of one host can be watched apart from those of all.
"""

from __future__ import annotations

import functools
import hashlib
from typing import NamedTuple

import msgspec

from memfabric_hybrid import logs
from memfabric_hybrid.membership.roster import Stamp
from memfabric_hybrid.store import WatchUpdate
from memfabric_hybrid.transports.ucx_ends import NOT_OFFERED, UcxEnd

log = logs.get(__name__)
HOST_KEY_BYTES = 6


class DataPlace(msgspec.Struct, frozen=True, array_like=True):
    """Where a rank serves its memory to whoever cannot map it, and what it wants to hear."""

    address: str
    memory_id: bytes
    secret: bytes
    has_tls: bool = False  # nothing else is let in


class UcxPlace(msgspec.Struct, frozen=True, array_like=True):
    """The same by UCX, if it offers that; memory that grows has further regions."""

    end: UcxEnd = NOT_OFFERED
    worker_address: bytes = b""  # "": it has no memory yet
    regions: tuple[tuple[int, int, bytes], ...] = ()  # address, size, key


class JoinFact(msgspec.Struct, frozen=True, array_like=True):
    instance: int
    generation: int
    host: str
    pid: int
    dram_bytes: int
    hbm_bytes: int
    exchange_name: str  # where its exchange listens: a name that nobody can guess
    secret: bytes  # whoever knows it is that process
    max_dram: int
    max_hbm: int
    tag: str
    op_type: int
    data: DataPlace
    ucx: UcxPlace = UcxPlace()

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.instance, self.generation)


_decode_fact = msgspec.msgpack.Decoder(JoinFact).decode


class Sight(NamedTuple):
    """What an update of a watch says: facts that are there, and places (host's key, rank) where there is none now."""

    facts: dict[int, JoinFact]
    gone: list[tuple[str, int]]


@functools.lru_cache(maxsize=4096)
def host_key(host: str) -> str:
    """The host's name inside of keys: short, and plain whatever the host is called."""
    return hashlib.blake2s(host.encode(), digest_size=HOST_KEY_BYTES).hexdigest()


def prefix(object_name: str, host: str | None = None) -> str:
    """Of the facts of all ranks, or of those of one host (its key)."""
    return f"{object_name}/" if host is None else f"{object_name}/{host}/"


def key(object_name: str, host: str, rank: int) -> str:
    """`host` as members know it."""
    return f"{prefix(object_name, host_key(host))}{rank}"


def encode(fact: JoinFact) -> bytes:
    return msgspec.msgpack.encode(fact)


def decode(update: WatchUpdate) -> Sight:
    """What the store shows; what is no fact of a rank, in its place, is left out."""
    sight = Sight({}, [])
    for name, value in update.entries.items():
        place, _, rank = name.rpartition("/")
        host = place.rpartition("/")[2]
        try:
            if not rank.isdecimal():
                raise ValueError(f"{rank!r} is no rank")
            if value is None:
                sight.gone.append((host, int(rank)))
                continue
            fact = _decode_fact(value)
            if host_key(fact.host) != host:
                raise ValueError(f"its host is {host_key(fact.host)}")
            sight.facts[int(rank)] = fact
        except (ValueError, msgspec.DecodeError) as error:
            log.warning("the store shows %r, which no rank has written: %s", name, error)
    return sight
