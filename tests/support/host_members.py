"""Members of one cluster on several hosts: worker 0 runs the store on the first host and nothing else, the others are
ranks, two on each host. Worker n has rank n - 1 as long as nobody else enters.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import Any

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.store import connect
from support.hosts import Network
from support.workers import Cluster

STORE = 0
MEMBERS = range(1, 7)
ON_HOST = ((1, 2), (3, 4), (5, 6))  # the members of each host
RANKS = list(range(6))
WORLD = 8
PORT = 9000


def store_url(network: Network, version: int = 4) -> str:
    host = network.hosts[0]
    return f"tcp://{host.address}:{PORT}" if version == 4 else f"tcp6://[{host.address6}]:{PORT}"


@contextlib.contextmanager
def started(network: Network, heartbeat_timeout_s: float, version: int = 4) -> Iterator[Cluster]:
    """Everybody is in, and knows it."""
    places = [network.hosts[0].place, *network.places(2)]
    environment = {"MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S": f"{heartbeat_timeout_s:g}"}
    with Cluster(len(places), "support.pool_worker", environment=environment, places=places) as cluster:
        url = store_url(network, version)
        start_store(cluster, url)
        for index in MEMBERS:
            assert take_part(cluster, index, url) == index - 1
        wait_until_whole(cluster)
        yield cluster


def start_store(cluster: Cluster, url: str) -> None:
    assert cluster.call(STORE, "enter", url, WORLD, start_store_only=True) == (0, "")


def restart_store(cluster: Cluster, network: Network) -> None:
    """Killed, and started again; returns at once."""
    cluster.kill(STORE)
    cluster.start(STORE)
    start_store(cluster, store_url(network))


def wait_until_registered(network: Network, count: int) -> None:
    """So many ranks are known to the store."""
    deadline = Deadline(20)
    with network.hosts[0].entered(), connect(store_url(network)) as store:
        while len(store.prefix("bm/ranks/", deadline=deadline).entries) != count:
            assert not deadline.expired, "the members have not registered again"
            time.sleep(0.01)


def take_part(cluster: Cluster, index: int, url: str, **settings: Any) -> int:
    """Everything up to join, with the events recorded from the first one on; the rank. `settings`: of BmConfig."""
    assert cluster.call(index, "enter", url, WORLD, **{"start_store": False, **settings}) == (0, "")
    cluster.call(index, "create")
    cluster.call(index, "record_events")
    cluster.call(index, "join")
    return int(cluster.call(index, "rank"))


def wait_until_whole(cluster: Cluster, indices: Iterable[int] = MEMBERS, ranks: Iterable[int] = RANKS) -> None:
    """These members know of each other, and of nobody else."""
    chosen, everybody = list(indices), sorted(ranks)
    own = cluster.call_all("rank", indices=chosen)
    waits = [
        cluster.begin(index, "wait_for_company", [rank for rank in everybody if rank != mine])
        for index, mine in zip(chosen, own, strict=True)
    ]
    for wait in waits:
        wait.result()


def wait_until_left(cluster: Cluster, index: int, rank: int) -> None:
    """This member's copies to that rank fail because it is gone."""
    deadline = Deadline(20)
    while cluster.call(index, "write", rank, 0, b"?")[0] != -2014:
        assert not deadline.expired, f"rank {rank} is still there"
        time.sleep(0.01)


def departures(cluster: Cluster, index: int) -> list[int]:
    """Who left, in order, as this member was told."""
    return [rank for rank, name in cluster.call(index, "wait_for_events", 0) if name == "LEAVE_EVENT"]


def write_between_neighbours(cluster: Cluster, within_s: float = 0.0) -> None:
    """On each host the ranks reach each other's memory, at once or within that time."""
    for one, other in ON_HOST:
        write(cluster, one, other, within_s)


def write(cluster: Cluster, one: int, other: int, within_s: float = 0.0) -> None:
    """What one member writes to another one's memory, that one has."""
    word, owner = f"from {one} to {other}".encode(), cluster.call(other, "rank")
    deadline = Deadline(within_s)
    while (answer := cluster.call(one, "write", owner, 0, word)) != (0, ""):
        assert not deadline.expired, answer
        time.sleep(0.01)
    assert cluster.call(other, "load", owner, 0, len(word)) == word
