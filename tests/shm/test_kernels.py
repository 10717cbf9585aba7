"""Kernels reach the heap: one conformance suite, run for Numba and for C++ compiled against the header alone."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from memfabric_hybrid import _native
from memfabric_hybrid.device import signals
from support import kernel_library
from support.ports import reserved_port
from support.workers import Cluster

ROOT = Path(__file__).resolve().parents[2]
RANKS = 3
MOST = 50_000_000  # looks at a word before a kernel gives up


@pytest.fixture(scope="module", params=["numba", "c++"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "numba":
        return "numba"
    return kernel_library.build(tmp_path_factory.mktemp("kernels"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three ranks with objects 0 and 5, for all tests of this file."""
    with reserved_port() as port, Cluster(RANKS, "support.heap_worker") as started:
        started.call_all("take_part", f"tcp://127.0.0.1:{port}", RANKS)
        started.call_all("create", RANKS, 5, size=4 << 20)
        yield started
        started.call_all("uninitialize")


@pytest.fixture(autouse=True)
def clean_heaps(cluster: Cluster) -> None:
    for rank in range(RANKS):
        cluster.call(rank, "store_bytes", rank, 0, bytes(1 << 20))


def run(cluster: Cluster, library: str, name: str, *arguments: int) -> list[int]:
    return cluster.call_all("run_kernel", library, name, *arguments, timeout_s=60)


def test_table_lies_below_all_objects() -> None:
    entry_bytes = 64
    routes = _native.DEVICE_TABLE_ADDRESS + _native.DEVICE_OBJECTS * (entry_bytes + _native.MAX_CONTEXT_BYTES)
    assert routes == _native.DEVICE_ROUTES_ADDRESS
    assert _native.DEVICE_TABLE_ADDRESS < _native.REGION_START
    header = (ROOT / "include" / "smem" / "device" / "smem_shm_aicore_base_api.h").read_text(encoding="utf-8")
    assert f"SMEM_SHM_TABLE_ADDRESS 0x{_native.DEVICE_TABLE_ADDRESS:012x}ull" in header
    assert f"SMEM_SHM_MAX_OBJECTS {_native.DEVICE_OBJECTS}u" in header
    assert f"SMEM_SHM_MAX_RANKS {_native.MAX_RANKS}u" in header


def test_both_languages_wait_in_the_same_steps() -> None:
    header = (ROOT / "include" / "smem" / "device" / "smem_shm_aicore_base_api.h").read_text(encoding="utf-8")
    assert f"looks >= {signals._LOOKS_BEFORE_YIELD}u" in header
    assert f"SMEM_SHM_LOOKS_BEFORE_SLEEP {signals._LOOKS_BEFORE_SLEEP}u" in header
    assert f"struct timeval pause = {{0, {signals._SLEEP_US}}}" in header


def test_header_compiles_as_c11(tmp_path: Path) -> None:
    source = tmp_path / "kernel.c"
    source.write_text(
        '#include "smem/device/smem_shm_aicore_base_api.h"\n'
        "int main(void) { smem_shm_quiet(); return (int)sizeof(smem_shm_kernel_entry) != 64; }\n"
    )
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", f"-I{ROOT / 'include'}"]
    subprocess.run(["cc", *flags, str(source), "-o", str(tmp_path / "kernel")], check=True)
    subprocess.run([str(tmp_path / "kernel")], check=True)


@pytest.mark.parametrize("object_id", [0, 5])
def test_identity(cluster: Cluster, library: str, object_id: int) -> None:
    for rank in range(RANKS):
        gva = cluster.call(rank, "get", "gva", object_id)
        size = cluster.call(rank, "get", "symmetric_size", object_id)
        seen = cluster.call(rank, "kernel_identity", library, object_id, timeout_s=60)
        assert seen[:4] == [rank, RANKS, size, gva]
        assert seen[6] == gva


def test_what_does_not_exist_is_null(cluster: Cluster, library: str) -> None:
    assert run(cluster, library, "kernel_nowhere", 0) == [0] * RANKS


