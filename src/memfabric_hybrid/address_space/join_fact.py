"""What a rank publishes in the store about its part in an object; its neighbours get the rest through the exchange."""

from __future__ import annotations

import msgspec

from memfabric_hybrid import logs
from memfabric_hybrid.membership.roster import Stamp
from memfabric_hybrid.store import WatchUpdate
from memfabric_hybrid.transports.ucx_ends import NOT_OFFERED, UcxEnd

log = logs.get(__name__)


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


def key(object_name: str, rank: int) -> str:
    return f"{object_name}/{rank}"


def encode(fact: JoinFact) -> bytes:
    return msgspec.msgpack.encode(fact)


def decode(update: WatchUpdate) -> dict[int, JoinFact | None]:
    """What the store shows, by rank; what is no fact of a rank is left out."""
    facts: dict[int, JoinFact | None] = {}
    for name, value in update.entries.items():
        rank = name.rpartition("/")[2]
        try:
            if not rank.isdecimal():
                raise ValueError(f"{rank!r} is no rank")
            facts[int(rank)] = None if value is None else _decode_fact(value)
        except (ValueError, msgspec.DecodeError) as error:
            log.warning("the store shows %r, which no rank has written: %s", name, error)
    return facts
