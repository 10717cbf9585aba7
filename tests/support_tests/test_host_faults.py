"""What is said to be wrong between hosts is wrong, seen with real sockets, and no more than that; and it heals."""

from __future__ import annotations

import threading
import time

import pytest

from support import frame_filter, hosts, iproute
from support.host_sockets import NEVER_S, connected, datagrams, is_cut_off, reaches, round_trip_s
from support.hosts import Network

pytestmark = hosts.needs_root
DELAY_MS = 100.0


def test_a_pulled_cable_is_silent_and_what_was_sent_arrives_later(hosts3: Network) -> None:
    one, other, third = hosts3.hosts
    with connected(one, other) as (near, far):
        other.link_down()
        assert not iproute.has_carrier(other.network, "eth0")
        near.send(b"late")
        far.settimeout(NEVER_S)
        with pytest.raises(TimeoutError):
            far.recv(4)
        assert is_cut_off(third, other)
        assert is_cut_off(other, third)
        assert reaches(one, third)
        other.link_up()
        far.settimeout(20)
        assert far.recv(4) == b"late"
        with connected(other, third, version=6), connected(third, other):
            pass


def test_a_partition_parts_two_and_nobody_else(hosts3: Network) -> None:
    one, other, third = hosts3.hosts
    with connected(one, other) as (near, far):
        hosts3.partition(one, other)
        near.send(b"late")
        far.settimeout(NEVER_S)
        with pytest.raises(TimeoutError):
            far.recv(4)
        for version in (4, 6):
            assert is_cut_off(one, other, version=version)
            assert is_cut_off(other, one, version=version)
            for host in (one, other):
                assert reaches(host, third, version=version)
                assert reaches(third, host, version=version)
        hosts3.partition(other, third)
        assert is_cut_off(third, other)
        assert is_cut_off(one, other), "the first one stays"
        assert reaches(third, one)
        hosts3.heal()
        far.settimeout(20)
        assert far.recv(4) == b"late"
        with connected(one, other, version=6), connected(other, third):
            pass


def test_delay_counts_once_in_each_direction(hosts3: Network) -> None:
    one, other, third = hosts3.hosts
    with connected(one, other) as ends, connected(one, third) as unaffected, connected(one, other, version=6) as ends6:
        other.delay(DELAY_MS)
        assert round_trip_s(ends, 2) >= 2 * DELAY_MS / 1000
        assert round_trip_s(ends6, 2) >= 2 * DELAY_MS / 1000
        assert round_trip_s(unaffected) < 2 * DELAY_MS / 1000
        one.delay(DELAY_MS, jitter_ms=0)
        assert round_trip_s(ends, 2) >= 4 * DELAY_MS / 1000
        hosts3.heal()
        assert round_trip_s(ends) < 2 * DELAY_MS / 1000
        other.delay(DELAY_MS)
        assert round_trip_s(ends, 2) >= 2 * DELAY_MS / 1000, "again, after it had ended"


def test_jitter_keeps_the_order(hosts3: Network) -> None:
    one, other, _ = hosts3.hosts
    other.delay(20, jitter_ms=20)
    with datagrams(one, other) as (sender, receiver):
        sender.send(b"first")  # until it has found the receiver, the kernel itself may change the order
        assert receiver.recv(5) == b"first"
        numbers = list(range(200))
        for number in numbers:
            sender.send(number.to_bytes(2, "big"))
        assert [int.from_bytes(receiver.recv(2), "big") for _ in numbers] == numbers


def test_much_goes_through_a_delayed_link_unchanged(hosts3: Network) -> None:
    one, other, _ = hosts3.hosts
    other.delay(1)
    content = bytes(range(251)) * 40_000
    with connected(one, other) as (near, far):
        sending = threading.Thread(target=near.sendall, args=(content,))
        sending.start()
        received = bytearray()
        while len(received) < len(content):
            received += far.recv(1 << 20)
        sending.join()
    assert received == content


def test_faults_of_a_delayed_link(hosts3: Network) -> None:
    """The delay line stands between the host and the switch: all other faults must count there as well."""
    one, other, third = hosts3.hosts
    other.delay(1)
    hosts3.partition(one, other)
    assert is_cut_off(one, other)
    assert reaches(third, other)
    hosts3.heal()
    other.delay(1)
    other.link_down()
    assert is_cut_off(one, other)
    other.link_up()
    with connected(one, other) as ends:
        assert round_trip_s(ends) >= 0.002
    other.loss(100)
    assert is_cut_off(one, other)
    other.heal()
    with connected(one, other):
        pass


def arrived(network: Network, count: int) -> int:
    """How many of so many datagrams from the first to the second host; the faults are over afterwards."""
    one, other, _ = network.hosts
    with datagrams(one, other) as (sender, receiver):
        for _ in range(count):
            sender.send(b"frame")
        network.heal()
        sender.send(b"end")  # all that came through is there before it
        received = 0
        while receiver.recv(5) != b"end":
            received += 1
        return received


@pytest.mark.parametrize("side", [0, 1], ids=["sender", "receiver"])
def test_loss_counts_in_both_directions(hosts3: Network, side: int) -> None:
    with connected(hosts3.hosts[0], hosts3.hosts[1]):  # they know each other's address on the link
        pass
    assert arrived(hosts3, 100) == 100
    hosts3.hosts[side].loss(50)
    assert 100 < arrived(hosts3, 400) < 300, "half of them, give or take ten standard deviations"
    hosts3.hosts[side].loss(100)
    assert arrived(hosts3, 100) == 0


def test_tcp_survives_loss(hosts3: Network) -> None:
    one, other, _ = hosts3.hosts
    with connected(one, other) as ends:
        other.loss(20)
        for _ in range(10):
            round_trip_s(ends, 1)


@pytest.mark.parametrize("direction", [1, -1], ids=["to", "from"])
def test_rate(hosts3: Network, direction: int) -> None:
    one, other, _ = hosts3.hosts
    size, mbit, burst = 512 << 10, 8.0, 64 << 10
    other.rate(mbit)
    with connected(one, other) as ends:
        sender, receiver = ends[::direction]
        sending = threading.Thread(target=sender.sendall, args=(bytes(size),))
        began = time.monotonic()
        sending.start()
        left = size
        while left:
            left -= len(receiver.recv(left))
        took_s = time.monotonic() - began
        sending.join()
    assert took_s >= (size - burst) * 8 / (mbit * 1e6)


def test_impossible_faults_are_refused(hosts3: Network) -> None:
    with pytest.raises(ValueError, match="nothing arrives before it was sent"):
        hosts3.hosts[0].delay(1, jitter_ms=2)
    with pytest.raises(ValueError, match="from 0 to 100"):
        hosts3.hosts[0].loss(101)
    with pytest.raises(ValueError, match="from 0 to 100"):
        frame_filter.bytecode((), -1)
