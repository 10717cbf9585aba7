"""Who goes when frames that are not complete hold too much memory, or take too long."""

from __future__ import annotations

import pytest

from memfabric_hybrid.store.server import incomplete
from memfabric_hybrid.store.server.incomplete import FRAME_TIMEOUT_S, IncompleteFrames

MEMBERS = {1, 2}


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> IncompleteFrames:
    monkeypatch.setattr(incomplete, "MAX_OTHERS_BYTES", 100)
    monkeypatch.setattr(incomplete, "MAX_BYTES", 400)
    return IncompleteFrames(MEMBERS.__contains__)


def left_out(frames: IncompleteFrames) -> list[int]:
    gone = []
    while (leaving := frames.surplus()) is not None:
        gone.append(leaving.connection)
        frames.count(leaving.connection, 0, 0.0, is_new=True)
    return gone


def test_of_the_others_the_largest_goes(frames: IncompleteFrames) -> None:
    frames.count(8, 60, 0.0, is_new=True)
    frames.count(9, 40, 0.0, is_new=True)
    assert left_out(frames) == []
    frames.count(7, 1, 0.0, is_new=True)
    assert left_out(frames) == [8]
    assert frames.held_bytes == 41


def test_members_have_a_part_of_their_own(frames: IncompleteFrames) -> None:
    frames.count(1, 300, 0.0, is_new=True)
    frames.count(9, 90, 0.0, is_new=True)
    assert left_out(frames) == []
    frames.count(2, 50, 0.0, is_new=True)
    assert left_out(frames) == [9], "before any member"
    frames.count(2, 120, 0.0, is_new=False)
    assert left_out(frames) == [1]


def test_a_frame_has_its_time_and_the_next_one_has_its_own(frames: IncompleteFrames) -> None:
    for connection in (1, 8, 9):
        frames.count(connection, 5, 10.0, is_new=True)
    later = 10.0 + FRAME_TIMEOUT_S + 1
    frames.count(8, 6, later, is_new=False)
    frames.count(9, 6, later, is_new=True)
    assert [leaving.connection for leaving in frames.late(later)] == [8]
    frames.count(8, 0, later, is_new=False)
    assert frames.late(later) == []
