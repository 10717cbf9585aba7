"""Store addresses: what is accepted, and which part a refusal names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfabric_hybrid.errors import InvalidParam
from memfabric_hybrid.store.url import NO_PORT, StoreUrl, parse_url, peer_names

ACCEPTED = [
    ("tcp://127.0.0.1:8570", StoreUrl("tcp", (("127.0.0.1", 8570),))),
    ("tcp://0.0.0.0:1", StoreUrl("tcp", (("0.0.0.0", 1),))),
    ("tcp://store.example.org:65535", StoreUrl("tcp", (("store.example.org", 65535),))),
    ("tcp://node_7:80", StoreUrl("tcp", (("node_7", 80),))),
    ("tcp://[::1]:8570", StoreUrl("tcp", (("::1", 8570),))),
    ("tcp6://[fe80::1%eth0]:8570", StoreUrl("tcp6", (("fe80::1%eth0", 8570),))),
    ("etcd://a:1", StoreUrl("etcd", (("a", 1),))),
    ("etcd://a:1,10.0.0.2:2,[::1]:3#blue", StoreUrl("etcd", (("a", 1), ("10.0.0.2", 2), ("::1", 3)), "blue")),
]

REFUSED = [
    ("", "must start with"),
    ("127.0.0.1:8570", "must start with"),
    ("tcp:/127.0.0.1:8570", "must start with"),
    ("TCP://127.0.0.1:8570", "must start with"),
    ("http://127.0.0.1:8570", "must start with"),
    ("tcp://", "host is missing"),
    ("tcp://:8570", "host is missing"),
    ("tcp://127.0.0.1", "port is missing"),
    ("tcp://127.0.0.1:", "port ''"),
    ("tcp://127.0.0.1:0", "port '0'"),
    ("tcp://127.0.0.1:65536", "port '65536'"),
    ("tcp://127.0.0.1:-1", "port '-1'"),
    ("tcp://127.0.0.1:+1", r"port '\+1'"),
    ("tcp://127.0.0.1:12x", "port '12x'"),
    ("tcp://127.0.0.1:\uff11\uff12", "port '\uff11\uff12'"),
    ("tcp://127.0.0.1:8570/", "port '8570/'"),
    ("tcp://127.0.0.256:8570", "host '127.0.0.256'"),
    ("tcp://1.2.3.4.5:8570", "host '1.2.3.4.5'"),
    ("tcp://127.1:8570", "host '127.1'"),
    ("tcp://-a:8570", "host '-a'"),
    ("tcp://a..b:8570", "host 'a..b'"),
    ("tcp://a b:8570", "host 'a b'"),
    ("tcp://user@a:8570", "host 'user@a'"),
    ("tcp://" + "a" * 64 + ":8570", "host 'a+'"),
    ("tcp://" + ".".join(["a" * 60] * 5) + ":8570", "host "),
    ("tcp://::1:8570", "needs brackets"),
    ("tcp://[::1:8570", "never closed"),
    ("tcp://[::g]:8570", "host '::g'"),
    ("tcp://[127.0.0.1]:8570", "host '127.0.0.1'"),
    ("tcp://[::1]8570", "after the closing bracket"),
    ("tcp6://127.0.0.1:8570", "must be an IPv6 address"),
    ("tcp6://name:8570", "must be an IPv6 address"),
    ("tcp://a:1,b:2", "is not host:port"),
    ("tcp://a:1#x", "port '1#x'"),
    ("etcd://a:1,", "host is missing"),
    ("etcd://a:1#", "instance ''"),
    ("etcd://a:1#b#c", "instance 'b#c'"),
    ("etcd://a:1#b/c", "instance 'b/c'"),
]


@pytest.mark.parametrize(("text", "expected"), ACCEPTED)
def test_accepted_and_written_back(text: str, expected: StoreUrl) -> None:
    assert parse_url(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(("text", "part"), REFUSED)
def test_refusal_names_the_part_and_the_url(text: str, part: str) -> None:
    with pytest.raises(InvalidParam, match=part) as refusal:
        parse_url(text)
    assert repr(text) in str(refusal.value)


def test_port_may_be_missing_where_the_caller_allows_it() -> None:
    for text, host in (("tcp://a", "a"), ("tcp://[::1]", "::1")):
        url = parse_url(text, port_required=False)
        assert (url.host, url.port) == (host, NO_PORT)
        assert str(url) == text
    with pytest.raises(InvalidParam, match="port ''"):
        parse_url("tcp://a:", port_required=False)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("tcp://10.0.0.1:9000", ("10.0.0.1:9000",)),
        ("tcp6://[0:0::1]:9000", ("[::1]:9000",)),
        ("tcp://localhost:9000", ("127.0.0.1:9000", "[::1]:9000")),
        ("tcp://store.example:9000", ()),
        ("etcd://127.0.0.1:2379#here", ()),
    ],
)
def test_what_the_store_there_will_be_called(text: str, names: tuple[str, ...]) -> None:
    assert peer_names(parse_url(text)) == names


@given(st.text(max_size=60) | st.text(alphabet="tcpetd6:/[].#,%0123456789abf-", max_size=60).map("tcp://{}".format))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        url = parse_url(text)
    except InvalidParam:
        return
    assert parse_url(str(url)) == url
