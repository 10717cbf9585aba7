"""C members on several hosts, beside Python members: pools, heaps and transfers over the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support import c_examples, hosts
from support.c_member import CMember
from support.hosts import Network
from support.workers import Cluster

pytestmark = hosts.needs_root
Compile = Callable[..., Path]
KIB = 1024
PORT = 9000


@pytest.fixture
def cluster(hosts3: Network) -> Iterator[Cluster]:
    """A Python process on the first host, which runs the store."""
    with Cluster(1, "support.pool_worker", places=[hosts3.hosts[0].place]) as cluster:
        yield cluster


def url_of(network: Network) -> str:
    return f"tcp://{network.hosts[0].address}:{PORT}"


def test_pool_across_hosts(compiled: Compile, hosts3: Network, cluster: Cluster) -> None:
    url = url_of(hosts3)
    assert cluster.call(0, "take_part", url, 8) == 0
    with ExitStack() as members:
        started = []
        for host in hosts3.hosts[1:]:
            with host.entered():
                started.append(members.enter_context(CMember(compiled("mixed_member.c"))))
            assert started[-1].call("enter_pool", url, 8) == len(started)
            assert started[-1].call("create", 0) == 0
            assert started[-1].call("join") == 0
        addresses = [cluster.call(0, "address", rank) for rank in range(3)]
        assert started[0].call("put", addresses[2], 5, 100 * KIB) == 0, started[0].said
        assert started[1].call("load", addresses[2] + 100 * KIB - 1) == 5
        assert started[1].call("put", addresses[0], 6, KIB) == 0, started[1].said
        assert cluster.call(0, "load", 0, 0, KIB) == bytes([6]) * KIB
        assert cluster.call(0, "write", 1, 0, bytes([7]) * KIB) == (0, "")
        assert started[0].call("get", addresses[1], KIB) == 7
        started[1].kill()
        assert cluster.call(0, "wait_for_view", [0, 1]) >= 0
        assert started[0].call("put", addresses[2], 5, KIB) == -2014


@pytest.mark.parametrize("name", c_examples.EXAMPLES)
@pytest.mark.parametrize(("compiler", "language"), [("gcc", "c11"), ("clang", "c++17")])
def test_example_across_hosts(compiled: Compile, hosts3: Network, name: str, compiler: str, language: str) -> None:
    """The programs of all generations."""
    program = compiled(f"{name}.c", compiler=compiler, language=language)
    c_examples.EXAMPLES[name](program, c_examples.on_hosts(hosts3.hosts), PORT)


def test_barriers_across_hosts(compiled: Compile, hosts3: Network, cluster: Cluster) -> None:
    url = url_of(hosts3)
    cluster.call(0, "enter", url, 8)  # runs the store
    with ExitStack() as members:
        started = []
        for rank, host in enumerate((hosts3.hosts[0], hosts3.hosts[0], hosts3.hosts[1])):
            with host.entered():
                started.append(members.enter_context(CMember(compiled("mixed_member.c"))))
            started[-1].ask("enter_heap", url, 3, rank)
        bases = {each.answer() for each in started}
        assert len(bases) == 1
        assert min(bases) > 0, [each.said for each in started]
        for each in started:
            each.ask("barrier")
        assert [each.answer() for each in started] == [0, 0, 0]
        for rank, each in enumerate(started):
            each.ask("gather", 3, rank + 1)
        assert [each.answer() for each in started] == [14, 14, 14]


def test_transfer_across_hosts(compiled: Compile, hosts3: Network) -> None:
    sessions = [f"{host.address}:5001" for host in hosts3.hosts[:2]]
    with ExitStack() as members:
        started = []
        for host in hosts3.hosts[:2]:
            with host.entered():
                started.append(members.enter_context(CMember(compiled("mixed_member.c"))))
        memory = [each.call("open_engine", session) for each, session in zip(started, sessions, strict=True)]
        assert min(memory) > 0
        assert started[0].call("write", sessions[1], memory[1], 9, 500 * KIB) == 0, started[0].said
        assert started[1].call("load", memory[1] + 500 * KIB - 1) == 9
        assert started[1].call("read", sessions[0], memory[0], KIB) == 9, started[1].said
