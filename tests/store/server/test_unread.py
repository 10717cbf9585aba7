"""Memory of large messages that nobody reads: what counts, and who goes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfabric_hybrid.store.limits import MIB
from memfabric_hybrid.store.server.unread import LARGE_BYTES, UnreadMessages


def nobody(connection: int) -> bool:
    return False


def test_a_message_to_many_is_held_once_if_they_share_it() -> None:
    unread = dict.fromkeys(range(1000), 4 * MIB)
    for shares, held_bytes in ((True, 4 * MIB), (False, 4000 * MIB)):
        messages = UnreadMessages(shares=shares)
        messages.add(4 * MIB, range(1000))
        assert messages.held_bytes(lambda reader: unread[reader]) == held_bytes


@pytest.mark.parametrize("shares", [True, False])
def test_what_was_read_is_not_held(shares: bool) -> None:
    unread = {1: 4 * MIB, 2: 4 * MIB}
    messages = UnreadMessages(shares=shares)
    messages.add(4 * MIB, unread)
    unread[1] = 0  # also: its connection is gone
    assert messages.held_bytes(lambda reader: unread[reader]) == 4 * MIB
    assert messages.slowest(lambda reader: unread[reader], nobody) == 2
    unread[2] = LARGE_BYTES
    assert messages.held_bytes(lambda reader: unread[reader]) == 0


def test_members_go_last() -> None:
    unread = {1: 9 * MIB, 2: 4 * MIB, 3: 5 * MIB}
    messages = UnreadMessages(shares=True)
    messages.add(9 * MIB, unread)
    members = {1}
    order = []
    while messages.held_bytes(lambda reader: unread[reader]):
        order.append(messages.slowest(lambda reader: unread[reader], members.__contains__))
        messages.forget(order[-1])
    assert order == [3, 2, 1]


@given(
    st.lists(st.tuples(st.integers(MIB + 1, 8 * MIB), st.sets(st.integers(0, 9), min_size=1)), max_size=8),
    st.lists(st.integers(0, 16 * MIB), min_size=10, max_size=10),
    st.booleans(),
    st.integers(0, 32 * MIB),
)
def test_so_many_go_that_the_rest_holds_little_enough(
    sent: list[tuple[int, set[int]]], unread: list[int], shares: bool, most_bytes: int
) -> None:
    messages = UnreadMessages(shares=shares)
    for size_bytes, readers in sent:
        messages.add(size_bytes, readers)
    dropped = set()
    while messages.held_bytes(unread.__getitem__) > most_bytes:
        slowest = messages.slowest(unread.__getitem__, nobody)
        assert slowest not in dropped
        dropped.add(slowest)
        messages.forget(slowest)
    still = [
        (size_bytes, [reader for reader in readers - dropped if unread[reader] > LARGE_BYTES])
        for size_bytes, readers in sent
    ]
    held = [size if shares else sum(min(size, unread[one]) for one in waiting) for size, waiting in still if waiting]
    assert sum(held) <= most_bytes
