"""Streams for a data connection: requests that are right, or nearly, and then bent, cut, mixed up and doubled."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

from fuzz import data_wire
from fuzz.data_wire import CHECK, FENCE, READ, WRITE, Region

SIZES = (1, 8, 64, 100, 512, 4096)
NUMBERS = (0, 1, 2, 3, 47, 999, 1000, 1001, 1 << 20, (2 << 20) + 1, 1 << 31, (1 << 32) - 1)
ADDRESSES = (0, 1, 4096, (1 << 47) - 4096, 1 << 47, 0xFFFF_8000_0000_0000, (1 << 64) - 8, (1 << 64) - 1)
FIELDS = ((0, "I"), (4, "I"), (8, "I"), (12, "I"), (16, "Q"), (24, "Q"), (32, "Q"), (40, "Q"))  # of a request


class Streams:
    """`regions`: what may be touched; `others`: addresses nearby that may not."""

    def __init__(self, rng: random.Random, regions: Sequence[Region], others: Sequence[int]) -> None:
        self._rng = rng
        self._regions = regions
        self._others = others
        self._earlier = [b""] * 16  # requests of earlier streams, for splices

    def next(self) -> bytes:
        rng = self._rng
        requests = [self._request(number) for number in range(1, rng.choice((1, 2, 4, 8, 16, 32)))]
        requests.append(self._request(len(requests) + 1))
        self._earlier[rng.randrange(16)] = rng.choice(requests)
        if rng.random() < 0.2:
            rng.shuffle(requests)
        # Most streams are bent near their end: the target hangs up at the first thing that makes no sense.
        for _ in range(rng.choice((0, 1, 1, 1, 2))):
            place = len(requests) - 1 if rng.random() < 0.7 else rng.randrange(len(requests))
            requests[place] = self._bent(requests[place])
        return b"".join(requests)

    def _request(self, number: int) -> bytes:
        rng = self._rng
        operation = rng.choice((READ, READ, WRITE, WRITE, WRITE, WRITE, CHECK, CHECK, FENCE))
        pieces = [self._piece() for _ in range(rng.choice((1, 1, 1, 2, 3, 20)))]
        if rng.random() < 0.25:
            pieces[rng.randrange(len(pieces))] = self._stray_piece()
        payload = rng.randbytes(sum(size for _, size in pieces)) if operation == WRITE else b""
        return data_wire.request(operation, pieces, payload, move=rng.choice((0, 1, number, number)), sequence=number)

    def _piece(self) -> tuple[int, int]:
        region, size = self._rng.choice(self._regions), self._rng.choice(SIZES)
        return region.start + self._rng.randrange(len(region.content) - size + 1), size

    def _stray_piece(self) -> tuple[int, int]:
        """Outside, or across an edge."""
        rng = self._rng
        region, size = rng.choice(self._regions), rng.choice(SIZES)
        edges = (region.start - 1, region.start + len(region.content) - size + 1, region.start + len(region.content))
        return rng.choice((*edges, *self._others, *ADDRESSES)), size

    def _bent(self, request: bytes) -> bytes:
        rng, bytes_ = self._rng, bytearray(request or self._request(1))
        place = rng.randrange(len(bytes_))
        if rng.random() < 0.6:
            place = min(place, rng.randrange(data_wire.REQUEST.size))  # the header
        match rng.randrange(8):
            case 0:
                bytes_[place] ^= 1 << rng.randrange(8)
            case 1:
                bytes_[place] = rng.randrange(256)
            case 2:
                bytes_ += bytes(max(0, data_wire.REQUEST.size - len(bytes_)))  # it may have been cut before
                offset, kind = rng.choice(FIELDS)
                value = rng.choice(NUMBERS if kind == "I" else (*NUMBERS, *ADDRESSES, rng.getrandbits(64)))
                struct.pack_into(f"<{kind}", bytes_, offset, value)
            case 3:
                del bytes_[place:]
            case 4:
                bytes_[place:place] = rng.randbytes(rng.randint(1, 40))
            case 5:
                del bytes_[place : place + rng.randint(1, 60)]
            case 6:
                bytes_ = bytes_[:place] + rng.choice(self._earlier)
            case _:
                bytes_ += bytes_[: rng.choice((data_wire.REQUEST.size, len(bytes_)))]
        return bytes(bytes_)


def bent_greeting(rng: random.Random, greeting: bytes, other: bytes) -> bytes:
    """A `Connect` that is not the right one: another secret, target, kind or length; or one half of two right ones."""
    bytes_ = bytearray(greeting)
    place = rng.randrange(len(bytes_))
    match rng.randrange(6):
        case 0:
            bytes_[place] ^= 1 << rng.randrange(8)
        case 1:
            bytes_[-16:] = rng.randbytes(16)
        case 2:
            bytes_[12:28] = rng.randbytes(16)
        case 3:
            bytes_[-16:] = other[-16:]  # the secret of other memory of the same process
        case 4:
            del bytes_[place:]
        case _:
            struct.pack_into("<I", bytes_, 8, rng.choice((0, 31, 33, 1024, 1025, 1 << 31)))
    return bytes(bytes_)
