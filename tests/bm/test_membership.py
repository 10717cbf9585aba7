"""Who takes part: joining, leaving, coming back, growing; what the others see of it, and when."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm, logs
from memfabric_hybrid.bm import BmMemType
from support import pool_worker
from support.pool_worker import MIB

HOST, DEVICE = BmMemType.HOST, BmMemType.DEVICE
CREATE_WITH_SHM = 1 << 8


def test_all_ranks_see_the_same_numbers(store_url: str, workers: Any) -> None:
    with workers(3) as cluster:
        cluster.call_all(
            "take_part", store_url, 3, dram=2 * MIB, max_dram_size=6 * MIB, hbm=2 * MIB, max_hbm_size=4 * MIB
        )
        cluster.call_all("wait_for_view", [0, 1, 2])
        for mem_type, step in ((HOST, 6 * MIB), (DEVICE, 4 * MIB)):
            bases = cluster.call_all("address", 0, 0, mem_type)
            assert len(set(bases)) == 1
            assert cluster.call_all("address", 2, 0, mem_type) == [bases[0] + 2 * step] * 3
            assert {cluster.call(1, "call", "get_rank_id_by_gva", bases[0] + 2 * step - 1)[0]} == {1}
            assert cluster.call(1, "call", "gva_to_va", bases[0] + step)[0] == bases[0] + step


@pytest.mark.also_on_etcd
@pytest.mark.also_over_tls
def test_join_means_everybody_can_reach_us_and_we_them(store_url: str, workers: Any) -> None:
    with workers(3) as cluster:
        for index in range(3):
            assert cluster.call(index, "take_part", store_url, 3) == index
            present = list(range(index + 1))
            assert cluster.call_all("view", indices=present) == [present] * len(present), "at once, without waiting"


@pytest.mark.also_on_etcd
@pytest.mark.also_over_tls
def test_leave_is_seen_at_once_and_joining_again_works(store_url: str, workers: Any) -> None:
    with workers(3) as cluster:
        for index in range(3):
            cluster.call(index, "take_part", store_url, 3)
        cluster.call(1, "store", 1, 0, b"kept")
        for _ in range(5):
            assert cluster.call(1, "call", "leave") == (0, "")
            code, sentence = cluster.call(0, "write", 1, 0, b"nobody")
            assert code == -2014
            assert "rank 1" in sentence
            assert "left" in sentence
            assert cluster.call(2, "view") == [0, 2]
            assert cluster.call(1, "write", 0, 0, b"no")[0] == -2003
            cluster.call(1, "join")
            assert cluster.call_all("view") == [[0, 1, 2]] * 3
            assert cluster.call(0, "read", 1, 0, 4) == (0, b"kept"), "its bytes stay until destroy"


def test_destroy_and_create_anew(store_url: str, workers: Any) -> None:
    with workers(2) as cluster:
        for index in range(2):
            cluster.call(index, "take_part", store_url, 2)
        for _ in range(5):
            cluster.call(1, "store", 1, 0, b"old")
            cluster.call(1, "destroy")
            assert cluster.call(0, "view") == [0]
            cluster.call(1, "create")
            cluster.call(1, "join")
            assert cluster.call(0, "view") == [0, 1]
            assert cluster.call(0, "read", 1, 0, 3) == (0, b"\0\0\0"), "new memory"


def test_uninitialize_and_come_back(store_url: str, workers: Any) -> None:
    with workers(2) as cluster:
        assert cluster.call(0, "take_part", store_url, 2) == 0
        for _ in range(5):
            assert cluster.call(1, "take_part", store_url, 2) == 1
            assert cluster.call(0, "view") == [0, 1]
            cluster.call(1, "uninitialize")
            assert cluster.call(0, "view") == [0]


def test_group_events(store_url: str, workers: Any) -> None:
    with workers(3) as cluster:
        cluster.call(0, "take_part", store_url, 3)
        cluster.call(0, "record_events")
        cluster.call(1, "take_part", store_url, 3)
        cluster.call(2, "take_part", store_url, 3)
        cluster.call(1, "call", "leave")
        cluster.kill(2)
        assert cluster.call(0, "wait_for_events", 4) == [
            (1, "JOIN_EVENT"), (2, "JOIN_EVENT"), (1, "LEAVE_EVENT"), (2, "LEAVE_EVENT"),
        ]  # fmt: skip


def test_group_event_handler_may_call_the_library_and_may_fail(store_url: str, workers: Any) -> None:
    pool_worker.take_part(store_url, 3)
    pool = pool_worker.pools[0]
    seen: list[tuple[int, str, int]] = []
    lines: list[str] = []

    def handler(rank: int, event: bm.BmGroupEvent) -> None:
        seen.append((rank, event.name, pool_worker.read(rank, 0, 1)[0]))
        raise KeyError("the program's own mistake")

    assert mf.set_extern_logger(lambda level, text: lines.append(text)) == 0
    try:
        pool.set_group_event_handler(handler)
        with workers(1) as cluster:
            cluster.call(0, "take_part", store_url, 3)
            cluster.call(0, "call", "leave")
            deadline = time.monotonic() + 10
            while len(seen) < 2 and time.monotonic() < deadline:
                time.sleep(0.002)
        assert seen[0][:2] == (1, "JOIN_EVENT")
        assert seen[1] == (1, "LEAVE_EVENT", -2014)
    finally:
        bm.uninitialize()
        logs.handler.extern = None
    assert any("the program's own mistake" in line for line in lines)


def test_extension_can_be_used_by_peers_when_the_call_returns(store_url: str, workers: Any) -> None:
    with workers(2) as cluster:
        for index in range(2):
            cluster.call(index, "take_part", store_url, 2, dram=2 * MIB, max_dram_size=20 * MIB, max_hbm_size=4 * MIB)
        for step in range(9):
            end = (2 + 2 * step) * MIB
            assert cluster.call(0, "write", 1, end - 1, b"xy")[0] == -2000
            assert cluster.call(1, "call", "extend_local_mem", HOST, MIB + 1) == (0, "")
            assert cluster.call(0, "write", 1, end - 1, b"xy") == (0, ""), "across the seam of two segments"
            assert cluster.call(1, "load", 1, end - 1, 2) == b"xy"
        assert cluster.call(1, "call", "local_mem_size", HOST)[0] == 20 * MIB
        assert cluster.call(1, "call", "extend_local_mem", DEVICE, size=3 * MIB) == (0, "")
        assert cluster.call(1, "call", "local_mem_size")[0] == 4 * MIB
        cluster.call(0, "store", 1, 4 * MIB - 2, b"hi", DEVICE)
        assert cluster.call(1, "load", 1, 4 * MIB - 2, 2, DEVICE) == b"hi"


def test_extension_before_join_and_after_leave(store_url: str, workers: Any) -> None:
    with workers(2) as cluster:
        cluster.call(0, "take_part", store_url, 2, dram=0, max_dram_size=8 * MIB)
        assert cluster.call(1, "enter", store_url, 2) == (0, "")
        cluster.call(1, "create", dram=0, max_dram_size=8 * MIB)
        assert cluster.call(1, "call", "extend_local_mem", size=MIB) == (0, "")
        cluster.call(1, "join")
        assert cluster.call(0, "write", 1, 0, b"first") == (0, "")
        cluster.call(1, "call", "leave")
        assert cluster.call(1, "call", "extend_local_mem", HOST, MIB) == (0, "")
        cluster.call(1, "join")
        assert cluster.call(0, "write", 1, 2 * MIB - 3, b"across") == (0, "")
        assert cluster.call(0, "read", 1, 0, 5) == (0, b"first")


def test_too_many_extensions(store_url: str) -> None:
    pool_worker.take_part(store_url, 1, dram=2 * MIB, max_dram_size=1024 * MIB)
    pool = pool_worker.pools[0]
    codes = [pool.extend_local_mem(HOST, 1) for _ in range(200)]
    assert codes == [0] * 199 + [-2002]
    assert "200" in mf.get_last_err_msg()


def test_consumer_contributes_nothing(store_url: str, workers: Any) -> None:
    with workers(2) as cluster:
        cluster.call(0, "take_part", store_url, 2, dram=2 * MIB, max_dram_size=2 * MIB)
        cluster.call(1, "take_part", store_url, 2, dram=0, max_dram_size=2 * MIB)
        assert cluster.call(1, "write", 0, 100, b"producer's") == (0, "")
        assert cluster.call(0, "load", 0, 100, 10) == b"producer's"
        code, sentence = cluster.call(0, "write", 1, 0, b"x")
        assert code == -2000
        assert "0 bytes" in sentence


def test_memory_that_the_program_brings_along(store_url: str, workers: Any) -> None:
    with open(os.memfd_create("brought", os.MFD_ALLOW_SEALING), "w+b") as file, workers(1) as cluster:
        file.truncate(4 * MIB)
        file.write(b"in the file")
        file.flush()
        assert pool_worker.enter(store_url, 2) == (0, "")
        pool_worker.create(dram=3 * MIB, max_dram_size=8 * MIB, flags=CREATE_WITH_SHM, shm_fd=file.fileno())
        pool_worker.join()
        cluster.call(0, "take_part", store_url, 2, dram=0, max_dram_size=8 * MIB)
        assert cluster.call(0, "load", 0, 0, 11) == b"in the file"
        assert cluster.call(0, "write", 0, 4 * MIB - 4, b"last") == (0, "")
        assert os.pread(file.fileno(), 4, 4 * MIB - 4) == b"last"
        assert pool_worker.pools[0].extend_local_mem(HOST, 2 * MIB) == 0
        assert cluster.call(0, "write", 0, 4 * MIB - 2, b"seam") == (0, "")
        for cut in (lambda: file.truncate(MIB), lambda: os.open(f"/proc/self/fd/{file.fileno()}", os.O_TRUNC)):
            with pytest.raises(PermissionError):  # else the other rank would die of SIGBUS
                cut()
        assert cluster.call(0, "load", 0, 2 * MIB, 4) == bytes(4)


@pytest.mark.parametrize("count", [8, 64])
def test_many_ranks_join_see_each_other_and_leave(store_url: str, workers: Any, count: int) -> None:
    with workers(count) as cluster:
        began = time.monotonic()
        ranks = cluster.call_all("take_part", store_url, count, dram=2 * MIB, timeout_s=60)
        took_s = time.monotonic() - began
        assert sorted(ranks) == list(range(count))
        everybody = list(range(count))
        assert cluster.call_all("view", timeout_s=60) == [everybody] * count, "everybody, when all joins have returned"
        words = [rank.to_bytes(8, "little") for rank in ranks]
        writes = [cluster.begin(i, "write", (rank + 1) % count, 8 * rank, words[i]) for i, rank in enumerate(ranks)]
        assert [write.result(60) for write in writes] == [(0, "")] * count
        received = cluster.call_all("read", 0, 8 * (count - 1), 8, timeout_s=60)
        assert received == [(0, (count - 1).to_bytes(8, "little"))] * count
        leavers = range(0, count, 2)
        cluster.call_all("call", "leave", indices=leavers, timeout_s=60)
        stayed = sorted(ranks[index] for index in range(1, count, 2))
        assert cluster.call_all("view", indices=range(1, count, 2), timeout_s=60) == [stayed] * (count // 2)
        cluster.call_all("uninitialize", timeout_s=60)
    print(f"{count} ranks: initialize, create and join took {took_s * 1000:.0f} ms together")
