"""`BmConfig`: documented defaults, types checked when assigned, values validated at initialize."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from memfabric_hybrid import errors
from memfabric_hybrid.bm import BmConfig

NUMBERS = ("init_timeout", "create_timeout", "operation_timeout", "rank_id", "flags")
FLAGS = ("start_store", "start_store_only", "dynamic_world_size", "unified_address_space", "auto_ranking")


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name: str) -> None:
    config = BmConfig()
    for good in (0, 1, 4294967295, True):
        setattr(config, name, good)
        assert getattr(config, name) == good
    wrong: Any
    for wrong in (-1, 4294967296, 1.0, "1", None):
        with pytest.raises(TypeError, match=name):
            setattr(config, name, wrong)
    assert getattr(config, name) == 1, "a refused value changes nothing"


@pytest.mark.parametrize("name", FLAGS)
def test_flags(name: str) -> None:
    config = BmConfig()
    for good in (True, False, 1, 0):
        setattr(config, name, good)
        assert getattr(config, name) is bool(good)
    wrong: Any
    for wrong in ("False", None, 0.0, []):
        with pytest.raises(TypeError, match=name):
            setattr(config, name, wrong)


def test_configurations_are_independent() -> None:
    one, other = BmConfig(), BmConfig()
    one.init_timeout = 7
    one.auto_ranking = False
    assert (other.init_timeout, other.auto_ranking) == (120, True)
    assert "init_timeout=7" in repr(one)


def test_misspelt_fields_are_refused() -> None:
    """A time-out that silently is not set would be found out in production."""
    with pytest.raises(AttributeError):
        BmConfig().init_time_out = 5  # type: ignore[attr-defined]


def test_nic_must_be_text() -> None:
    with pytest.raises(TypeError):
        BmConfig().set_nic(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("nic", "good"),
    [
        ("tcp://10.0.0.1:1", True),
        ("tcp://10.0.0.1/16:65535", True),
        ("tcp6://[fe80::1]:9000", True),
        ("tcp://[::1]/64:9000", True),
        ("tcp6://[0000:0000:0000:0000:0000:0000:0000:0001]/128:12345", True),
        ("tcp6://[0000:0000:0000:0000:0000:0000:0000:000000000001]/128:12345", False),
        ("tcp://10.0.0.256:1", False),
        ("tcp://10.0.0.1/33:1", False),
        ("tcp://localhost:1", False),
        ("tcp://10.0.0.1:65536", False),
        ("tcp://10.0.0.1/16", False),
        ("tcp://:9000", False),
        ("udp://10.0.0.1:9000", False),
        ("tcp://10.0.0.1:9000 ", False),
    ],
)
def test_nic(nic: str, good: bool) -> None:
    config = BmConfig()
    config.set_nic(nic)
    if good:
        config._validate(4)
    else:
        with pytest.raises(errors.InvalidParam, match="nic"):
            config._validate(4)


def test_booleans_of_numpy() -> None:
    config = BmConfig(start_store=np.int64(3) == 3, auto_ranking=np.int64(3) == 0)
    assert (config.start_store, config.auto_ranking) == (True, False)
