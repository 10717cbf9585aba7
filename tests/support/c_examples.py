"""The C examples: how each is run, on one host or on several, and what it must say."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from support import c_programs
from support.c_programs import Running, finish_together
from support.hosts import Host

TIMEOUT_S = 100.0


class Spot(NamedTuple):
    """Where a process is started, and how: `host` is None beside the test."""

    address: str = "127.0.0.1"
    host: Host | None = None
    prefix: Sequence[str] = ()
    environment: dict[str, str] | None = None

    def start(self, program: Path, *arguments: object) -> Running:
        given: dict[str, Any] = {"prefix": self.prefix, **(self.environment or {})}
        if self.host is None:
            return Running(program, *arguments, **given)
        with self.host.entered():
            return Running(program, *arguments, **given)


HERE = (Spot(),) * 3


def on_hosts(hosts: Sequence[Host]) -> tuple[Spot, ...]:
    """Two processes on the first host, one on the second."""
    first, second = (Spot(host.address, host) for host in hosts[:2])
    return first, second, first


def first_release(program: Path, spots: Sequence[Spot], port: int) -> None:
    url = f"tcp://{spots[0].address}:{port}"
    said = "".join(finish_together([spot.start(program, url, 3) for spot in spots], TIMEOUT_S))
    for rank in range(3):
        assert f"rank {rank} with 2097152 bytes got: hello from rank {(rank - 1) % 3}\n" in said
        assert f"rank {rank} is done\n" in said


def second_generation(program: Path, spots: Sequence[Spot], port: int) -> None:
    url = f"tcp://{spots[0].address}:{port}"
    said = finish_together([spots[rank].start(program, url, 2, rank) for rank in range(2)], TIMEOUT_S)
    assert said == [f"rank {rank} got 64 pieces of 4096 bytes\n" for rank in range(2)]


def third_generation(program: Path, spots: Sequence[Spot], port: int) -> None:
    url = f"tcp://{spots[0].address}:{port}"
    said = "".join(finish_together([spot.start(program, url, 3) for spot in spots], TIMEOUT_S))
    for rank in range(3):
        assert f"rank {rank} saw 2 others join\n" in said
        assert f"rank {rank} heard from all 3\n" in said


def heap(program: Path, spots: Sequence[Spot], port: int) -> None:
    url = f"tcp://{spots[0].address}:{port}"
    ranks = 3 if spots[0].host else 2  # two of one host are enough
    said = finish_together([spots[rank].start(program, url, ranks, rank) for rank in range(ranks)], TIMEOUT_S)
    line = r"rank {} got a row from rank {}; the sums begin with (\d+)\n"
    sums = [re.fullmatch(line.format(rank, (rank - 1) % ranks), said[rank]) for rank in range(ranks)]
    assert len({each[1] for each in sums if each is not None}) == 1
    assert None not in sums


def transfer(program: Path, spots: Sequence[Spot], port: int) -> None:
    _transfer(program, spots, port, "wrote and read 1048576 bytes\n", "the first byte is 6, the last one -3\n")


def transfer_on_streams(program: Path, spots: Sequence[Spot], port: int) -> None:
    _transfer(program, spots, port, "32 pieces on a stream\n", "the pieces begin with 8 and end with 1\n")


def _transfer(program: Path, spots: Sequence[Spot], port: int, source_says: str, target_says: str) -> None:
    session = f"{spots[0].address}:{port}"
    with spots[0].start(program, "target", session) as target:
        address = target.line().split()[1]
        assert finish_together([spots[1].start(program, "source", session, address, spots[1].address)]) == [source_says]
        assert target.end() == target_says


EXAMPLES: dict[str, Callable[[Path, Sequence[Spot], int], None]] = {
    "01_pool_first_release": first_release,
    "02_pool_batches": second_generation,
    "03_pool_options": third_generation,
    "04_heap": heap,
    "05_transfer": transfer,
    "06_transfer_streams": transfer_on_streams,
}
assert {f"{name}.c" for name in EXAMPLES} == {path.name for path in c_programs.EXAMPLES.glob("*.c")}
