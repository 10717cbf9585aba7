"""Two and eight processes that transfer to each other at the same time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from support.workers import Cluster

Workers = Callable[..., AbstractContextManager[Cluster]]


@pytest.mark.parametrize("count", [2, 8])
def test_all_calls_between_all_processes(workers: Workers, count: int) -> None:
    """Everybody at the same time, to another one in every step, and at last to itself; memory of both kinds."""
    lane = 256 * 1024 + 4
    with workers(count) as cluster:
        sessions = cluster.call_all("start")
        places = [
            cluster.call(i, "open_memory", "inbox", count * lane, ("private", "arena")[i % 2]) for i in range(count)
        ]
        for step in range(count):
            partners = [(i + step + 1) % count for i in range(count)]
            pending = [
                cluster.begin(i, "exercise", sessions[to], places[to] + i * lane, lane, step * count + i)
                for i, to in enumerate(partners)
            ]
            assert [p.result() for p in pending] == [11] * count


def test_eight_processes_write_to_each_other(workers: Workers) -> None:
    with workers(8) as cluster:
        sessions = cluster.call_all("start")
        places = cluster.call_all("open_memory", "inbox", 8 * 4096)
        cluster.call_all("open_memory", "mine", 4096, "arena")
        for index in range(8):
            cluster.call(index, "store", "mine", bytes([index + 1]) * 4096)
        for step in range(8):  # everybody writes at the same time, to another one in every step
            pending = [
                cluster.begin(i, "write", sessions[(i + step) % 8], "mine", places[(i + step) % 8] + i * 4096, 4096)
                for i in range(8)
            ]
            assert [p.result() for p in pending] == [(0, "")] * 8
        expected = b"".join(bytes([i + 1]) * 4096 for i in range(8))
        assert cluster.call_all("load", "inbox") == [expected] * 8
