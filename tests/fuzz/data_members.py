"""The processes of the data port's campaign: a target with registered and pool memory, and a healthy peer of it.

    target memory, private   | guard | zone | guard | peer's zone | guard |      zone and peer's zone are registered
    target memory, pool      | zone ............... | peer's zone | .....        all of it is served

The fuzzer has the secrets and writes everywhere but into the peer's zones, which the peer checks.
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import resource
import threading
import time
from typing import Any

import memfabric_hybrid as mf
from support import pool_worker

ZONE = 64 << 10
POOL_BYTES = 2 << 20
PEER_IN_POOL = range(1 << 20, (1 << 20) + ZONE)
BLOCK = 16 << 10  # of the peer's copies
STAMP = bytes(range(1, 252))

engine = mf.TransferEngine()
private = mmap.mmap(-1, 5 * ZONE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
PRIVATE = ctypes.addressof(ctypes.c_char.from_buffer(private))
movers: list[Mover] = []


def stamp(size: int) -> bytes:
    return (STAMP * (size // len(STAMP) + 1))[:size]


def open_target(store_url: str) -> tuple[str, int, int]:
    """(session, address of the private memory, address of the pool's)."""
    pool_worker.must(engine.initialize(None, "127.0.0.1:0", "Decode", 0))
    private[:] = stamp(5 * ZONE)
    for number in (1, 3):
        pool_worker.must(engine.register_memory(PRIVATE + number * ZONE, ZONE))
    assert pool_worker.take_part(store_url, dram=POOL_BYTES) == 0
    pool_worker.store(0, 0, stamp(POOL_BYTES))
    return engine.session_id, PRIVATE, pool_worker.address(0)


def contents() -> tuple[bytes, bytes]:
    """Private memory and pool, the peer's zones blanked out."""
    own, pool = bytearray(private[:]), bytearray(pool_worker.load(0, 0, POOL_BYTES))
    own[3 * ZONE : 4 * ZONE] = bytes(ZONE)
    pool[PEER_IN_POOL.start : PEER_IN_POOL.stop] = bytes(ZONE)
    return bytes(own), bytes(pool)


def digests() -> list[str]:
    return [hashlib.sha256(content).hexdigest() for content in contents()]


def footprint() -> dict[str, float]:
    with open("/proc/self/statm", encoding="utf-8") as statm:
        resident = int(statm.read().split()[1]) * mmap.PAGESIZE
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "resident MiB": resident / (1 << 20),
        "CPU s": used.ru_utime + used.ru_stime,
    }


# ---- the healthy peer -----------------------------------------------------------------------------------------------


def open_peer(store_url: str, session: str, private_address: int) -> list[str]:
    """Moves verified bytes from now on; by which routes."""
    os.environ["MF_HOST_IDENTITY"] = "elsewhere"
    pool_worker.must(engine.initialize(None, "127.0.0.1:0", "Prefill", 0))
    assert pool_worker.take_part(store_url, dram=POOL_BYTES) == 1
    pool = pool_worker.pools[0]
    there = private_address + 3 * ZONE
    in_pool = pool_worker.address(0, PEER_IN_POOL.start)
    movers.append(
        Mover(
            lambda here, size: engine.transfer_sync_write(session, here, there, size),
            lambda here, size: engine.transfer_sync_read(session, here, there, size),
        )
    )
    movers.append(
        Mover(
            lambda here, size: pool.copy_data(here, in_pool, size, pool_worker.bm.BmCopyType.H2G),
            lambda here, size: pool.copy_data(in_pool, here, size, pool_worker.bm.BmCopyType.G2H),
        )
    )
    for mover in movers:
        mover.start()
    for mover in movers:  # they have their connections
        assert mover.first_round.wait(20), mover.complaints
    return [engine.route(session)[0], pool.route(0)[0]]


class Mover(threading.Thread):
    """Writes and reads back; every code must be 0 and every byte right."""

    def __init__(self, write: Any, read: Any) -> None:
        super().__init__(daemon=True)  # a failed test must not hang
        self.rounds = 0
        self.longest_s = 0.0
        self.complaints: list[str] = []
        self._write, self._read = write, read
        self.first_round = threading.Event()
        self._stopping = threading.Event()

    def run(self) -> None:
        source, back = ctypes.create_string_buffer(BLOCK), ctypes.create_string_buffer(BLOCK)
        while not self._stopping.is_set() and not self.complaints:
            ctypes.memset(source, self.rounds % 255 + 1, BLOCK)
            began = time.monotonic()
            for move, buffer in ((self._write, source), (self._read, back)):
                code = move(ctypes.addressof(buffer), BLOCK)
                if code != 0:
                    self.complaints.append(f"round {self.rounds}: {code}: {mf.get_and_clear_last_err_msg()}")
            self.longest_s = max(self.longest_s, time.monotonic() - began)
            if source.raw != back.raw:
                self.complaints.append(f"round {self.rounds}: other bytes came back than were written")
            self.rounds += 1
            self.first_round.set()
            self._stopping.wait(0.001)

    def stop(self) -> tuple[int, float, list[str]]:
        self._stopping.set()
        self.join()
        return self.rounds, self.longest_s, self.complaints


def rounds() -> list[int]:
    return [mover.rounds for mover in movers]


def stop_moving() -> list[tuple[int, float, list[str]]]:
    return [mover.stop() for mover in movers]


def close() -> None:
    engine.destroy()
    pool_worker.uninitialize()
