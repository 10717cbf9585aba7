"""Which address and ports a process serves its memory at."""

from __future__ import annotations

import pytest

from memfabric_hybrid.errors import InvalidParam
from memfabric_hybrid.transports import nic
from memfabric_hybrid.transports.nic import ListenPlace

pytestmark = pytest.mark.plain_user


def test_an_address_is_taken_as_it_is() -> None:
    assert nic.listen_place("tcp://127.0.0.1:9000") == ListenPlace("127.0.0.1", 9000, 10023)
    assert nic.listen_place("tcp6://[::1]:65000") == ListenPlace("::1", 65000, 65535)


def test_a_network_stands_for_our_address_in_it() -> None:
    assert nic.listen_place("tcp://127.0.0.0/8:9000").host == "127.0.0.1"


def test_a_network_that_we_are_not_in_is_refused() -> None:
    with pytest.raises(InvalidParam, match=r"no address in 203\.0\.113\.0/24"):
        nic.listen_place("tcp://203.0.113.7/24:9000")


def test_the_way_to_the_store_leads_back_to_us() -> None:
    assert nic.default_place("127.0.0.1", 9000) == ListenPlace("127.0.0.1", 0, 0)
    assert nic.default_place("::1", 9000) == ListenPlace("::1", 0, 0)


@pytest.mark.parametrize(
    ("address", "is_so"),
    [("127.0.0.1:1", True), ("127.7.7.7:1", True), ("[::1]:1", True), ("10.0.0.1:1", False), ("[fd77::1]:1", False)],
)
def test_loopback_addresses(address: str, is_so: bool) -> None:
    assert nic.is_loopback(address) == is_so
