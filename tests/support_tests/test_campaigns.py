"""Campaigns: their length and their random choices follow the environment, and nothing else."""

from __future__ import annotations

import pytest

from support import campaigns


def test_length_is_ordinary_unless_the_environment_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MF_KILL_ROUNDS", raising=False)
    assert campaigns.length("MF_KILL_ROUNDS", 10) == 10
    monkeypatch.setenv("MF_KILL_ROUNDS", "200")
    assert campaigns.length("MF_KILL_ROUNDS", 10) == 200


def test_choices_depend_on_seed_and_name_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MF_SEED", "7")
    first = campaigns.generator("a").random()
    assert campaigns.generator("a").random() == first
    assert campaigns.generator("b").random() != first
    monkeypatch.setenv("MF_SEED", "8")
    assert campaigns.generator("a").random() != first


def test_fresh_seeds_differ_unless_one_is_to_be_repeated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MF_DATA_FUZZ_SEED", raising=False)
    first = campaigns.fresh_seed("MF_DATA_FUZZ_SEED")
    assert f"MF_DATA_FUZZ_SEED={first}\n" in capsys.readouterr().out
    assert campaigns.fresh_seed("MF_DATA_FUZZ_SEED") != first
    monkeypatch.setenv("MF_DATA_FUZZ_SEED", str(first))
    assert campaigns.fresh_seed("MF_DATA_FUZZ_SEED") == first
