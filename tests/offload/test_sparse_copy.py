"""`sparse_copy`: every byte of every piece, and all that it refuses before the first one moves."""

from __future__ import annotations

import array
import ctypes
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import memfabric_hybrid as mf
from memfabric_hybrid import offload
from support import campaigns, offload_worker
from support.offload_worker import GIB, MIB, malloc, must, numbers, sparse_copy

pytestmark = pytest.mark.usefixtures("local")
SIZE = MIB


@pytest.fixture
def block() -> Iterator[int]:
    """Memory of ours, of SIZE bytes, all of them 0."""
    address = malloc(SIZE)
    ctypes.memset(address, 0, SIZE)
    yield address
    offload.free(address)


def plain(content: bytes) -> Any:
    return ctypes.create_string_buffer(content, len(content))


def cut(rng: random.Random, pieces: int) -> list[tuple[int, int]]:
    """(offset, length) of disjoint pieces of SIZE bytes, in any order."""
    borders = sorted(rng.sample(range(SIZE), 2 * pieces))
    found = [(low, high - low) for low, high in zip(borders[::2], borders[1::2], strict=True)]
    rng.shuffle(found)
    return found


@pytest.mark.parametrize("pieces", [1, 7, 5000])
def test_pieces_come_and_go_byte_by_byte(block: int, pieces: int) -> None:
    rng = campaigns.generator(f"sparse_copy {pieces}")
    source, back = plain(rng.randbytes(SIZE)), plain(bytes(SIZE))
    here, there = ctypes.addressof(source), ctypes.addressof(back)
    chosen = cut(rng, pieces)
    expected = bytearray(SIZE)
    for offset, length in chosen:
        expected[offset : offset + length] = source.raw[offset : offset + length]
    assert sparse_copy([(here + offset, block + offset, length) for offset, length in chosen]) == (0, "")
    assert ctypes.string_at(block, SIZE) == expected
    assert sparse_copy([(block + offset, there + offset, length) for offset, length in chosen]) == (0, "")
    assert back.raw == expected


def test_between_two_blocks_of_ours(block: int) -> None:
    other = malloc(SIZE)
    ctypes.memset(other, 7, SIZE)
    assert sparse_copy([(other, block + 10, 1000), (other + 5000, block + 5000, 3)]) == (0, "")
    assert ctypes.string_at(block, 6000) == bytes(10) + b"\7" * 1000 + bytes(3990) + b"\7" * 3 + bytes(997)


def test_a_piece_that_several_threads_share() -> None:
    size = 64 * MIB
    block = malloc(size)
    source = np.random.default_rng(1).integers(0, 256, size, np.uint8)
    assert sparse_copy([(source.ctypes.data, block, size)]) == (0, "")
    assert ctypes.string_at(block, size) == source.tobytes()


def test_pieces_of_no_length_are_nothing_to_copy(block: int) -> None:
    """Programs leave pieces out that way; their addresses mean nothing."""
    source = plain(b"abcdefgh")
    here = ctypes.addressof(source)
    assert sparse_copy([(0, 0, 0), (here, block, 4), (1 << 63, 5, 0), (here + 4, block + 4, 4)]) == (0, "")
    assert ctypes.string_at(block, 9) == b"abcdefgh\0"
    assert sparse_copy([(0, 0, 0)]) == (0, "")


def test_no_pieces_at_all() -> None:
    none = numbers([0])
    must(offload.sparse_copy(0, 0, 0, ctypes.addressof(none), 0))
    must(offload.sparse_copy(torch.tensor([]).long(), np.empty(0, int), 0, np.zeros(1, np.int32), 0))


@pytest.mark.parametrize(
    "made",
    [
        lambda values, width: torch.tensor(values, dtype=torch.int64 if width == 8 else torch.int32),
        lambda values, width: np.array(values, np.uint64 if width == 8 else np.uint32),
        lambda values, width: np.array([v for one in values for v in (one, 77)], np.int64)[::2],
        lambda values, width: array.array("Q", values),
        lambda values, width: numbers(values),
        lambda values, width: ctypes.addressof(kept(numbers(values))),
        lambda values, width: np.int64(ctypes.addressof(kept(numbers(values)))),
    ],
    ids=["tensors", "numpy", "strided", "array", "ctypes", "addresses", "numpy addresses"],
)
def test_lists_as_programs_have_them(block: int, made: Any) -> None:
    """Tensors of released programs have lengths and counts of 32 bits."""
    source = plain(bytes(range(100)))
    here = ctypes.addressof(source)
    lists = made([here, here + 50], 8), made([block, block + 60], 8), made([50, 40], 4), made([2], 4)
    must(offload.sparse_copy(*lists, torch.device("cpu")))
    assert ctypes.string_at(block, 101) == bytes(range(50)) + bytes(10) + bytes(range(50, 90)) + b"\0"


_kept: list[Any] = []


def kept(value: Any) -> Any:
    _kept[:] = [*_kept[-8:], value]
    return value


