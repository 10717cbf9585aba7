"""Which endpoint is asked next, and what the log says of it."""

from __future__ import annotations

from memfabric_hybrid.store import parse_url
from memfabric_hybrid.store.etcd.gateway.endpoints import Endpoints
from store.said import INFO, said

A, B = ("a", 1), ("b", 2)


def test_each_has_its_turn_and_is_named_once_until_it_serves_again() -> None:
    endpoints = Endpoints(parse_url("etcd://a:1,b:2"))
    with said(INFO) as lines:
        for _ in range(5):  # nobody is there
            endpoints.failed(A)
            assert endpoints.in_order == [B, A]
            endpoints.failed(B)
            assert endpoints.in_order == [A, B]
        endpoints.served(A)
        endpoints.failed(A)
    assert [line.partition("endpoints: ")[2] for line in lines] == [
        "etcd a:1 is of no use now; going on with b:2",
        "etcd b:2 is of no use now; going on with a:1",
        "etcd a:1 is of no use now; going on with b:2",
    ]


def test_a_failure_of_another_one_than_the_first_changes_nothing() -> None:
    endpoints = Endpoints(parse_url("etcd://a:1,b:2"))
    with said(INFO) as lines:
        endpoints.failed(B)
    assert endpoints.in_order == [A, B]
    assert lines == []
