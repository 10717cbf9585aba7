"""Offload memory is mapped memory for transfers: a peer that may write there maps it and copies directly."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
import torch

import memfabric_hybrid as mf
from memfabric_hybrid import offload
from support import offload_worker
from support.offload_worker import MIB, must
from support.workers import Cluster

Workers = Callable[..., AbstractContextManager[Cluster]]
SIZE = 4 * MIB


@pytest.fixture
def engine() -> Iterator[mf.TransferEngine]:
    """Of this process."""
    with mf.TransferEngine() as engine:
        must(engine.initialize(None, "127.0.0.1:0", "Prefill", 0))
        yield engine


def exchange(engine: mf.TransferEngine, session: str, address: int, seed: int) -> bytes:
    """Writes bytes there, reads them back by a second transfer; all of both goes through mapped memory."""
    own = ctypes.create_string_buffer(bytes((seed + i) % 251 for i in range(SIZE)), SIZE)
    back = ctypes.create_string_buffer(SIZE)
    mapped, all_ways = offload_worker.traffic("mapped"), offload_worker.traffic("peer_process")
    must(engine.transfer_sync_write(session, ctypes.addressof(own), address, SIZE))
    must(engine.transfer_sync_read(session, ctypes.addressof(back), address, SIZE))
    assert back.raw == own.raw
    assert offload_worker.traffic("mapped") == mapped + 2 * SIZE
    assert offload_worker.traffic("peer_process") == all_ways
    return own.raw


@pytest.mark.parametrize("scene", ["LOCAL", "SHARED"])
def test_peers_map_memory_of_malloc(workers: Workers, engine: mf.TransferEngine, store_url: str, scene: str) -> None:
    with workers(1) as cluster:
        session = cluster.call(0, "start_engine")
        if scene == "LOCAL":
            cluster.call(0, "take_part", alloc_size=SIZE)
        else:
            cluster.call(0, "share", store_url, 0, 1)
        before = offload_worker.shared_mappings()
        address = cluster.call(0, "malloc", SIZE)
        cluster.call(0, "register", address, SIZE)
        sent = exchange(engine, session, address, 1)
        assert cluster.call(0, "load", address, SIZE) == sent
        assert offload_worker.shared_mappings() == before + 1, "mapped once, by a process that takes no part in it"
        more = cluster.call(0, "malloc", 200 * MIB)  # memory that is added later
        cluster.call(0, "register", more + 100 * MIB, SIZE)
        sent = exchange(engine, session, more + 100 * MIB, 2)
        assert cluster.call(0, "load", more + 100 * MIB, SIZE) == sent


def test_a_cache_is_sent_from_tensor_to_memory(workers: Workers, engine: mf.TransferEngine) -> None:
    """As prefill and decode do: from a tensor of ours into memory of the other, both of them mapped."""
    offload_worker.take_part(alloc_size=SIZE)
    with workers(1) as cluster:
        session = cluster.call(0, "start_engine")
        cluster.call(0, "take_part", alloc_size=SIZE)
        address = cluster.call(0, "malloc", SIZE)
        cluster.call(0, "register", address, SIZE)
        cache = offload.empty([SIZE // 1024, 512], dtype=torch.bfloat16)
        cache.copy_(torch.arange(SIZE // 1024)[:, None] % 200)
        must(engine.register(cache))
        mapped = offload_worker.traffic("mapped")
        must(engine.transfer_sync_write(session, cache.data_ptr(), address, SIZE))
        assert offload_worker.traffic("mapped") == mapped + SIZE
        assert cluster.call(0, "load", address, SIZE) == cache.view(torch.uint8).numpy().tobytes()
        must(engine.unregister(cache))


def test_the_end_of_the_memory_ends_its_registrations(workers: Workers, engine: mf.TransferEngine) -> None:
    with workers(1) as cluster:
        session = cluster.call(0, "start_engine")
        cluster.call(0, "take_part", alloc_size=SIZE)
        address = cluster.call(0, "malloc", SIZE)
        cluster.call(0, "register", address, SIZE)
        exchange(engine, session, address, 3)
        cluster.call(0, "leave")
        own = ctypes.create_string_buffer(8)
        assert engine.transfer_sync_write(session, ctypes.addressof(own), address, 8) == -2000
        assert "registered there now" in mf.get_last_err_msg()


def test_a_registered_tensor_stays_registered_as_long_as_it_lives(engine: mf.TransferEngine) -> None:
    offload_worker.take_part(alloc_size=SIZE)
    cache = offload.empty([1024], dtype=torch.uint8).zero_()
    address = cache.data_ptr()
    must(engine.register(cache))
    del cache
    offload.uninitialize()
    own = ctypes.create_string_buffer(b"q" * 1024, 1024)
    must(engine.transfer_sync_write(engine.session_id, ctypes.addressof(own), address, 1024))
    assert ctypes.string_at(address, 1024) == own.raw
    must(engine.unregister_memory(address))
    engine.destroy()
