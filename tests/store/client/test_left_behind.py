"""Which channels stay open when a client turns to another one."""

from __future__ import annotations

import time
from typing import cast

import pytest

from memfabric_hybrid.store.client.connection import FOREVER, Connection
from memfabric_hybrid.store.client.left_behind import LeftBehind
from memfabric_hybrid.store.url import parse_url

OLD, NEW = parse_url("tcp://10.0.0.1:1"), parse_url("tcp://10.0.0.2:1")


class Channel:
    def __init__(self, url: object) -> None:
        self.url = url
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def left_behind() -> LeftBehind:
    return LeftBehind(0.05)


def keep(left_behind: LeftBehind, url: object, *, has_moved: bool) -> Channel:
    channel = Channel(url)
    left_behind.keep(cast(Connection, channel), has_moved=has_moved)
    return channel


def test_what_is_told_anew_at_the_new_place_does_not_end_the_session_at_the_old_one(left_behind: LeftBehind) -> None:
    """Those who have not moved yet would take us for gone, and what we hold for free."""
    old = keep(left_behind, OLD, has_moved=True)
    left_behind.replaced_at(NEW)
    silent = keep(left_behind, NEW, has_moved=False)
    assert not old.is_closed
    left_behind.replaced_at(NEW)
    assert (old.is_closed, silent.is_closed) == (False, True)
    time.sleep(max(0.0, left_behind.until - time.monotonic()))
    left_behind.close_if_due()
    assert old.is_closed
    assert left_behind.until == FOREVER


def test_a_place_has_one_channel(left_behind: LeftBehind) -> None:
    first, second = (keep(left_behind, NEW, has_moved=False) for _ in range(2))
    assert (first.is_closed, second.is_closed) == (True, False)
    left_behind.close()
    assert second.is_closed


def test_a_channel_that_was_to_be_told_anew_is_let_go_after_a_move(left_behind: LeftBehind) -> None:
    waiting = keep(left_behind, OLD, has_moved=False)
    assert left_behind.until == FOREVER
    left_behind.replaced_at(NEW)
    assert left_behind.until < FOREVER
    assert not waiting.is_closed
    left_behind.close()
