"""LOCAL memory as a cache uses it: taken, given back, taken again, until there is none left."""

from __future__ import annotations

import ctypes
import random
import threading
from typing import Any

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import offload
from memfabric_hybrid.errors import MallocFailed, TimedOut
from memfabric_hybrid.machine import free_addresses
from memfabric_hybrid.offload import local_slot
from support import offload_worker
from support.offload_worker import GIB, MIB, malloc, must


def last_error() -> str:
    return mf.get_and_clear_last_err_msg()


@pytest.mark.usefixtures("local")
def test_memory_can_be_written_and_read_everywhere() -> None:
    block = malloc(3 * MIB + 5)
    ctypes.memset(block, 0xA5, 3 * MIB + 5)
    assert ctypes.string_at(block + 3 * MIB, 5) == b"\xa5" * 5
    must(offload.free(block))


@pytest.mark.usefixtures("local")
@pytest.mark.parametrize(
    ("size", "alignment"), [(1, 4096), (4097, 4096), (2 * MIB - 1, 4096), (2 * MIB, 2 * MIB), (5 * MIB, 2 * MIB)]
)
def test_alignment(size: int, alignment: int) -> None:
    malloc(1)  # so that the next place is no round one by chance
    assert malloc(size) % alignment == 0


@pytest.mark.usefixtures("local")
def test_freed_memory_is_used_again() -> None:
    blocks = [malloc(MIB) for _ in range(4)]
    for block in blocks:
        must(offload.free(block))
    assert malloc(4 * MIB) == blocks[0]


@pytest.mark.usefixtures("local")
def test_memory_grows_up_to_what_is_reserved_and_then_the_figures_are_told() -> None:
    first = malloc(600 * MIB)
    ctypes.memset(first + 600 * MIB - 1, 1, 1)
    second = malloc(GIB - 600 * MIB)
    ctypes.memset(second + GIB - 600 * MIB - 1, 1, 1)
    assert offload.malloc(1) == 0
    assert last_error() == (
        "1 bytes were asked for: of the 1073741824 bytes that are reserved, 1073741824 are taken (in blocks: 2), and "
        "the largest free piece has 0; free some, or raise reserve_size"
    )
    must(offload.free(first))
    assert offload.malloc(600 * MIB + 1) == 0
    assert f"the largest free piece has {600 * MIB}" in last_error()
    assert malloc(600 * MIB) == first


def test_more_than_is_reserved_is_refused_at_once() -> None:
    offload_worker.take_part(reserve_size=GIB)
    before = offload_worker.shared_mappings()
    assert offload.malloc(GIB + 1) == 0
    assert f"{GIB + 1} bytes were asked for" in last_error()
    assert offload_worker.shared_mappings() == before, "and no memory was added for it"


def test_all_that_is_reserved_is_one_block() -> None:
    """As programs do that divide it themselves."""
    offload_worker.take_part(reserve_size=GIB, alloc_size=GIB, world_size=1, flags=offload.OFFLOAD_FLAG_GIANT_PAGE)
    malloc(GIB)


def test_memory_that_only_was_reserved() -> None:
    offload_worker.take_part(reserve_size=GIB)
    block = malloc(100)
    ctypes.memset(block, 1, 100)


@pytest.mark.usefixtures("local")
def test_what_free_refuses() -> None:
    block, other = malloc(8192), ctypes.create_string_buffer(8)
    for address, sentence in (
        (block + 4096, f"lies inside of memory from malloc() that begins at {block:#x}: pass that address"),
        (block + 8192, "is not the address of memory from malloc()"),
        (ctypes.addressof(other), "is not the address of memory from malloc()"),
        (1, "is not the address of memory from malloc()"),
        ((1 << 64) - 1, "is not the address of memory from malloc()"),
    ):
        assert offload.free(address) == -2007
        assert sentence in last_error()
    must(offload.free(block))
    assert offload.free(block) == -2007
    assert "it may have been freed already" in last_error()
    must(offload.free(0))


@pytest.mark.usefixtures("local")
def test_the_address_of_a_device_is_the_same() -> None:
    block = malloc(5000)
    assert [offload.get_dva(block + offset) for offset in (0, 4999)] == [block, block + 4999]
    must(offload.free(block))
    for address in (block, 0, ctypes.addressof(ctypes.create_string_buffer(8)), (1 << 64) - 1):
        assert offload.get_dva(address) == 0
        assert f"{address:#x} lies in no memory of malloc() or empty()" in last_error()


@pytest.mark.usefixtures("local")
@pytest.mark.parametrize("size", [-1, 1 << 64, 1.5, "8", None])
def test_wrong_types(size: Any) -> None:
    with pytest.raises(TypeError, match="size"):
        offload.malloc(size)
    with pytest.raises(TypeError, match="ptr"):
        offload.free(size)
    with pytest.raises(TypeError, match="ptr"):
        offload.get_dva(size)
    with pytest.raises(TypeError, match="flags"):
        offload.malloc(1, size)


@pytest.mark.usefixtures("local")
def test_nothing_is_no_size() -> None:
    assert offload.malloc(0) == 0
    assert "size is 0 bytes" in last_error()


