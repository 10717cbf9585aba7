"""Tensors of `empty`: real ones, on our memory, which goes back with the last of them."""

from __future__ import annotations

import ctypes
import gc
import threading
from typing import Any

import pytest
import torch

import memfabric_hybrid as mf
from memfabric_hybrid import offload
from memfabric_hybrid.offload.blocks import Block, Blocks
from support import offload_worker
from support.offload_worker import GIB, MIB, malloc, must
from support.programs import run_python


@pytest.mark.usefixtures("local")
def test_a_tensor_of_brain_floats_unless_something_else_is_asked_for() -> None:
    tensor = offload.empty([16, 576])
    assert (tensor.dtype, tuple(tensor.shape), tensor.device.type) == (torch.bfloat16, (16, 576), "cpu")
    assert tensor.is_contiguous()
    assert offload.get_dva(tensor.data_ptr()) == tensor.data_ptr()
    tensor.copy_(torch.arange(16 * 576).reshape(16, 576) % 251)
    assert ctypes.string_at(tensor.data_ptr(), 4) == b"\x00\x00\x80\x3f", "0 and 1, in the memory itself"
    assert torch.equal(tensor.float(), (torch.arange(16 * 576) % 251).reshape(16, 576).float())


@pytest.mark.usefixtures("local")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int8, torch.uint8, torch.int64,
                                   torch.bool, torch.complex64, torch.float8_e4m3fn])  # fmt: skip
def test_every_type(dtype: torch.dtype) -> None:
    tensor = offload.empty((3, 5, 7), dtype=dtype, pin_memory=True)
    assert tensor.dtype == dtype
    assert tensor.untyped_storage().nbytes() == 105 * dtype.itemsize
    tensor.zero_()
    assert not tensor.view(torch.uint8).any()


@pytest.mark.usefixtures("local")
@pytest.mark.parametrize(
    "sizes", [8, (8,), [2, 4], torch.Size([2, 2, 2]), iter([8])], ids=lambda sizes: str(type(sizes))
)
def test_sizes_as_programs_write_them(sizes: Any) -> None:
    assert offload.empty(sizes, torch.int32).numel() == 8


@pytest.mark.usefixtures("local")
def test_tensors_of_nothing_need_no_memory() -> None:
    assert offload.empty([0, 4]).shape == (0, 4)
    assert offload.empty([]).shape == ()
    assert malloc(1), "the memory is there"


@pytest.mark.usefixtures("local")
def test_a_large_tensor_begins_where_huge_pages_do() -> None:
    offload.empty(1)
    assert offload.empty(2 * MIB, dtype=torch.int8).data_ptr() % (2 * MIB) == 0


@pytest.mark.usefixtures("local")
def test_memory_is_free_with_the_last_view() -> None:
    tensor = offload.empty([4, MIB], dtype=torch.uint8)
    place = tensor.data_ptr()
    row, numbers = tensor[2], tensor.view(torch.int32)
    row.fill_(9)
    del tensor
    assert malloc(4 * MIB) != place
    del numbers
    assert malloc(4 * MIB) != place
    assert row.sum() == 9 * MIB
    del row
    assert malloc(4 * MIB) == place


@pytest.mark.usefixtures("local")
def test_tensors_in_a_cycle_are_free_with_it() -> None:
    tensor = offload.empty(MIB, dtype=torch.uint8)
    place = tensor.data_ptr()
    cycle: list[object] = [tensor]
    cycle.append(cycle)
    del cycle, tensor
    gc.collect()
    assert malloc(MIB) == place


