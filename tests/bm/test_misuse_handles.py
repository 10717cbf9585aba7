"""Bad input to the other methods of a pool, and every method of a closed handle."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm, errors
from memfabric_hybrid.bm import BigMemory, BmCopyType, BmMemType
from support import pool_worker
from support.pool_worker import MIB

HOST, DEVICE = BmMemType.HOST, BmMemType.DEVICE
NO_RANK = 4294967295
LOCAL = ctypes.create_string_buffer(64)
PLAIN = ctypes.addressof(LOCAL)

Step = Callable[[BigMemory], Any]
# Every public method with arguments that would do, and what a closed handle answers.
METHODS: dict[str, tuple[Step, Any]] = {
    "join": (lambda pool: pool.join(), -2000),
    "leave": (lambda pool: pool.leave(), -2000),
    "local_mem_size": (lambda pool: pool.local_mem_size(HOST), 0),
    "peer_rank_ptr": (lambda pool: pool.peer_rank_ptr(0, HOST), 0),
    "get_rank_id_by_gva": (lambda pool: pool.get_rank_id_by_gva(pool.base), NO_RANK),
    "gva_to_va": (lambda pool: pool.gva_to_va(pool.base), 0),
    "extend_local_mem": (lambda pool: pool.extend_local_mem(HOST, MIB), -2000),
    "register": (lambda pool: pool.register(PLAIN, 64), -2000),
    "unregister": (lambda pool: pool.unregister(PLAIN), -2000),
    "copy_data": (lambda pool: pool.copy_data(PLAIN, pool.base, 8, BmCopyType.L2G), -2000),
    "copy_data_batch": (lambda pool: pool.copy_data_batch([PLAIN], [pool.base], [8], 1, BmCopyType.L2G), -2000),
    "copy_data_2d": (lambda pool: pool.copy_data_2d(PLAIN, 8, pool.base, 8, 8, 1, BmCopyType.L2G), -2000),
    "wait": (lambda pool: pool.wait(), -2000),
}
SILENT = {"destroy", "set_group_event_handler"}  # return nothing, so they cannot fail
RAISING: dict[str, Step] = {
    "array": lambda pool: pool.array(0, 8, "u1"),
    "route": lambda pool: pool.route(0),
    "ranks": lambda pool: pool.ranks,
    "wait_for": lambda pool: pool.wait_for([0]),
    "put": lambda pool: pool.put(b"x", 0),
    "get": lambda pool: pool.get(0, out=bytearray(1)),
}
DATA = {"base", "capacity", "max_dram_bytes", "max_hbm_bytes", "local_rank", "object_name"}


def refused(answer: Any, expected: Any, *named: str) -> None:
    assert answer == expected
    sentence = mf.get_and_clear_last_err_msg()
    for part in named:
        assert part in sentence, sentence


def test_no_method_is_forgotten_here() -> None:
    public = {name for name in dir(BigMemory) if not name.startswith("_")}
    assert public == set(METHODS) | SILENT | set(RAISING) | DATA


@pytest.mark.parametrize("method", METHODS)
def test_closed_handle(pool: BigMemory, method: str) -> None:
    step, expected = METHODS[method]
    pool.destroy()
    assert mf.get_last_err_msg() == ""
    refused(step(pool), expected, "bm object 0", "closed")


@pytest.mark.parametrize("method", METHODS)
def test_handle_that_uninitialize_closed(pool: BigMemory, method: str) -> None:
    step, expected = METHODS[method]
    bm.uninitialize()
    refused(step(pool), expected, "bm object 0", "closed")


def test_closed_handle_is_silent_or_raises(pool: BigMemory) -> None:
    pool.destroy()
    pool.destroy()
    pool.set_group_event_handler(lambda rank, event: None)
    for step in RAISING.values():
        with pytest.raises(ValueError, match="bm object 0 is destroyed"):
            step(pool)
    assert repr(pool) == "<BigMemory 0: destroyed>"


def test_good_calls_leave_no_last_error(pool: BigMemory) -> None:
    for name, (step, _) in METHODS.items():
        if name not in ("leave", "unregister"):
            step(pool)
            assert mf.get_last_err_msg() == "", name


# ---- addresses ------------------------------------------------------------------------------------------------------


def test_ranks_outside_the_world(pool: BigMemory) -> None:
    for rank in (4, 1023, 4294967295):
        refused(pool.peer_rank_ptr(rank, HOST), 0, f"rank {rank}", "0..3")


@pytest.mark.parametrize("mem_type", [4, 255, 4294967295])
def test_unknown_memory_type(pool: BigMemory, mem_type: int) -> None:
    refused(pool.local_mem_size(mem_type), 0, f"mem_type is {mem_type}", "0..3")
    refused(pool.peer_rank_ptr(0, mem_type), 0, f"mem_type is {mem_type}")
    refused(pool.gva_to_va(pool.base, mem_type), 0, f"mem_type is {mem_type}")
    refused(pool.extend_local_mem(mem_type, 1), -2000, f"mem_type is {mem_type}")


def test_space_that_the_object_does_not_have(store_url: str) -> None:
    pool_worker.take_part(store_url, dram=2 * MIB)
    pool = pool_worker.pools[0]
    refused(pool.peer_rank_ptr(0), 0, "HBM", "max_hbm_size is 0")
    assert pool.local_mem_size() == 0
    assert mf.get_last_err_msg() == "", "having none is no failure"
    refused(pool.extend_local_mem(DEVICE, 1), -2000, "max_hbm_size")


def test_addresses_that_belong_to_nobody(pool: BigMemory) -> None:
    end = pool.base + 4 * (8 + 4) * MIB
    for address in (0, 1, pool.base - 1, end, PLAIN, (1 << 64) - 1):
        refused(pool.get_rank_id_by_gva(address), NO_RANK, f"{address:#x}")
        refused(pool.gva_to_va(address), 0, f"{address:#x}")
    for address in (pool.base + 4 * MIB, pool.base + 8 * MIB - 1):
        assert pool.get_rank_id_by_gva(address) == 0, "the slot is rank 0's, filled or not"
        refused(pool.gva_to_va(address), 0, f"{address:#x}")
    assert pool.get_rank_id_by_gva(end - 1) == 3
    assert pool.gva_to_va(pool.base + 4 * MIB - 1) == pool.base + 4 * MIB - 1


def test_extending_by_nothing_or_too_much(pool: BigMemory) -> None:
    refused(pool.extend_local_mem(HOST, 0), -2000, "size is 0")
    refused(pool.extend_local_mem(HOST, 4 * MIB + 1), -2000, str(6 * MIB), str(8 * MIB))
    refused(pool.extend_local_mem(HOST, (1 << 64) - 1), -2000, str(8 * MIB))
    assert pool.local_mem_size(HOST) == 4 * MIB
    assert pool.extend_local_mem(HOST, 4 * MIB) == 0
    refused(pool.extend_local_mem(HOST, 1), -2000, str(8 * MIB))


def test_registration(pool: BigMemory) -> None:
    refused(pool.register(0, 8), -2000, "0x0")
    refused(pool.register(PLAIN, 0), -2000, f"{PLAIN:#x}", "size 0")
    refused(pool.register(PLAIN, 1 << 47), -2000, f"{PLAIN:#x}")
    refused(pool.unregister(PLAIN), -2007, f"{PLAIN:#x}")
    assert pool.register(PLAIN, 64) == 0
    assert pool.register(PLAIN, 64) == 0
    refused(pool.register(PLAIN, 63), -2006, f"{PLAIN:#x}", "64 bytes", "63")
    assert pool.unregister(PLAIN) == 0
    refused(pool.unregister(PLAIN), -2007, f"{PLAIN:#x}")


@pytest.mark.parametrize(
    ("arguments", "kind", "named"),
    [
        ((4, 8, "u1"), ValueError, "rank 4"),
        ((1, 8, "u1"), errors.NotConnected, "rank 1"),
        ((0, 4 * MIB + 1, "u1"), ValueError, str(4 * MIB)),
        ((0, 1, "u1", 4 * MIB), ValueError, str(4 * MIB)),
        ((0, 1, "u8", 4 * MIB - 7), ValueError, str(4 * MIB)),
        ((0, (2, -1), "u1"), ValueError, "-1"),
        ((0, 1 << 62, "u8"), ValueError, str(4 * MIB)),
        ((0, 8, "O"), ValueError, "object"),
        ((0, 8, "u1", 0, 9), ValueError, "mem_type is 9"),
        (("0", 8, "u1"), TypeError, "rank"),
        ((0, 8, "u1", -1), TypeError, "offset"),
        ((0, "8", "u1"), TypeError, "shape"),
        ((0, (2.5,), "u1"), TypeError, "shape"),
        ((0, 8, "no such type"), TypeError, "no such type"),
    ],
    ids=str,
)
def test_arrays_that_cannot_be(pool: BigMemory, arguments: tuple[Any, ...], kind: Any, named: str) -> None:
    with pytest.raises(kind, match=named):
        pool.array(*arguments)


def test_handler_must_be_callable(pool: BigMemory) -> None:
    with pytest.raises(TypeError):
        pool.set_group_event_handler(5)  # type: ignore[arg-type]
    pool.set_group_event_handler(None)


def test_flags_must_be_numbers(pool: BigMemory) -> None:
    for method in (pool.join, pool.leave, bm.uninitialize, mf.initialize):
        for wrong in ("0", 0.0, -1, 1 << 32):
            with pytest.raises(TypeError):
                method(wrong)  # type: ignore[operator]