def test_context(cluster: Cluster, library: str) -> None:
    for rank in range(RANKS):
        content = bytes([rank + 1]) * (65536 if rank == 2 else 100)
        assert cluster.call(rank, "call", "set_context", content) == (0, "")
        *_, address, size, _ = cluster.call(rank, "kernel_identity", library, 0, timeout_s=60)
        assert address
        assert size == len(content)
        assert cluster.call(rank, "run_kernel", library, "kernel_sum_context", 0) == sum(content)


def test_block_copies(cluster: Cluster, library: str) -> None:
    import numpy as np

    data = [np.arange(1000, dtype=np.float32) + 1000 * rank for rank in range(RANKS)]
    for rank in range(RANKS):
        cluster.call(rank, "store_bytes", rank, 0, data[rank].tobytes())
    run(cluster, library, "kernel_shift_doubled", 0, 1000, 8192)
    for rank in range(RANKS):
        arrived = np.frombuffer(cluster.call(rank, "load_bytes", rank, 8192, 4000), np.float32)
        assert (arrived == 2 * data[(rank - 1) % RANKS]).all()


def test_put_and_get(cluster: Cluster, library: str) -> None:
    data = [bytes([65 + rank]) * 777 for rank in range(RANKS)]
    for rank in range(RANKS):
        cluster.call(rank, "store_bytes", rank, 0, data[rank])
    run(cluster, library, "kernel_get_and_put", 0, 777, 4096, 8192)
    for rank in range(RANKS):
        assert cluster.call(rank, "load_bytes", rank, 4096, 777) == data[(rank - 1) % RANKS]
        assert cluster.call(rank, "load_bytes", rank, 8192, 777) == data[(rank - 2) % RANKS]


def test_atomic_addition(cluster: Cluster, library: str) -> None:
    run(cluster, library, "kernel_count", 0, 10_000)
    counters = cluster.call(1, "load_bytes", 0, 0, 72)
    assert int.from_bytes(counters[:4], "little") == RANKS * 10_000
    assert int.from_bytes(counters[64:], "little") == RANKS * 10_000


def test_compare_and_swap(cluster: Cluster, library: str) -> None:
    run(cluster, library, "kernel_count_locked", 0, 2_000)
    assert int.from_bytes(cluster.call(1, "load_bytes", 0, 64, 8), "little") == RANKS * 2_000


def test_waiting_for_a_word(cluster: Cluster, library: str) -> None:
    rounds = 100
    assert run(cluster, library, "kernel_pass_token", 0, rounds, MOST) == [
        (rounds - 1) * RANKS + rank for rank in range(RANKS)
    ]


def test_waiting_is_bounded(cluster: Cluster, library: str) -> None:
    assert cluster.call(1, "run_kernel", library, "kernel_pass_token", 0, 1, 1000, timeout_s=60) == -1


def test_waiting_for_ever_ends_when_a_rank_dies(
    library: str, ranks: Callable[..., AbstractContextManager[Cluster]]
) -> None:
    """Of this host: the kernel tells. Rank 1 never comes to pass the token on."""
    for_ever = 1 << 62
    with ranks(2) as cluster:
        waiting = cluster.begin(0, "run_kernel", library, "kernel_pass_token", 0, 2, for_ever)
        cluster.kill(1)
        assert waiting.result(60) == -1


def test_waiting_for_ever_ends_when_a_rank_is_declared_gone(
    library: str, ranks: Callable[..., AbstractContextManager[Cluster]]
) -> None:
    """By the store, or by a neighbour that speaks to it."""
    for_ever = 1 << 62
    with ranks(2) as cluster:
        cluster.call(0, "declare_gone_soon", 1)
        assert cluster.call(0, "run_kernel", library, "kernel_pass_token", 0, 2, for_ever, timeout_s=60) == -1


@pytest.mark.parametrize(("value", "holding"), [(4, "NE GT GE"), (5, "EQ GE LE"), (6, "NE LT LE")])
def test_comparisons(cluster: Cluster, library: str, value: int, holding: str) -> None:
    bits = sum(1 << ["EQ", "NE", "GT", "GE", "LT", "LE"].index(name) for name in holding.split())
    assert cluster.call(0, "run_kernel", library, "kernel_compare", 0, value, timeout_s=60) == bits | bits << 16