@pytest.mark.usefixtures("local")
def test_garbage_that_is_found_while_memory_is_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector may run in any line of ours, also where the lock is held."""
    tensor = offload.empty(MIB, dtype=torch.uint8)
    place = tensor.data_ptr()
    cycle: list[object] = [tensor]
    cycle.append(cycle)
    del cycle, tensor
    take = Blocks.take

    def collecting(blocks: Blocks, size_bytes: int) -> Block | None:
        gc.collect()
        return take(blocks, size_bytes)

    monkeypatch.setattr(Blocks, "take", collecting)
    assert malloc(MIB) != place
    assert malloc(MIB) == place


@pytest.mark.usefixtures("local")
def test_a_tensor_outlives_everything() -> None:
    tensor = offload.empty([2, MIB], dtype=torch.uint8).fill_(3)
    offload.uninitialize()
    assert tensor.sum() == 6 * MIB
    tensor.fill_(4)
    offload_worker.take_part(alloc_size=8 * MIB)
    ctypes.memset(malloc(8 * MIB), 0xFF, 8 * MIB)
    assert tensor.sum() == 8 * MIB, "new memory is elsewhere"
    mf.uninitialize()
    assert tensor.sum() == 8 * MIB


def test_its_memory_goes_with_it_if_everything_else_is_gone_already() -> None:
    before = offload_worker.shared_mappings()
    offload_worker.take_part(alloc_size=8 * MIB)
    tensor = offload.empty(100)
    offload.uninitialize()
    assert offload_worker.shared_mappings() == before + 1
    del tensor
    assert offload_worker.shared_mappings() == before


@pytest.mark.usefixtures("local")
def test_the_memory_of_a_tensor_cannot_be_freed_under_it() -> None:
    tensor = offload.empty(100)
    assert offload.free(tensor.data_ptr()) == -2009
    assert "the memory of a tensor of empty()" in mf.get_last_err_msg()
    place = tensor.data_ptr()
    del tensor
    assert malloc(200) == place
    must(offload.free(place))


@pytest.mark.usefixtures("local")
def test_what_it_refuses() -> None:
    for sizes, sentence in (([4, -1], "sizes are [4, -1]"), ([GIB], "bytes were asked for")):
        with pytest.raises(RuntimeError, match=r"^offload\.empty failed: ") as raised:
            offload.empty(sizes)
        assert sentence in str(raised.value)
        assert sentence in mf.get_and_clear_last_err_msg()
    with pytest.raises(TypeError, match=r"dtype must be a torch\.dtype, not str"):
        offload.empty([4], dtype="float32")
    with pytest.raises(TypeError, match="sizes must be an integer, not float"):
        offload.empty([4.0])  # type: ignore[list-item]
    assert malloc(8 * MIB), "nothing was taken"


def test_before_initialize() -> None:
    with pytest.raises(RuntimeError, match=r"call offload\.initialize\(\) first"):
        offload.empty([4])
    assert "call offload.initialize() first" in mf.get_last_err_msg()


@pytest.mark.usefixtures("local")
def test_tensors_of_many_threads() -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        for size in range(1, 100):
            tensor = offload.empty([size, 64], dtype=torch.int32).fill_(number)
            wrong.extend([number] if not bool((tensor == number).all()) else [])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert malloc(8 * MIB)


def test_torch_is_imported_by_nobody_who_does_not_ask_for_it() -> None:
    done = run_python("""
import sys
import memfabric_hybrid as mf
from memfabric_hybrid import offload
assert not {"torch", "numpy"} & set(sys.modules)
config = offload.OffloadConfig(alloc_size=1 << 20)
assert offload.initialize(config) == 0
assert offload.free(offload.malloc(100)) == 0
assert "torch" not in sys.modules
sys.modules["torch"] = None
try:
    offload.empty([4])
except ImportError as error:
    assert "install torch, or use malloc()" in str(error), error
else:
    raise AssertionError
""")
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_a_program_may_end_with_its_tensors() -> None:
    done = run_python("""
import torch
from memfabric_hybrid import offload
assert offload.initialize(offload.OffloadConfig(alloc_size=1 << 20)) == 0
kept = offload.empty([4, 4]).fill_(1)
torch.kept = [kept, kept[1]]
""", timeout_s=100)  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
