"""Where the store is protected and data is not, the log says so, once."""

from __future__ import annotations

import pytest

from memfabric_hybrid.store.protection import plain_data
from store.said import said


@pytest.fixture(autouse=True)
def unsaid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_data, "_said", False)


def test_said_once_where_the_store_is_protected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MF_CONFIG_STORE_TOKEN", "a token of the test suite")
    with said() as lines:
        plain_data.mention("over TCP")
        plain_data.mention("over TCP")
    (line,) = lines
    assert "data between hosts is not: it goes over TCP as it is" in line


def test_not_said_where_nothing_is_protected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MF_CONFIG_STORE_TLS_INFO", raising=False)
    with said() as lines:
        plain_data.mention("over TCP")
    assert lines == []
