"""The ways in which programs that offload their caches use this memory, each as a whole."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch

from memfabric_hybrid import offload
from support import offload_worker
from support.offload_worker import GIB, MIB, malloc, must
from support.workers import Cluster

ALIGNMENT = 2 * MIB
Workers = Callable[..., AbstractContextManager[Cluster]]


def test_a_hierarchical_cache_that_reserves_exactly_what_its_buffers_need() -> None:
    """Buffers of odd sizes, one after the other: what alignment costs must not be missing at the end."""
    shapes = [(61, 1000, 1, 512), (61, 1000, 1, 64), (61, 1000, 1, 13)]
    total = sum(torch.Size(shape).numel() * 2 for shape in shapes)
    offload_worker.take_part(
        device_id=3,
        reserve_size=total,
        alloc_size=total,
        flags=offload.OFFLOAD_FLAG_URMA_POOL,
        scene=offload.Scene.LOCAL,
    )
    buffers = [offload.empty(list(shape), dtype=torch.bfloat16) for shape in shapes]
    for index, buffer in enumerate(buffers):
        buffer.fill_(index + 1)
    assert [int(buffer[60, 999, 0, -1]) for buffer in buffers] == [1, 2, 3]


def test_thousands_of_small_tensors() -> None:
    """One for every token; 4096 bytes are the least that each of them takes."""
    offload_worker.take_part(size=64 * MIB)
    keys = [offload.empty([512, 1]).zero_() for _ in range(2000)]
    values = [offload.empty([64, 1]).zero_() for _ in range(2000)]
    assert len({tensor.data_ptr() for tensor in (*keys, *values)}) == 4000
    del keys, values
    malloc(GIB)


def test_a_pool_of_bytes_that_is_aligned_by_hand() -> None:
    """The program asks for more than it needs and takes an aligned part as a tensor of another type."""
    offload_worker.take_part(reserve_size=GIB, alloc_size=64 * MIB)
    need = 8 * 16 * 576 * 2
    backing = offload.empty([need + ALIGNMENT], dtype=torch.uint8, pin_memory=True)
    offset = -backing.data_ptr() % ALIGNMENT
    pool = backing[offset : offset + need].view(torch.bfloat16).reshape(8, 16, 576)
    assert pool.data_ptr() % ALIGNMENT == 0
    del backing
    pool.fill_(3)
    assert offload.get_dva(pool[7].data_ptr()) == pool[7].data_ptr()


def test_weights_come_back_from_where_they_were_put() -> None:
    """Those that are needed now, by one sparse copy, into tensors that are no offload memory."""
    offload_worker.take_part(size=32 * MIB)
    stored = [offload.empty([256, 64], dtype=torch.float16).fill_(index) for index in range(16)]
    slots = [torch.zeros(256, 64, dtype=torch.float16) for _ in range(4)]
    chosen = [11, 0, 7, 15]
    sources = torch.tensor([stored[index].data_ptr() for index in chosen], dtype=torch.int64)
    targets = torch.tensor([slot.data_ptr() for slot in slots], dtype=torch.int64)
    lengths = torch.tensor([slot.nbytes for slot in slots], dtype=torch.int32)
    count = torch.tensor(len(slots), dtype=torch.int32)
    must(offload.sparse_copy(sources, targets, lengths, count, slots[0].device))
    for index, slot in zip(chosen, slots, strict=True):
        assert torch.equal(slot, stored[index])


def test_a_table_in_the_memory_of_all_ranks(workers: Workers, store_url: str) -> None:
    """Every rank takes its whole slot as one block and keeps a part of the rows there; anybody finds any row."""
    ranks, rows_of_rank, row = 3, 100, struct.Struct("<2Q")
    with workers(ranks - 1) as cluster:
        begun = [
            cluster.begin(rank - 1, "share", store_url, rank, ranks, alloc_size=GIB, local_world_size=ranks)
            for rank in range(1, ranks)
        ]
        offload_worker.share(store_url, 0, ranks, alloc_size=GIB)
        for one in begun:
            one.result()
        base = malloc(GIB)
        for rank in range(ranks):
            content = b"".join(row.pack(rank * rows_of_rank + index, 7) for index in range(rows_of_rank))
            if rank == 0:
                ctypes.memmove(base, content, len(content))
            else:
                assert cluster.call(rank - 1, "malloc", GIB) == base + rank * GIB
                cluster.call(rank - 1, "store", base + rank * GIB, content)
        found = ctypes.create_string_buffer(row.size * 4)
        here = ctypes.addressof(found)
        wanted = [299, 0, 150, 100]
        pieces = [
            (base + number // rows_of_rank * GIB + number % rows_of_rank * row.size, here + index * row.size, row.size)
            for index, number in enumerate(wanted)
        ]
        assert offload_worker.sparse_copy(pieces) == (0, "")
        assert [number for number, _ in row.iter_unpack(found.raw)] == wanted


@pytest.mark.parametrize("scene", [offload.LOCAL, offload.SHARED])
def test_memory_comes_and_goes_with_every_model(store_url: str, scene: offload.Scene) -> None:
    before = offload_worker.shared_mappings()
    for _ in range(20):
        offload_worker.take_part(scene=scene, store_url=store_url, alloc_size=8 * MIB)
        cache = offload.empty([1000, 64])
        cache.fill_(1)
        del cache
        malloc(MIB)
        offload.uninitialize()
    assert offload_worker.shared_mappings() == before
