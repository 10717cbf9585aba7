"""Share Memory as programs written for the original use it: names, values, defaults, types and codes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest
import uvloop

import memfabric_hybrid as mf
from memfabric_hybrid import shm

uvloop.new_event_loop().close()  # the first loop of a process opens a pipe that stays: now, not in the middle of a test
MIB = 1 << 20


@pytest.fixture(autouse=True)
def clean_process() -> Iterator[None]:
    mf.get_and_clear_last_err_msg()
    yield
    shm.uninitialize()
    mf.uninitialize()
    mf.get_and_clear_last_err_msg()


def config() -> shm.ShmConfig:
    made = shm.ShmConfig()
    made.init_timeout = made.create_timeout = made.operation_timeout = 1
    return made


def test_public_names() -> None:
    assert set(shm.__all__) == {"initialize", "uninitialize", "create", "ShareMemory", "ShmConfig", "ShmDataOpType"}
    assert mf.shm is shm
    public = {name for name, _ in inspect.getmembers(shm.ShareMemory) if not name.startswith("_")}
    assert public == {
        "all_gather", "array", "atomic_alloc_value", "atomic_release_value", "barrier", "destroy", "global_exit", "gva",
        "get", "local_rank", "put", "query_support_data_operation", "quiet", "rank_size", "reach", "register_exit",
        "set_context",
        "subgroup_all_gather", "subgroup_barrier", "symmetric_size", "topology_can_reach",
    }  # fmt: skip


def test_parameters() -> None:
    def names(function: object) -> list[str]:
        return [name for name in inspect.signature(function).parameters if name != "self"]  # type: ignore[arg-type]

    assert names(shm.initialize) == ["store_url", "world_size", "rank_id", "device_id", "config"]
    assert names(shm.uninitialize) == ["flags"]
    assert names(shm.create) == ["id", "rank_size", "rank_id", "local_mem_size", "data_op_type", "flags"]
    assert inspect.signature(shm.create).parameters["data_op_type"].default == shm.ShmDataOpType.MTE
    assert names(shm.ShareMemory.topology_can_reach) == ["remote_rank", "reach_info"]
    assert names(shm.ShareMemory.subgroup_barrier) == ["key", "rank_size", "rank_id"]
    assert names(shm.ShareMemory.subgroup_all_gather) == ["key", "rank_size", "rank_id", "data"]
    assert names(shm.ShareMemory.array) == ["rank", "shape", "dtype", "offset"]


def test_enum() -> None:
    assert {name: int(member) for name, member in shm.ShmDataOpType.__members__.items()} == {
        "MTE": 1,
        "SDMA": 2,
        "RDMA": 4,
        "ROCE": 4,
    }


def test_config() -> None:
    made = shm.ShmConfig()
    assert (made.init_timeout, made.create_timeout, made.operation_timeout) == (120, 120, 120)
    assert (made.start_store, made.flags) == (True, 0)
    for wrong in (-1, 1 << 32, "1", 1.5):
        with pytest.raises(TypeError):
            made.init_timeout = wrong  # type: ignore[assignment]


@pytest.mark.parametrize("name", ["init_timeout", "create_timeout", "operation_timeout"])
def test_zero_seconds_are_refused(store_url: str, name: str) -> None:
    made = config()
    setattr(made, name, 0)
    assert shm.initialize(store_url, 1, 0, 0, made) == -2000
    assert f"{name} is 0 s" in mf.get_last_err_msg()


@pytest.mark.parametrize(
    ("world_size", "rank", "sentence"),
    [(0, 0, "world_size is 0"), (1025, 0, "world_size is 1025"), (2, 2, "rank_id is 2, expected 0..1")],
)
def test_initialize_validates_its_values(store_url: str, world_size: int, rank: int, sentence: str) -> None:
    assert shm.initialize(store_url, world_size, rank, 0, config()) == -2000
    assert sentence in mf.get_last_err_msg()


def test_initialize_wants_types(store_url: str) -> None:
    for arguments in (
        (None, 1, 0, 0, config()),
        (store_url, "1", 0, 0, config()),
        (store_url, 1, -1, 0, config()),
        (store_url, 1, 0, 1 << 16, config()),
        (store_url, 1, 0, 0, None),
    ):
        with pytest.raises(TypeError):
            shm.initialize(*arguments)  # type: ignore[arg-type]


def test_malformed_url_fails_at_once() -> None:
    assert shm.initialize("nonsense", 1, 0, 0, config()) == -2000


def test_store_that_does_not_run(store_url: str) -> None:
    assert shm.initialize(store_url, 2, 1, 0, config()) == -2004


def test_again_while_initialised(store_url: str) -> None:
    assert shm.initialize(store_url, 2, 0, 0, config()) == 0
    assert shm.initialize(store_url, 2, 0, 0, config()) == 0
    shm.uninitialize()
    shm.uninitialize(0)


def test_create_needs_initialize() -> None:
    with pytest.raises(RuntimeError, match="create shm failed: Share Memory is not initialised"):
        shm.create(0, 1, 0, MIB)
    assert "call shm.initialize() first" in mf.get_last_err_msg()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((64, 1, 0, MIB), "id is 64, expected 0..63"),
        ((0, 0, 0, MIB), "rank_size is 0, expected 1..2"),
        ((0, 3, 0, MIB), "rank_size is 3, expected 1..2"),
        ((0, 2, 1, MIB), "rank_id is 1, but this process was initialised as rank 0"),
        ((0, 1, 0, 0), "local_mem_size is 0 bytes"),
        ((0, 1, 0, (64 << 30) + 1), "local_mem_size is 68719476737 bytes"),
        ((0, 1, 0, MIB, 0), "data_op_type is 0x0"),
        ((0, 1, 0, MIB, 8), "data_op_type is 0x8"),
        ((0, 1, 0, MIB, 4), "no route for data_op_type RDMA"),
        ((0, 2, 0, MIB), "1 of 2 ranks did not come within 1 s: 1"),
    ],
)
def test_create_validates_its_values(store_url: str, arguments: tuple[int, ...], sentence: str) -> None:
    assert shm.initialize(store_url, 2, 0, 0, config()) == 0
    with pytest.raises(RuntimeError, match="create shm failed: ") as caught:
        shm.create(*arguments)
    assert sentence in str(caught.value)
    assert sentence in mf.get_last_err_msg()


def test_create_wants_types(store_url: str) -> None:
    assert shm.initialize(store_url, 1, 0, 0, config()) == 0
    for arguments in (("0", 1, 0, MIB), (0, 1.0, 0, MIB), (0, 1, -1, MIB), (0, 1, 0, 1 << 64), (0, 1, 0, MIB, None)):
        with pytest.raises(TypeError):
            shm.create(*arguments)  # type: ignore[arg-type]


def test_object_of_one_rank(store_url: str) -> None:
    assert shm.initialize(store_url, 1, 0, 0, config()) == 0
    heap = shm.create(id=63, rank_size=1, rank_id=0, local_mem_size=1)
    with pytest.raises(RuntimeError, match="shm object 63 exists already"):
        shm.create(63, 1, 0, MIB)
    mf.get_and_clear_last_err_msg()
    assert heap.symmetric_size == 2 * MIB
    assert heap.barrier() == 0
    assert heap.all_gather(b"abc") == b"abc"
    assert heap.topology_can_reach(0, 0) == 0
    assert heap.set_context(b"context") == 0
    assert heap.destroy() == 0
    assert mf.get_last_err_msg() == ""
