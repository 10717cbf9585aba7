"""The campaign's own checks: what they must find, and what they must not complain about."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from chaos import event_log, shared_state
from chaos.call_checker import CallChecker
from chaos.patterns import Pattern, difference
from chaos.starvation import StarvationMeter

OURS = Pattern(kind=1, writer=2, lane=3, target=4)


def test_pieces_of_several_blocks_and_fresh_memory_are_the_writers() -> None:
    memory = np.zeros(4096, np.uint8)
    for sequence, (start, end) in enumerate([(0, 4096), (3, 1000), (77, 78), (901, 2000)], 1 << 30):
        memory[start:end] = OURS.block(sequence, start, end - start)
    memory[2001:2999] = 0
    assert OURS.foreign_bytes(memory) == ""


@pytest.mark.parametrize(
    "other", [OURS._replace(kind=2), OURS._replace(writer=0), OURS._replace(lane=0), OURS._replace(target=0)]
)
def test_bytes_of_another_pattern_are_found(other: Pattern) -> None:
    memory = OURS.block(7, 0, 4096)
    memory[800:808] = other.block(7, 800, 8)
    assert "first at 800" in OURS.foreign_bytes(memory)


def test_bytes_of_no_pattern_are_found() -> None:
    memory = OURS.block(7, 0, 4096)
    text = b"2026-01-01 00:00:00,000 WARNING"
    memory[: len(text)] = np.frombuffer(text, np.uint8)
    assert OURS.foreign_bytes(memory)


def test_difference_says_where() -> None:
    written = OURS.block(1, 0, 64)
    found = written.copy()
    assert difference(written, found) == ""
    found[9] ^= 1
    assert "1 of 64 bytes differ, from 9 to 9" in difference(written, found)


def test_a_late_call_an_unknown_code_and_a_missing_sentence_are_violations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now_s=0.0, monotonic=lambda: clock.now_s)
    monkeypatch.setattr("chaos.call_checker.time", clock)
    path = tmp_path / "a.events"
    written, reader = event_log.EventLog(path, "test"), event_log.EventLogReader(path)
    starvation = StarvationMeter()  # which does not run: nobody is starved, except where the test says so
    calls = CallChecker(written, starvation, lambda: ()).open("thread")

    def take(seconds: float, starved_s: float = 0.0) -> int:
        clock.now_s += seconds
        starvation.starved_s += starved_s
        return 0

    try:
        calls.make("quick", 1.0, (), lambda: take(1.0))
        calls.make("starved", 1.0, (), lambda: take(100.0, starved_s=99.0))
        assert reader.new_violations() == []
        calls.make("slow", 1.0, (), lambda: take(100.0))
        [late] = reader.new_violations()
        calls.make("wrong", 1.0, (-2014,), lambda: -1)
        silent, unknown = reader.new_violations()
    finally:
        written.close()
    assert "slow returned 0 after 100.00 s" in late
    assert "without a sentence" in silent
    assert "returned -1, expected [-2014]" in unknown


def test_the_shared_state_knows_the_long_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = shared_state.SharedState.make(tmp_path / "shared_state")
    seen.begin_life(1)
    seen.set(1, shared_state.Field.POOL_RANK, 3 + 1)
    assert seen.all_long_dead_of_rank(3) is None
    seen.now(1, shared_state.Field.DEAD_SINCE)
    assert seen.all_long_dead_of_rank(3) is None
    monkeypatch.setattr(shared_state, "FALSE_SUCCESS_S", 0.0)
    assert seen.all_long_dead_of_rank(3) is not None
    seen.begin_life(1)
    assert seen.all_long_dead_of_rank(3) is None
    seen.hold_value(5, 1)
    assert seen.other_holders(5, 2) == [1]
    assert seen.other_holders(5, 1) == []
    seen.now(1, shared_state.Field.DYING)
    assert seen.other_holders(5, 2) == []
    seen.close()
