"""C and Python members share one pool, one heap, one transfer session; and either of them may die."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid.clock import Deadline
from support import c_instrumented, campaigns
from support.c_member import CMember
from support.ports import reserved_port
from support.workers import Cluster

Compile = Callable[..., Path]
KIB = 1024


@pytest.fixture(params=["plain", pytest.param("instrumented", marks=c_instrumented.MARKS)])
def member(request: pytest.FixtureRequest, compiled: Compile) -> Callable[[], CMember]:
    """The C members; instrumented: with the sanitizers, program and library."""
    if request.param == "plain":
        program, environment = compiled("mixed_member.c"), {}
    else:
        program = compiled("mixed_member.c", flags=c_instrumented.FLAGS)
        environment = request.getfixturevalue("instrumented")
    return lambda: CMember(program, **environment)


@pytest.fixture
def own_store(store_url: str) -> Iterator[str]:
    """A store that outlives every member."""
    assert mf.create_config_store(store_url) == 0
    yield store_url
    mf.uninitialize()


def enter_pool(member: CMember, url: str, object_id: int = 0) -> int:
    rank = member.call("enter_pool", url, 8)
    assert rank >= 0, member.said
    assert member.call("create", object_id) == 0, member.said
    assert member.call("join") == 0, member.said
    return rank


def test_one_pool(member: Callable[[], CMember], own_store: str) -> None:
    with Cluster(1, "support.pool_worker") as cluster, member() as first, member() as second:
        python = cluster.call(0, "take_part", own_store, 8, settings={"start_store": False})
        ranks = [enter_pool(first, own_store), enter_pool(second, own_store)]
        assert (python, ranks) == (0, [1, 2])
        addresses = [first.call("ptr", rank) for rank in range(3)]
        assert addresses == [second.call("ptr", rank) for rank in range(3)]
        assert addresses == [cluster.call(0, "address", rank) for rank in range(3)]
        # From C to Python, from Python to C, between C members, and as a third rank sees it.
        assert first.call("put", addresses[0], 11, 4 * KIB) == 0
        assert cluster.call(0, "load", 0, 0, 4 * KIB) == bytes([11]) * 4 * KIB
        assert cluster.call(0, "write", 2, 0, bytes([22]) * 100 * KIB) == (0, "")
        assert second.call("load", addresses[2] + 100 * KIB - 1) == 22
        assert first.call("get", addresses[2], 100 * KIB) == 22
        assert second.call("put", addresses[1] + 64, 33, 1) == 0
        assert first.call("load", addresses[1] + 64) == 33
        # One leaves, one comes back.
        assert first.call("leave") == 0
        code, why = cluster.call(0, "write", 1, 0, b"x")
        assert code == -2014, why
        assert second.call("put", addresses[1], 1, 1) == -2014
        assert "rank 1" in second.said
        assert first.call("join") == 0
        assert second.call("put", addresses[1], 1, 1) == 0


def test_one_heap(member: Callable[[], CMember], own_store: str) -> None:
    with Cluster(2, "support.heap_worker") as cluster, member() as third:
        for rank in range(2):
            assert cluster.call(rank, "enter", own_store, 3, start_store=False) == (0, "")
        third.ask("enter_heap", own_store, 3, 2)
        bases = cluster.call_all("create", 3)
        base = third.answer()
        assert bases == [base, base], third.said
        size = cluster.call(0, "get", "symmetric_size")
        assert third.call("store", base + 5, 55) == 0
        cluster.call(1, "store_bytes", 2, 9, bytes([66]))
        begun = [cluster.begin(rank, "call", "barrier") for rank in range(2)]
        assert third.call("barrier") == 0, third.said
        assert [each.result() for each in begun] == [(0, "")] * 2
        assert cluster.call(0, "load_bytes", 0, 5, 1) == bytes([55])
        assert third.call("load", base + 2 * size + 9) == 66
        begun = [cluster.begin(rank, "call", "all_gather", (rank + 1).to_bytes(4, "little")) for rank in range(2)]
        assert third.call("gather", 3, 3) == 1 * 1 + 2 * 2 + 3 * 3
        expected = b"".join(number.to_bytes(4, "little") for number in (1, 2, 3))
        assert [each.result()[0] for each in begun] == [expected] * 2
        third.kill()
        code, why = cluster.call(0, "call", "barrier")
        assert code == -2014, why
        assert "rank 2" in why


def test_one_session(member: Callable[[], CMember]) -> None:
    with Cluster(1, "support.transfer_worker") as cluster, member() as other:
        there = cluster.call(0, "start")
        python_memory = cluster.call(0, "open_memory", "a", 64 * KIB)
        with reserved_port() as port:
            session = f"127.0.0.1:{port}"
            c_memory = other.call("open_engine", session)
            assert c_memory > 0, other.said
            assert other.call("write", there, python_memory, 77, 64 * KIB) == 0, other.said
            assert cluster.call(0, "load", "a") == bytes([77]) * 64 * KIB
            cluster.call(0, "store", "a", bytes([88]) * 64 * KIB)
            assert cluster.call(0, "write", session, "a", c_memory, 64 * KIB) == (0, "")
            assert other.call("load", c_memory + 64 * KIB - 1) == 88
            assert other.call("read", there, python_memory, 64 * KIB) == 88
            assert other.call("write", there, python_memory + 64 * KIB, 1, 1) == -2000
            with member() as third:
                assert third.call("open_engine", "127.0.0.1:0") > 0, third.said
                assert third.call("write", session, c_memory, 99, 1) == 0, third.said
                other.kill()
                assert third.call("write", session, c_memory, 1, 1) == -2014
                assert session in third.said
                code, why = cluster.call(0, "write", session, "a", c_memory, 64)
                assert code == -2014
                assert session in why
                cluster.kill(0)
                assert third.call("write", there, python_memory, 1, 1) == -2014
                assert there in third.said


def wait_until_gone(watcher: CMember, address: int) -> None:
    """Whoever had that address was killed: copies to it fail soon, and never otherwise than so."""
    deadline = Deadline(campaigns.notice_s())
    while (code := watcher.call("put", address, 1, KIB)) == 0:
        assert not deadline.expired, "nobody notices that it is dead"
    assert code == -2014, watcher.said


@pytest.mark.soak
def test_members_die_and_come_back(compiled: Compile, own_store: str) -> None:
    """C and Python members, killed and started again: the others notice and go on, ranks and slots are used again."""
    program = compiled("mixed_member.c")
    choose = campaigns.generator("C kills")
    with Cluster(2, "support.pool_worker") as cluster, CMember(program) as watcher, ExitStack() as ends:
        members: list[CMember | int] = [ends.enter_context(CMember(program)) for _ in range(2)]  # C's, Python's

        def take_part(member: CMember | int) -> int:
            if isinstance(member, CMember):
                return enter_pool(member, own_store)
            rank: int = cluster.call(member, "take_part", own_store, 8, settings={"start_store": False})
            return rank

        def kill_and_start(member: CMember | int) -> CMember | int:
            if isinstance(member, CMember):
                member.kill()
                return ends.enter_context(CMember(program))
            cluster.kill(member)
            cluster.start(member)
            return member

        enter_pool(watcher, own_store)
        members += range(2)
        ranks = [take_part(member) for member in members]
        addresses = [watcher.call("ptr", rank) for rank in range(8)]
        for _ in range(campaigns.length("MF_C_KILLS", 20)):
            chosen = choose.randrange(len(members))
            members[chosen] = kill_and_start(members[chosen])
            wait_until_gone(watcher, addresses[ranks[chosen]])
            rank = take_part(members[chosen])
            assert rank == ranks[chosen], "the lowest that is free, and only the dead one's is"
            for each in ranks:
                value = choose.randrange(1, 100)
                assert watcher.call("put", addresses[each], value, KIB) == 0, watcher.said
                assert watcher.call("get", addresses[each], KIB) == value, watcher.said
