"""A transaction that an endpoint carries out late, after its client has repeated it and gone on, changes nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from memfabric_hybrid.store.etcd import api
from memfabric_hybrid.store.etcd.gateway import OutcomeUnknown
from memfabric_hybrid.store.etcd.store import EtcdStore
from store.worlds import soon, wait_until
from support import etcd
from support.etcd import EtcdCluster


@pytest.fixture
def cluster3() -> Iterator[EtcdCluster]:
    with etcd.running(3) as cluster:
        yield cluster


def test_a_stopped_node_that_goes_on_changes_nothing(cluster3: EtcdCluster) -> None:
    store = EtcdStore(cluster3.url())
    store.set("k", b"0", deadline=soon())
    rank = store.claim_rank("g", 8, b"", deadline=soon())
    first = next(node for node in cluster3.nodes if node.client_port == store._endpoints.in_order[0][1])
    first.signal(signal.SIGSTOP)
    store.set("k", b"1", deadline=soon())  # the stopped one has it in its socket as well
    store.set("k", b"2", deadline=soon())
    store.release_rank("g", rank, deadline=soon())
    first.signal(signal.SIGCONT)
    first.wait_until_it_serves()
    with EtcdStore(f"etcd://{first.address}#{store.url.instance}") as beside:
        wait_until(lambda: beside.get("k", deadline=soon()) == b"2")
        for _ in range(20):
            beside.barrier("g", 0, 0, 1, deadline=soon())
            assert beside.prefix("", deadline=soon()).entries == {"k": b"2"}
    assert store._scope.fence > 0
    store.close()


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
