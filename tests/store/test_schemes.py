"""The one way to a store: what each scheme of a URL leads to."""

from __future__ import annotations

import pytest

from memfabric_hybrid.errors import InvalidParam
from memfabric_hybrid.store import SessionConnected, SessionEvent, StoreServer, connect, parse_url
from memfabric_hybrid.store.client.client import StoreClient
from memfabric_hybrid.store.etcd.store import EtcdStore
from store.worlds import soon


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:1", "tcp6://[::1]:1", "tcp://no-such-host.invalid:1"])
def test_tcp_leads_to_a_client_that_has_not_dialed_yet(url: str) -> None:
    for form in (url, parse_url(url)):
        with connect(form) as store:
            assert isinstance(store, StoreClient)
            assert str(store.url) == url


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("tcp://127.0.0.1", "store URL 'tcp://127.0.0.1': the port is missing, expected :1 to :65535"),
        ("nonsense", "store URL 'nonsense': must start with tcp://, tcp6:// or etcd://"),
    ],
)
def test_what_leads_nowhere_fails_at_once(url: str, sentence: str) -> None:
    with pytest.raises(InvalidParam) as failure:
        connect(url)
    assert str(failure.value) == sentence


@pytest.mark.parametrize("url", ["etcd://127.0.0.1:1", "etcd://127.0.0.1:1,[::1]:2#instance"])
def test_etcd_leads_to_one_that_has_not_been_asked_yet(url: str) -> None:
    for form in (url, parse_url(url)):
        with connect(form) as store:
            assert isinstance(store, EtcdStore)
            assert str(store.url) == url


def test_a_url_that_may_have_no_port_is_no_address() -> None:
    with pytest.raises(InvalidParam, match="needs tcp://host:port"):
        connect(parse_url("tcp://127.0.0.1", port_required=False))
    with pytest.raises(InvalidParam, match="every endpoint needs a port"):
        connect(parse_url("etcd://127.0.0.1:1,127.0.0.1", port_required=False))


def test_hooks_reach_the_store(store_url: str) -> None:
    events: list[SessionEvent] = []
    server = StoreServer(store_url)
    with connect(store_url, on_session=events.append, before_reconnect=server.start) as store:
        store.set("k", b"", ephemeral=True, deadline=soon())  # the first attempt fails, the hook starts the store
    assert [type(event) for event in events] == [SessionConnected]
    server.stop()
