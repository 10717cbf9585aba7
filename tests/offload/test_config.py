"""The configuration as programs fill it in, and what it comes to."""

from __future__ import annotations

from typing import Any

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import offload
from memfabric_hybrid.errors import InvalidParam, NoResources
from memfabric_hybrid.offload import plan
from support.offload_worker import GIB, MIB

TIB = 1 << 40
DEFAULTS = {
    "device_id": 0, "reserve_size": 0, "alloc_size": 0, "size": 0, "world_size": 1, "rank_id": 0, "store_url": "",
    "scene": offload.Scene.LOCAL, "local_world_size": 0, "flags": 0, "init_timeout": 120,
}  # fmt: skip


def test_defaults() -> None:
    config = offload.OffloadConfig()
    assert {name: getattr(config, name) for name in DEFAULTS} == DEFAULTS
    fields = {name for name in dir(config) if not name.startswith("_") and not callable(getattr(config, name))}
    assert fields == set(DEFAULTS)
    assert all(name in (offload.OffloadConfig.__doc__ or "") for name in DEFAULTS)


def test_names_and_numbers_of_the_interface() -> None:
    assert offload.Scene.LOCAL is offload.LOCAL
    assert offload.Scene.SHARED is offload.SHARED
    assert (int(offload.LOCAL), int(offload.SHARED)) == (0, 1)
    assert offload.OFFLOAD_FLAG_GIANT_PAGE == offload.OFFLOAD_FLAG_URMA_POOL == 1
    assert mf.offload is offload
    assert set(dir(offload)) == {*offload.__all__, "__doc__"}
    assert sorted(offload.__all__) == sorted(set(offload.__all__))


def test_the_older_name_of_the_sizes_sets_both() -> None:
    config = offload.OffloadConfig()
    config.size = 5 * MIB
    assert (config.reserve_size, config.alloc_size, config.size) == (5 * MIB, 5 * MIB, 5 * MIB)
    config.alloc_size = 0
    assert config.size == 5 * MIB


def test_fields_may_be_given_at_once_and_shown() -> None:
    config = offload.OffloadConfig(reserve_size=GIB, scene=1, store_url="tcp://127.0.0.1:9000")
    assert config.scene is offload.SHARED
    assert "scene=<Scene.SHARED: 1>" in repr(config)
    assert "store_url='tcp://127.0.0.1:9000'" in repr(config)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("device_id", -1), ("device_id", 1 << 32), ("reserve_size", 1 << 64), ("alloc_size", "1"), ("size", 1.5),
        ("world_size", None), ("rank_id", -1), ("scene", 2), ("scene", "LOCAL"), ("store_url", None),
        ("flags", 1 << 32), ("local_world_size", []), ("init_timeout", -1),
    ],
)  # fmt: skip
def test_wrong_types_are_refused_at_once(name: str, value: Any) -> None:
    config = offload.OffloadConfig()
    with pytest.raises(TypeError, match=name):
        setattr(config, name, value)
    assert getattr(config, name) == DEFAULTS[name]


def test_a_misspelt_field_is_an_error() -> None:
    with pytest.raises(AttributeError):
        offload.OffloadConfig().reserved_size = 1  # type: ignore[attr-defined]


def test_sizes_are_rounded_up() -> None:
    made = plan.of(offload.OffloadConfig(reserve_size=GIB + 1, alloc_size=MIB))
    assert (made.layout.capacity, made.layout.max_dram, made.alloc_bytes) == (1, 2 * GIB, 2 * MIB)
    assert made.group is None
    assert plan.of(offload.OffloadConfig(alloc_size=3 * MIB)).layout.max_dram == GIB
    assert plan.of(offload.OffloadConfig(reserve_size=GIB)).alloc_bytes == 0


SHARED: dict[str, Any] = {"scene": offload.SHARED, "reserve_size": GIB, "store_url": "tcp://127.0.0.1:9000"}
WRONG = [
    ({}, "reserve_size is 0 bytes, expected 1.."),
    ({"reserve_size": 2 * TIB + 1}, "reserve_size is 2199023255553 bytes, expected 1..2199023255552"),
    ({"reserve_size": MIB, "alloc_size": 2 * MIB}, "alloc_size is 2097152 bytes, which is more than reserve_size"),
    ({"alloc_size": MIB, "flags": 2}, "flags is 0x2, expected 0 or OFFLOAD_FLAG_GIANT_PAGE (0x1)"),
    ({**SHARED, "world_size": 0}, "world_size is 0, expected 1..1024"),
    ({**SHARED, "world_size": 1025}, "world_size is 1025, expected 1..1024"),
    ({**SHARED, "world_size": 2, "rank_id": 2}, "rank_id is 2, expected 0..1 (world_size - 1)"),
    ({**SHARED, "world_size": 4, "local_world_size": 3}, "local_world_size is 3, expected 0 or a divisor of"),
    ({**SHARED, "world_size": 4, "local_world_size": 8}, "local_world_size is 8, expected 0 or a divisor of"),
    ({**SHARED, "init_timeout": 0}, "init_timeout is 0 s"),
    ({**SHARED, "store_url": "nonsense"}, "store URL 'nonsense'"),
    ({**SHARED, "store_url": "", "world_size": 4, "local_world_size": 2}, "store_url is empty, and the 4 ranks are on"),
]


@pytest.mark.parametrize(("fields", "sentence"), WRONG, ids=[sentence for _, sentence in WRONG])
def test_wrong_values_are_named(fields: dict[str, Any], sentence: str) -> None:
    config = offload.OffloadConfig(**fields)
    with pytest.raises(InvalidParam) as raised:
        plan.of(config)
    assert sentence in str(raised.value)
    assert offload.initialize(config) == -2000
    assert sentence in mf.get_last_err_msg()


def test_more_addresses_than_there_are() -> None:
    config = offload.OffloadConfig(**{**SHARED, "reserve_size": 2 * TIB, "world_size": 64})
    with pytest.raises(NoResources, match="64"):
        plan.of(config)


def test_a_configuration_is_needed() -> None:
    with pytest.raises(TypeError, match="config must be an OffloadConfig, not dict"):
        offload.initialize({})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "variables", "url"),
    [
        ({}, {}, "tcp://127.0.0.1:9000"),
        ({}, {"MF_CONFIG_STORE_URL": "tcp://127.0.0.2:1"}, "tcp://127.0.0.1:9000"),
        ({"store_url": ""}, {"MF_CONFIG_STORE_URL": "tcp://127.0.0.2:1"}, "tcp://127.0.0.2:1"),
        ({"store_url": ""}, {"ASCEND_MF_STORE_URL": "tcp://127.0.0.2:2"}, "tcp://127.0.0.2:2"),
        ({"store_url": "", "world_size": 4}, {}, "tcp://127.0.0.1:8500"),
        ({"store_url": "", "world_size": 4, "device_id": 6, "local_world_size": 4}, {}, "tcp://127.0.0.1:8501"),
    ],
)
def test_where_the_store_is(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], variables: dict[str, str], url: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    made = plan.of(offload.OffloadConfig(**{**SHARED, **fields}))
    assert made.group is not None
    assert str(made.group.url) == url
    assert made.group.local_world_size == made.group.world_size == fields.get("world_size", 1)
