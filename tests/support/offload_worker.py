"""A rank with offload memory, step by step: the target of `Cluster` in the tests of Offload, and used by them directly.

Every function is one step; state is the process's own. Steps that must work raise with the last error when they do not.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Sequence
from typing import Any

import memfabric_hybrid as mf
from memfabric_hybrid import _native, offload

MIB, GIB = 1 << 20, 1 << 30
engine = mf.TransferEngine()


def must(code: int) -> None:
    assert code == 0, f"{code}: {mf.get_and_clear_last_err_msg()}"


def enter(**fields: Any) -> tuple[int, str]:
    """`offload.initialize` with these fields of its configuration: (code, last error)."""
    config = offload.OffloadConfig()
    for name, value in {"init_timeout": 60, **fields}.items():
        setattr(config, name, value)
    mf.get_and_clear_last_err_msg()
    return offload.initialize(config), mf.get_and_clear_last_err_msg()


def take_part(**fields: Any) -> None:
    code, why = enter(**fields)
    assert code == 0, why


def share(store_url: str, rank: int, world_size: int = 2, alloc_size: int = 4 * MIB, **fields: Any) -> None:
    """Takes part in SHARED memory of 1 GiB for each rank."""
    take_part(
        scene=offload.SHARED,
        store_url=store_url,
        rank_id=rank,
        world_size=world_size,
        reserve_size=GIB,
        alloc_size=alloc_size,
        **fields,
    )


def stand_still_in_initialize(store_url: str, rank: int, world_size: int = 2) -> None:
    """Is a member, and has not joined; killing this process is the only way out."""
    _native._hold_at("offload.initialize.holds_range")
    threading.Thread(target=share, args=(store_url, rank, world_size), daemon=True).start()
    assert _native._wait_until_held("offload.initialize.holds_range", 20)


def malloc(size: int) -> int:
    address = offload.malloc(size)
    assert address, mf.get_last_err_msg()
    return address


def call(function: str, *arguments: Any) -> tuple[Any, str]:
    """Any function of the module: (result, last error)."""
    mf.get_and_clear_last_err_msg()
    return getattr(offload, function)(*arguments), mf.get_last_err_msg()


def store(address: int, data: bytes) -> None:
    """Plain stores, without a call of the library."""
    ctypes.memmove(address, data, len(data))


def load(address: int, size: int) -> bytes:
    """Plain loads, without a call of the library."""
    return ctypes.string_at(address, size)


def numbers(values: Sequence[int]) -> ctypes.Array[ctypes.c_uint64]:
    return (ctypes.c_uint64 * len(values))(*values)


def sparse_copy(pieces: Sequence[tuple[int, int, int]]) -> tuple[int, str]:
    """Of (source, target, length), by the addresses of arrays: (code, last error)."""
    sources, targets, lengths = (numbers(column) for column in zip(*pieces, strict=True))
    count = numbers([len(pieces)])
    mf.get_and_clear_last_err_msg()
    at = ctypes.addressof
    return offload.sparse_copy(at(sources), at(targets), at(lengths), at(count), 0), mf.get_last_err_msg()


def copy_until_it_fails(source: int, target: int, size: int, timeout_s: float = 20.0) -> tuple[int, str]:
    """The news of a death need a moment: (code, last error) of the first copy that fails."""
    deadline = time.monotonic() + timeout_s
    while (answer := sparse_copy([(source, target, size)]))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.002)
    return answer


def leave() -> None:
    offload.uninitialize()


def start_engine() -> str:
    """The session at which peers reach it."""
    must(engine.initialize(None, "127.0.0.1:0", "Decode", 0))
    return engine.session_id


def register(address: int, size: int) -> None:
    must(engine.register_memory(address, size))


def shared_mappings() -> int:
    """Segments, ours and others', that this process has mapped."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return sum("/memfd:memfabric (" in line for line in maps)


def traffic(route: str) -> int:
    """How many bytes of payload this process has moved that way."""
    return sum(size for way, _, _, _, size in _native._traffic() if way == route)
