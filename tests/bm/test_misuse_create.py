"""Bad input to `bm.create` and `bm.create2`: RuntimeError with the reason, the code and the limit in the last error."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm
from memfabric_hybrid.bm import BmDataOpType
from memfabric_hybrid.errors import FabricError
from memfabric_hybrid.transports import rdma_devices
from support import pool_worker
from support.ports import reserved_port

MIB, GIB, TIB = 1 << 20, 1 << 30, 1 << 40
NUMA_GIVEN, CREATE_WITH_SHM, BEST_EFFORT = 1 << 7, 1 << 8, 1 << 10


@pytest.fixture
def member(store_url: str) -> None:
    assert pool_worker.enter(store_url, 4) == (0, "")


@contextmanager
def refusal(code: str, *named: str) -> Iterator[None]:
    """The block must fail to create, for the reason that says all of `named`."""
    with pytest.raises(RuntimeError, match=r"^create bm handle failed: ") as caught:
        yield
    sentence = mf.get_and_clear_last_err_msg()
    reason = caught.value.__cause__
    assert isinstance(reason, FabricError)
    assert f"{reason.code.name} {reason.code.value}" == code
    assert str(caught.value) == f"create bm handle failed: {sentence}"
    for part in named:
        assert part in sentence, sentence


SIZES: list[tuple[dict[str, int], str, tuple[str, ...]]] = [
    ({"local_dram_size": 0, "max_dram_size": 0}, "INVALID_PARAM -2000", ("max_dram_size", "max_hbm_size", "0")),
    ({"local_dram_size": 2, "max_dram_size": 1}, "INVALID_PARAM -2000", ("local_dram_size is 2", "max_dram_size 1")),
    (
        {"local_dram_size": 0, "max_dram_size": 2 * TIB + 1},
        "INVALID_PARAM -2000",
        (f"max_dram_size is {2 * TIB + 1}", str(2 * TIB)),
    ),
    (
        {"local_dram_size": 1, "max_dram_size": 1, "local_hbm_size": 2, "max_hbm_size": 1},
        "INVALID_PARAM -2000",
        ("local_hbm_size is 2", "max_hbm_size 1"),
    ),
    (
        {"local_dram_size": 1, "max_dram_size": 1, "max_hbm_size": 64 * GIB + 1},
        "INVALID_PARAM -2000",
        (f"max_hbm_size is {64 * GIB + 1}", str(64 * GIB)),
    ),
    (
        {"local_dram_size": 1, "max_dram_size": 1, "local_hbm_size": 1},
        "INVALID_PARAM -2000",
        ("local_hbm_size is 1", "max_hbm_size 0"),
    ),
    ({"local_dram_size": TIB, "max_dram_size": TIB}, "MALLOC_FAILED -2001", (str(TIB), "this machine has")),
]


@pytest.mark.usefixtures("member")
@pytest.mark.parametrize(("sizes", "code", "named"), SIZES, ids=lambda value: str(value)[:50])
def test_sizes(sizes: dict[str, int], code: str, named: tuple[str, ...]) -> None:
    with refusal(code, *named):
        bm.create2(0, **sizes)


@pytest.mark.usefixtures("member")
def test_create_validates_sizes_as_well() -> None:
    with refusal("INVALID_PARAM -2000", str(2 * TIB)):
        bm.create(0, 2 * TIB + 1)
    with refusal("INVALID_PARAM -2000"):
        bm.create(0, 0)


def test_world_beyond_the_address_space(store_url: str) -> None:
    assert pool_worker.enter(store_url, 33) == (0, "")
    with refusal("NO_RESOURCES -2002", "world size 33", str(2 * TIB), str(64 * TIB)):
        bm.create2(0, 0, 2 * TIB)
    bm.create2(0, 0, 2 * TIB - 128 * GIB, enable_56bits_gva=True).destroy()


@pytest.mark.usefixtures("member")
def test_object_exists_already() -> None:
    first = bm.create(7, MIB)
    with refusal("DUPLICATED -2006", "bm object 7", "destroy it first"):
        bm.create(7, MIB)
    first.destroy()
    bm.create(7, MIB).destroy()


@pytest.mark.usefixtures("member")
@pytest.mark.parametrize("object_id", [0, 63, 74, 4294967295])
def test_any_u32_is_an_id(object_id: int) -> None:
    bm.create(object_id, 1).destroy()


WRONG_TYPES: list[dict[str, Any]] = [
    {"id": -1},
    {"id": 1 << 32},
    {"id": "0"},
    {"id": 0.0},
    {"local_dram_size": -1},
    {"local_dram_size": 1 << 64},
    {"local_dram_size": 1.5},
    {"local_dram_size": None},
    {"max_dram_size": "1"},
    {"local_hbm_size": -1},
    {"max_hbm_size": 1.0},
    {"data_op_type": "SDMA"},
    {"data_op_type": -1},
    {"flags": 1 << 32},
    {"shm_fd": "3"},
    {"tag": 5},
    {"tag_op_info": None},
    {"no_such_argument": 1},
]


@pytest.mark.usefixtures("member")
@pytest.mark.parametrize("wrong", WRONG_TYPES, ids=str)
def test_wrong_types_raise(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        bm.create2(**{"id": 0, "local_dram_size": 1, "max_dram_size": 1, **wrong})
    assert mf.get_last_err_msg() == ""


@pytest.mark.usefixtures("member")
@pytest.mark.parametrize(
    ("op_type", "code", "named"),
    [
        (0, "INVALID_PARAM -2000", ("0x0", "0xff")),
        (256, "INVALID_PARAM -2000", ("0x100", "0xff")),
        (BmDataOpType.HOST_RDMA, "NO_RESOURCES -2002", ("HOST_RDMA", "RDMA")),
        (BmDataOpType.HOST_URMA, "NO_RESOURCES -2002", ("HOST_URMA", "not available")),
        (BmDataOpType.HOST_RDMA | BmDataOpType.HOST_URMA, "NO_RESOURCES -2002", ("HOST_RDMA", "HOST_URMA")),
    ],
)
def test_routes_that_do_not_exist(op_type: int, code: str, named: tuple[str, ...]) -> None:
    with refusal(code, *named):
        bm.create(0, MIB, data_op_type=op_type)


@pytest.mark.usefixtures("member")
def test_rdma_without_a_device_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rdma_devices, "ports", list)
    with refusal("NO_RESOURCES -2002", "no RDMA device", "/sys/class/infiniband", "driver", "MF_UCX_DEVICES=tcp"):
        bm.create(0, MIB, data_op_type=BmDataOpType.HOST_RDMA)


@pytest.mark.usefixtures("member")
def test_rdma_without_ucx_says_what_was_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MF_UCX_DEVICES", "tcp:lo")
    monkeypatch.setenv("MF_UCX_LIBRARY", "/nowhere/libucp.so.0")
    with refusal("NO_RESOURCES -2002", "HOST_RDMA is not possible", "/nowhere/libucp.so.0"):
        bm.create(0, MIB, data_op_type=BmDataOpType.HOST_RDMA)


@pytest.mark.usefixtures("member")
@pytest.mark.parametrize(
    "op_type",
    [BmDataOpType.SDMA, BmDataOpType.DEVICE_RDMA, BmDataOpType.HOST_SHM, BmDataOpType.DEVICE_URMA,
     BmDataOpType.DEVICE_UBOE, BmDataOpType.HOST_TCP, BmDataOpType.HOST_TCP | BmDataOpType.HOST_SHM, 255],
)  # fmt: skip
def test_routes_that_exist(op_type: int) -> None:
    with bm.create(0, MIB, data_op_type=op_type) as pool:
        assert pool.join() == 0


@pytest.mark.usefixtures("member")
def test_over_long_tags_are_value_errors() -> None:
    with pytest.raises(ValueError, match="tag has 31 characters, the limit is 30"):
        bm.create2(0, MIB, MIB, tag="a" * 31)
    with pytest.raises(ValueError, match="tag_op_info has 256 characters, the limit is 255"):
        bm.create2(0, MIB, MIB, tag="a", tag_op_info="a" * 256)
    bm.create2(0, MIB, MIB, tag="a" * 30, tag_op_info=",".join(["aaaaa:HOST_SHM:bbbbb"] * 12) + " " * 4).destroy()


@pytest.mark.usefixtures("member")
@pytest.mark.parametrize(
    ("tag", "info", "named"),
    [
        ("a-b", "", "'a-b'"),
        ("ä", "", "'ä'"),
        (" ", "", "' '"),
        ("a", "a:HOST_SHM", "'a:HOST_SHM'"),
        ("a", "a:HOST_SHM:b:c", "tag:OP:tag"),
        ("a", "a:SHM:b", "'SHM' is none of"),
        ("a", "a:host_shm:b", "'host_shm' is none of"),
        ("a", "a:HOST_SHM:", "tag:OP:tag"),
        ("a", "a:HOST_SHM:b,", "''"),
    ],
)
def test_malformed_tags(tag: str, info: str, named: str) -> None:
    with refusal("INVALID_PARAM -2000", named):
        bm.create2(0, MIB, MIB, tag=tag, tag_op_info=info)


@pytest.mark.usefixtures("member")
def test_flags_and_a_numa_node_that_does_not_exist() -> None:
    with refusal("INVALID_PARAM -2000", "NUMA node 127"):
        bm.create(0, MIB, flags=NUMA_GIVEN | 127)
    with refusal("INVALID_PARAM -2000", "NUMA node 127"):
        bm.create(0, MIB, flags=NUMA_GIVEN | BEST_EFFORT | 127)
    bm.create(0, MIB, flags=NUMA_GIVEN | 0).destroy()
    bm.create(0, MIB, flags=127).destroy()
    bm.create(0, MIB, flags=1 << 9).destroy()


# ---- memory that the program brings along ---------------------------------------------------------------------------


def from_file(fd: int, size: int = 2 * MIB) -> bm.BigMemory:
    return bm.create2(0, size, size, flags=CREATE_WITH_SHM, shm_fd=fd)


@pytest.mark.usefixtures("member")
def test_descriptor_that_is_not_open() -> None:
    for fd in (-1, 999_999):
        with refusal("INVALID_PARAM -2000", f"shm_fd {fd}", "not an open descriptor"):
            from_file(fd)


@pytest.mark.usefixtures("member")
def test_descriptor_that_is_no_file() -> None:
    readable, writable = os.pipe()
    try:
        with refusal("INVALID_PARAM -2000", f"shm_fd {readable}", "not a shared-memory file"):
            from_file(readable)
    finally:
        os.close(readable)
        os.close(writable)


@pytest.mark.usefixtures("member")
def test_file_that_is_too_small_or_read_only() -> None:
    with open(os.memfd_create("brought", os.MFD_ALLOW_SEALING), "w+b") as file:
        file.truncate(2 * MIB - 1)
        with refusal("INVALID_PARAM -2000", f"{2 * MIB - 1} bytes", str(2 * MIB)):
            from_file(file.fileno())
        file.truncate(2 * MIB)
        with refusal("INVALID_PARAM -2000", str(4 * MIB), "rounded up to 2 MiB"):
            from_file(file.fileno(), 2 * MIB + 1)
        read_only = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY)
        try:
            with refusal("INVALID_PARAM -2000", "reading and writing"):
                from_file(read_only)
        finally:
            os.close(read_only)
        from_file(file.fileno()).destroy()


@pytest.mark.usefixtures("member")
def test_file_that_could_be_cut() -> None:
    """Its owner truncates it, or its successor opens it anew: a neighbour that touches it dies of SIGBUS."""
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        file.truncate(2 * MIB)
        with refusal("INVALID_PARAM -2000", "could be cut", "MFD_ALLOW_SEALING"):
            from_file(file.fileno())


@pytest.mark.usefixtures("member")
@pytest.mark.parametrize("seal", [fcntl.F_SEAL_WRITE, 0x10], ids=["write", "future write"])
def test_file_that_nobody_may_write(seal: int) -> None:
    with open(os.memfd_create("brought", os.MFD_ALLOW_SEALING), "w+b") as file:
        file.truncate(2 * MIB)
        fcntl.fcntl(file.fileno(), fcntl.F_ADD_SEALS, seal)
        with refusal("INVALID_PARAM -2000", f"shm_fd {file.fileno()}", "sealed against writing"):
            from_file(file.fileno())


@pytest.mark.usefixtures("member")
def test_file_without_dram_makes_no_sense() -> None:
    with refusal("INVALID_PARAM -2000", "local_dram_size is 0"):
        bm.create2(0, 0, 2 * MIB, flags=CREATE_WITH_SHM, shm_fd=0)


@pytest.mark.usefixtures("member")
def test_failed_creates_leave_nothing_behind() -> None:
    """Ranges, segments and names are free again; the leak check sees to the descriptors."""
    for _ in range(20):
        with refusal("MALLOC_FAILED -2001"):
            bm.create2(0, MIB, MIB, TIB >> 4, TIB >> 4)
    bm.create(0, MIB).destroy()


# ---- several processes ----------------------------------------------------------------------------------------------


def test_ranks_that_disagree_about_the_maxima(store_url: str, workers: Any) -> None:
    with workers(1) as cluster:
        assert cluster.call(0, "take_part", store_url, 4, dram=2 * MIB, max_dram_size=8 * MIB) == 0
        assert pool_worker.enter(store_url, 4) == (0, "")
        with refusal("INVALID_PARAM -2000", "rank 0 asked", "8 MiB of DRAM per rank", "rank 1 asked", "4 MiB of DRAM"):
            bm.create2(0, 2 * MIB, 4 * MIB)
        # The same total, cut differently: only the ranks themselves can tell.
        crooked = bm.create2(0, 2 * MIB, 4 * MIB, 0, 4 * MIB)
        assert crooked.join() == -2000
        sentence = mf.get_and_clear_last_err_msg()
        assert f"max_dram_size {4 * MIB}" in sentence
        assert f"{8 * MIB}" in sentence
        assert "rank 0" in sentence
        assert "rank 1" in sentence
        crooked.destroy()
        assert cluster.call(0, "view") == [0]
        bm.create2(0, 0, 8 * MIB).join()
        assert cluster.call(0, "write", 0, 0, b"unharmed") == (0, "")


def test_fixed_rank_that_is_taken(store_url: str, workers: Any) -> None:
    fixed = {"auto_ranking": False, "rank_id": 2}
    assert mf.create_config_store(store_url) == 0
    with workers(2) as cluster:
        assert cluster.call(0, "enter", store_url, 4, **fixed) == (0, "")
        code, sentence = cluster.call(1, "enter", store_url, 4, **fixed)
        assert code == -2006
        assert "rank 2" in sentence
        assert cluster.call(1, "enter", store_url, 4, auto_ranking=False, rank_id=3) == (0, "")


def test_full_world(store_url: str, workers: Any) -> None:
    with workers(2) as cluster:
        assert cluster.call(0, "enter", store_url, 1) == (0, "")
        code, sentence = cluster.call(1, "enter", store_url, 1)
        assert code == -2002
        assert "1" in sentence


def test_one_store_cannot_serve_two_world_sizes(store_url: str, workers: Any) -> None:
    with workers(2) as cluster:
        assert cluster.call(0, "enter", store_url, 4) == (0, "")
        code, sentence = cluster.call(1, "enter", store_url, 8)
        assert code == -2000
        assert "8" in sentence
        assert "4" in sentence


def test_two_clusters_on_one_host_do_not_see_each_other(store_url: str, workers: Any) -> None:
    with reserved_port() as port, workers(2) as cluster:
        assert cluster.call(0, "take_part", store_url, 4) == 0
        assert cluster.call(1, "take_part", f"tcp://127.0.0.1:{port}", 4) == 0
        cluster.call(0, "store", 0, 0, b"first")
        cluster.call(1, "store", 0, 0, b"other")
        assert cluster.call_all("view") == [[0], [0]]
        assert cluster.call_all("load", 0, 0, 5) == [b"first", b"other"]


def test_sizes_unlike_those_of_another_rank(store_url: str, workers: Any) -> None:
    with workers(1) as cluster:
        assert cluster.call(0, "take_part", store_url, 4, dram=2 * MIB, max_dram_size=4 * MIB) == 0
        assert pool_worker.enter(store_url, 4) == (0, "")
        with refusal(
            "INVALID_PARAM -2000",
            "rank 0 asked for bm object 0 with 4 MiB of DRAM per rank for 4 ranks, but rank 1 asked for bm object 0 "
            "with 8 MiB of DRAM and 2 MiB of HBM per rank for 4 ranks; all ranks must ask for the same",
        ):
            bm.create2(0, 0, 8 * MIB, 0, 2 * MIB)