def test_a_count_that_is_a_scalar(block: int) -> None:
    source = plain(b"x")
    ones = torch.tensor([ctypes.addressof(source), 0]), torch.tensor([block, 0]), torch.tensor([1, 0])
    must(offload.sparse_copy(*ones, torch.tensor(1, dtype=torch.int32), None))
    assert ctypes.string_at(block, 2) == b"x\0"


def test_what_is_wrong_is_named_and_nothing_moves(block: int) -> None:
    source = plain(b"y" * 100)
    here, good = ctypes.addressof(source), (ctypes.addressof(source), block, 100)
    wrong = {
        (here, here + 50, 10): "neither the source",
        (0, block, 10): "the source of 10 bytes at 0x0 is no memory",
        (here, 8, 10): "the target of 10 bytes at 0x8 is no memory",
        (here, block + GIB, 10): "",
        (here, block, 1 << 47): "is no memory",
        (here, block, (1 << 64) - 1): "is no memory",
        (here, block, 2 * GIB): "does not lie in the DRAM of rank 0",
    }
    for piece, sentence in wrong.items():
        code, why = sparse_copy([good, piece])
        assert code == -2000, piece
        assert "piece 1 of 2" in why
        assert sentence in why
    assert ctypes.string_at(block, 100) == bytes(100), "all pieces are checked before the first byte moves"


def test_lists_that_cannot_be_read(block: int) -> None:
    source = plain(b"y")
    good: dict[str, Any] = {
        "src_ptrs": torch.tensor([ctypes.addressof(source)]), "dst_ptrs": torch.tensor([block]),
        "len_ptrs": torch.tensor([1]), "size_ptr": torch.tensor([1]), "device": 0,
    }  # fmt: skip
    wrong: list[tuple[str, Any, str]] = [
        ("src_ptrs", 0, "src_ptrs is 0x0, where no 1 numbers can be"),
        ("dst_ptrs", 4096, "dst_ptrs is 0x1000, where no 1 numbers can be"),
        ("len_ptrs", 1 << 47, "len_ptrs is 0x800000000000, where no 1 numbers can be"),
        ("size_ptr", 0, "size_ptr is 0x0"),
        ("size_ptr", torch.tensor([2]), "src_ptrs has 1 numbers, expected 2, as many as size_ptr says"),
        ("size_ptr", torch.tensor([(1 << 20) + 1]), "size_ptr says 1048577 pieces, expected 0..1048576"),
        ("size_ptr", torch.tensor([]).int(), "size_ptr has 0 numbers, expected 1"),
        ("size_ptr", torch.tensor([-1]), "size_ptr[0] is -1, expected 0 or more"),
        ("len_ptrs", torch.tensor([-5], dtype=torch.int32), "len_ptrs[0] is -5, expected 0 or more"),
        ("len_ptrs", bytes(numbers([1])), "len_ptrs has numbers of type uint8, expected integers of 32 or 64 bits"),
        ("dst_ptrs", torch.empty(1, dtype=torch.int64, device="meta"), "dst_ptrs is on meta, expected an array or"),
    ]
    for name, value, sentence in wrong:
        assert offload.sparse_copy(**{**good, name: value}) == -2000, (name, value)
        assert sentence in mf.get_and_clear_last_err_msg()
    for name, value in [
        ("src_ptrs", "abc"),
        ("src_ptrs", torch.tensor([1.5])),
        ("len_ptrs", None),
        ("size_ptr", -1),
        ("device", "cpu"),
        ("dst_ptrs", [1]),
    ]:
        with pytest.raises(TypeError, match=name):
            offload.sparse_copy(**{**good, name: value})
    assert ctypes.string_at(block, 1) == b"\0"
    must(offload.sparse_copy(**good))
    assert ctypes.string_at(block, 1) == b"y"


def test_a_device_that_is_not_the_host() -> None:
    assert offload.sparse_copy(0, 0, 0, 0, torch.device("cuda:0")) == -2002
    assert "device is cuda:0, and this build copies in host memory only" in mf.get_last_err_msg()


def test_copies_end_with_the_memory(block: int) -> None:
    source = plain(b"z")
    offload_worker.leave()
    assert sparse_copy([(ctypes.addressof(source), block, 1)])[0] == -2008


@pytest.mark.parametrize("call", ["group_pack_copy", "kv_exchange_copy", "entry_gather", "register_entry_table"])
def test_calls_that_need_an_accelerator_say_so(call: str) -> None:
    for arguments in ((), (1, 2, 3, 4, 5, 6, 7), (torch.tensor([1]), torch.device("cpu"))):
        assert getattr(offload, call)(*arguments) == -2002
        assert mf.get_and_clear_last_err_msg() == (
            f"offload.{call} runs on an accelerator, and this build has no kernels for one: copy in host memory with "
            "sparse_copy()"
        )
    assert getattr(offload, call)(entry_bytes=8) == -2002
