"""Settings from the environment: names in order, malformed values named, never a silent default."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm, errors, settings

DOCUMENTED = {
    "MF_LOG_LEVEL", "ASCEND_MF_LOG_LEVEL", "MF_CONFIG_STORE_URL", "ASCEND_MF_STORE_URL",
    "MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S",
}  # fmt: skip
NUMBERS: list[tuple[settings.Setting, Callable[[], float], str, float, list[str]]] = [
    (settings.HEARTBEAT_TIMEOUT, settings.heartbeat_timeout_s, "0.5", 0.5, ["0", "-1", "x", "nan", "inf", "3601"]),
    (settings.COPY_THREADS, settings.copy_threads, "2", 2, ["-1", "65", "two", "1.5"]),
]


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in settings.ALL:
        for name in setting.names:
            monkeypatch.delenv(name, raising=False)


def test_documented_variables_are_in_the_table() -> None:
    names = {name for setting in settings.ALL for name in setting.names}
    assert names >= DOCUMENTED
    assert all(name.startswith("MF_") for setting in settings.ALL for name in setting.names[:1])
    assert all(setting.meaning.endswith(".") and setting.unit for setting in settings.ALL)
    table = {value for value in vars(settings).values() if isinstance(value, settings.Setting)}
    assert table == set(settings.ALL)


def test_defaults() -> None:
    assert settings.heartbeat_timeout_s() == 3
    assert settings.log_level() == 2
    assert settings.copy_threads() == 0
    assert settings.huge_pages_wanted() is True
    assert settings.text(settings.STORE_URL) == ""


def test_our_name_comes_before_the_historical_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_MF_STORE_URL", "tcp://old:1")
    assert settings.text(settings.STORE_URL) == "tcp://old:1"
    monkeypatch.setenv("MF_CONFIG_STORE_URL", "")
    assert settings.text(settings.STORE_URL) == "tcp://old:1", "an empty variable is not set"
    monkeypatch.setenv("MF_CONFIG_STORE_URL", "tcp://new:1")
    assert settings.text(settings.STORE_URL) == "tcp://new:1"


@pytest.mark.parametrize(("setting", "read", "good", "value", "bad"), NUMBERS, ids=[row[0].names[0] for row in NUMBERS])
def test_numbers(
    monkeypatch: pytest.MonkeyPatch,
    setting: settings.Setting,
    read: Callable[[], float],
    good: str,
    value: float,
    bad: list[str],
) -> None:
    name = setting.names[0]
    monkeypatch.setenv(name, good)
    assert read() == value
    for raw in bad:
        monkeypatch.setenv(name, raw)
        with pytest.raises(errors.InvalidParam, match=f"{name} is '{raw}'"):
            read()


def test_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MF_HUGE_PAGES", "off")
    assert settings.huge_pages_wanted() is False
    monkeypatch.setenv("MF_HUGE_PAGES", "yes")
    with pytest.raises(errors.InvalidParam, match="MF_HUGE_PAGES is 'yes'"):
        settings.huge_pages_wanted()


@pytest.mark.parametrize("name", ["MF_LOG_LEVEL", "ASCEND_MF_LOG_LEVEL"])
def test_log_level_never_fails(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for raw, level in (("0", 0), ("5", 5), ("6", 2), ("-1", 2), ("debug", 2), ("", 2)):
        monkeypatch.setenv(name, raw)
        assert settings.log_level() == level


@pytest.mark.parametrize(
    ("name", "value"), [("MF_CONFIG_STORE_HEARTBEAT_TIMEOUT_S", "soon"), ("MF_COPY_THREADS", "many")]
)
def test_malformed_setting_fails_initialize_and_is_named(
    monkeypatch: pytest.MonkeyPatch, store_url: str, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    try:
        assert bm.initialize(store_url, 4, 0, bm.BmConfig()) == -2000
        assert name in mf.get_and_clear_last_err_msg()
    finally:
        mf.uninitialize()
