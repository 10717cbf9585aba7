"""A transaction that an endpoint carries out late, after its client has repeated it and gone on, changes nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from memfabric_hybrid.store.etcd.gateway import api
from memfabric_hybrid.store.etcd.gateway.gateway import OutcomeUnknown
from memfabric_hybrid.store.etcd.store import EtcdStore
from store.worlds import soon, wait_until
from support import etcd
from support.etcd import EtcdCluster, EtcdNode


@pytest.fixture
def cluster3() -> Iterator[EtcdCluster]:
    with etcd.running(3) as cluster:
        yield cluster


def stopped_with_a_request(store: EtcdStore, cluster: EtcdCluster) -> EtcdNode:
    """A node that has a write of "1" in its socket, which was repeated elsewhere.

    Until it is so: the event thread may have gone on to another endpoint in the very moment in which this one stops.
    """
    for _ in range(20):
        node = next(node for node in cluster.nodes if node.client_port == store._endpoints.in_order[0][1])
        node.signal(signal.SIGSTOP)
        store.set("k", b"1", deadline=soon())
        if store._scope.fence > 0:
            return node
        node.signal(signal.SIGCONT)
        node.wait_until_it_serves()
    raise AssertionError("no request went to a stopped node")


def test_a_stopped_node_that_goes_on_changes_nothing(cluster3: EtcdCluster) -> None:
    with EtcdStore(cluster3.url()) as store:
        store.set("k", b"0", deadline=soon())
        rank = store.claim_rank("g", 8, b"", deadline=soon())
        stopped = stopped_with_a_request(store, cluster3)
        store.set("k", b"2", deadline=soon())
        store.release_rank("g", rank, deadline=soon())
        stopped.signal(signal.SIGCONT)
        stopped.wait_until_it_serves()
        with EtcdStore(f"etcd://{stopped.address}#{store.url.instance}") as beside:
            wait_until(lambda: beside.get("k", deadline=soon()) == b"2")
            for _ in range(20):
                beside.barrier("g", 0, 0, 1, deadline=soon())
                assert beside.prefix("", deadline=soon()).entries == {"k": b"2"}


def test_an_arrival_whose_answer_is_lost_counts_once(shared_etcd: EtcdCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was written, another rank completed the round and cleaned up, and only then is it repeated."""
    url = shared_etcd.url()
    with EtcdStore(url) as store, EtcdStore(url) as other:
        ask = store._gateway.ask
        lost: list[api.Body] = []

        def lose_one_answer(path: str, body: api.Body, *args: Any, **options: Any) -> Any:
            answer = ask(path, body, *args, **options)
            if path == api.TXN and "/rounds/g/0/0" in repr(body) and not lost:
                lost.append(body)
                assert other.gather("g", 0, 1, 2, b"other", deadline=soon()) == [b"own", b"other"]
                raise OutcomeUnknown("lost")
            return answer

        monkeypatch.setattr(store._gateway, "ask", lose_one_answer)
        assert store.gather("g", 0, 0, 2, b"own", deadline=soon()) == [b"own", b"other"]
        assert lost
        left = ask(api.RANGE, api.of_prefix(store._scope.names.rounds), api.Found, soon())
        assert left.kvs == []


def test_threads_agree_on_the_fence(shared_etcd: EtcdCluster) -> None:
    with EtcdStore(shared_etcd.url()) as store:
        store.set("k", b"0", deadline=soon())
        store._scope._move_fence(soon())
        moved, store._scope.fence = store._scope.fence, 0  # as a thread sees it that has not heard of it
        store.set("k", b"1", deadline=soon())
        assert store._scope.fence == moved
        assert store.compare_and_set("k", b"0", b"2", deadline=soon()) == (False, b"1")
