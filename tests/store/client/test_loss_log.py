"""What the log says of a store that is lost and found again."""

from __future__ import annotations

import pytest

from memfabric_hybrid import clock, logs
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.client.loss_log import LossLog
from memfabric_hybrid.store.client.session_records import SessionRecords
from store.said import INFO, said


@pytest.mark.parametrize(("away_s", "level", "line_in_between"), [(0.5, "INFO", False), (5.0, "WARNING", True)])
def test_one_line_for_the_loss_and_one_for_its_end(
    monkeypatch: pytest.MonkeyPatch, away_s: float, level: str, line_in_between: bool
) -> None:
    now = [100.0]
    monkeypatch.setattr(clock, "now", lambda: now[0])
    losses = LossLog(logs.get("memfabric_hybrid.test"))
    with said(INFO) as lines:
        losses.back("tcp://a:1", "nothing")  # the first contact
        for _ in range(2):
            losses.lost("tcp://a:1", "it closed the connection")
            for _ in range(3):
                now[0] += away_s / 3
                losses.still_lost("tcp://a:1", "refused")
            losses.back("tcp://b:2", "rank 0 of bm/ranks")
            losses.back("tcp://b:2", "rank 0 of bm/ranks")
    told = [line.partition("] memfabric_hybrid.test: ")[2] for line in lines]
    in_between = "store tcp://a:1 is lost for 1 s (refused); copies go on, control calls wait until it is back"
    assert told == 2 * [
        "store tcp://a:1 is lost: it closed the connection; connecting again",
        *([in_between] if line_in_between else []),
        f"store tcp://b:2 is back after {away_s:.1f} s; registered again: rank 0 of bm/ranks",
    ]
    assert f" {level} [" in lines[-1]


def test_what_was_registered_is_named() -> None:
    records = SessionRecords()
    assert str(records) == "nothing"
    records.record(m.ClaimRank(1, "bm/ranks", 8, b"", None, ()), m.Number(3))
    assert str(records) == "rank 3 of bm/ranks"
    for key in ("a", "b"):
        records.record(m.Set(key, b"", True), m.Done(1))
    records.record(m.HoldRange("r", 1, ""), m.Number(1 << 40))
    assert str(records) == "rank 3 of bm/ranks, 2 keys and 1 range"