def test_before_initialize_and_after_uninitialize() -> None:
    for _ in range(2):
        assert offload.malloc(8) == 0
        assert "call offload.initialize() first" in last_error()
        assert offload.free(4096) == -2008
        assert offload.free(0) == -2008
        assert offload.get_dva(4096) == 0
        assert offload.sparse_copy(0, 0, 0, 0, 0) == -2008
        assert "call offload.initialize() first" in last_error()
        offload.uninitialize()
        offload_worker.take_part(alloc_size=MIB)
        offload.uninitialize()
        offload.uninitialize()


def test_once_more_while_initialised_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    offload_worker.take_part(alloc_size=MIB)
    block = malloc(100)
    offload_worker.take_part(alloc_size=MIB)
    assert not caplog.records
    offload_worker.take_part(alloc_size=MIB, reserve_size=2 * GIB)
    assert "reserve_size=2147483648 (1073741824 is used)" in caplog.text
    must(offload.free(block))


def test_the_end_of_the_library_ends_it() -> None:
    offload_worker.take_part(alloc_size=MIB)
    before = offload_worker.shared_mappings()
    mf.uninitialize()
    assert offload_worker.shared_mappings() == before - 1
    assert offload.malloc(8) == 0


def test_more_than_the_machine_has() -> None:
    code, why = offload_worker.enter(alloc_size=2 << 40)
    assert code == -2001
    assert "this machine has" in why


def test_threads_never_share_a_block() -> None:
    """Each fills its blocks with its own number and finds it there again, while the memory grows beneath them."""
    offload_worker.take_part(reserve_size=2 * GIB)
    wrong: list[str] = []

    def work(number: int) -> None:
        choice, mine = random.Random(number), list[tuple[int, int]]()
        for _ in range(300):
            if mine and (len(mine) > 20 or choice.random() < 0.4):
                address, size = mine.pop(choice.randrange(len(mine)))
                if ctypes.string_at(address, size) != bytes([number]) * size:
                    wrong.append(f"thread {number}: {size} bytes at {address:#x}")
                must(offload.free(address))
            else:
                size = choice.choice([100, 5000, 300_000, 3 * MIB])
                mine.append((malloc(size), size))
                ctypes.memset(mine[-1][0], number, size)
        for address, _ in mine:
            must(offload.free(address))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert malloc(2 * GIB) % (2 * MIB) == 0, "nothing is lost: it is one piece again"


def test_memory_that_neighbours_did_not_take_counts_when_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such an extension fails behind what it has done; the next one makes up for it, also where nothing is left."""
    offload_worker.take_part(reserve_size=GIB)
    extend, asked = local_slot.LocalSlot.extend, list[int]()

    def refused(slot: local_slot.LocalSlot, size_bytes: int) -> None:
        asked.append(size_bytes)
        extend(slot, size_bytes)
        if len(asked) in (1, 3):
            raise TimedOut("ranks [1] of this host did not take our memory")

    monkeypatch.setattr(local_slot.LocalSlot, "extend", refused)
    assert offload.malloc(100) == 0
    assert "did not take our memory" in last_error()
    first = malloc(100)
    assert offload.malloc(GIB - 2 * MIB) == 0
    second = malloc(GIB - 2 * MIB)
    assert asked == [64 * MIB, 0, GIB - 64 * MIB, 0]
    for address, size in ((first, 100), (second, GIB - 2 * MIB)):
        ctypes.memset(address + size - 1, 1, 1)


def test_memory_that_ends_while_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    offload_worker.take_part(reserve_size=GIB)
    extend = local_slot.LocalSlot.extend

    def ended_before(slot: local_slot.LocalSlot, size_bytes: int) -> None:
        offload.uninitialize()
        extend(slot, size_bytes)

    def ended_after(slot: local_slot.LocalSlot, size_bytes: int) -> None:
        extend(slot, size_bytes)
        offload.uninitialize()

    for ending in (ended_before, ended_after):
        monkeypatch.setattr(local_slot.LocalSlot, "extend", ending)
        offload_worker.take_part(reserve_size=GIB)
        assert offload.malloc(100) == 0
        assert last_error() == "offload memory was uninitialised meanwhile: call offload.initialize() again"


# ---- its addresses --------------------------------------------------------------------------------------------------


def test_a_place_that_another_thread_takes_first_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = ctypes.create_string_buffer(8 * MIB)
    inside = (ctypes.addressof(taken) // 4096 + 1) * 4096
    places = [inside, inside]
    find = free_addresses.find
    monkeypatch.setattr(free_addresses, "find", lambda *size: places.pop() if places else find(*size))
    offload_worker.take_part(alloc_size=MIB)
    assert not places
    ctypes.memset(malloc(100), 1, 100)


def test_addresses_that_are_taken_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = ctypes.create_string_buffer(8 * MIB)
    inside = (ctypes.addressof(taken) // 4096 + 1) * 4096
    tries: list[int] = []

    def find(size_bytes: int, alignment: int) -> int:
        tries.append(inside)
        return inside

    monkeypatch.setattr(free_addresses, "find", find)
    code, why = offload_worker.enter(alloc_size=MIB)
    assert code == -2001
    assert "is taken in this process by" in why
    assert len(tries) == local_slot.ATTEMPTS


def test_more_addresses_than_a_process_has() -> None:
    with pytest.raises(MallocFailed, match="bytes of addresses are not free in this process"):
        free_addresses.find(1 << 47, MIB)
