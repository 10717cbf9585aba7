"""Bad input to `bm.initialize` and its neighbours: the documented code at once, and a sentence with value and limit."""

from __future__ import annotations

import time
from typing import Any

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm
from memfabric_hybrid.errors import NotInit
from support import pool_worker
from support.ports import reserved_port

AT_ONCE_S = 2.0

# The part of the URL that is wrong must be in the sentence.
BAD_URLS = [
    ("", "must start with"),
    ("127.0.0.1:9000", "must start with"),
    ("http://127.0.0.1:9000", "must start with"),
    ("TCP://127.0.0.1:9000", "must start with"),
    ("tcp:/127.0.0.1:9000", "must start with"),
    ("tcp://", "host is missing"),
    ("tcp://:9000", "host is missing"),
    ("tcp://127.0.0.1", "port is missing"),
    ("tcp://127.0.0.1:", "port ''"),
    ("tcp://127.0.0.1:0", "port '0'"),
    ("tcp://127.0.0.1:65536", "port '65536'"),
    ("tcp://127.0.0.1:-1", "port '-1'"),
    ("tcp://127.0.0.1:9000x", "port '9000x'"),
    ("tcp://127.0.0.1:9000/", "port '9000/'"),
    ("tcp://127.0.0.1: 9000", "port ' 9000'"),
    ("tcp://127.0.0.256:9000", "127.0.0.256"),
    ("tcp://127.1:9000", "127.1"),
    ("tcp://1.2.3.4.5:9000", "1.2.3.4.5"),
    ("tcp://bad host:9000", "bad host"),
    ("tcp://-bad:9000", "-bad"),
    ("tcp://a..b:9000", "a..b"),
    ("tcp://::1:9000", "brackets"),
    ("tcp://[::1:9000", "never closed"),
    ("tcp://[::g]:9000", "::g"),
    ("tcp://[::1]9000", "closing bracket"),
    ("tcp://[]:9000", "IPv6"),
    ("tcp6://127.0.0.1:9000", "brackets"),
    ("etcd://host:2379#bad instance", "bad instance"),
    ("etcd://host:2379,", "host is missing"),
    ("tcp://" + "a" * 300 + ":9000", "host"),
    ("tcp://127.0.0.1:9000\0", "port"),
]


def last_error() -> str:
    return mf.get_and_clear_last_err_msg()


@pytest.mark.parametrize(("url", "named"), BAD_URLS, ids=[repr(url)[:40] for url, _ in BAD_URLS])
def test_malformed_url_is_refused_at_once(url: str, named: str) -> None:
    began = time.monotonic()
    assert bm.initialize(url, 4, 0, bm.BmConfig()) == -2000
    assert named in last_error()
    assert mf.create_config_store(url) == -2000
    assert named in last_error()
    assert time.monotonic() - began < AT_ONCE_S


@pytest.mark.own_store
def test_etcd_that_is_not_there_is_named() -> None:
    with reserved_port() as port:
        url = f"etcd://127.0.0.1:{port}"
        assert bm.initialize(url, 4, 0, bm.BmConfig(init_timeout=1)) in (-2004, -2014)
        assert f"127.0.0.1:{port}" in last_error()


@pytest.mark.parametrize("world_size", [0, 1025, 4294967295])
def test_world_size_is_1_to_1024(store_url: str, world_size: int) -> None:
    assert bm.initialize(store_url, world_size, 0, bm.BmConfig()) == -2000
    sentence = last_error()
    assert f"world_size is {world_size}" in sentence
    assert "1..1024" in sentence


@pytest.mark.parametrize("world_size", [1, 1024])
def test_smallest_and_largest_world(store_url: str, world_size: int) -> None:
    assert pool_worker.take_part(store_url, world_size) == 0
    assert pool_worker.pools[0].peer_rank_ptr(world_size - 1, bm.BmMemType.HOST) > 0
    assert last_error() == ""


@pytest.mark.parametrize("name", ["init_timeout", "create_timeout", "operation_timeout"])
def test_time_out_of_0_is_refused(store_url: str, name: str) -> None:
    code, sentence = pool_worker.enter(store_url, 4, **{name: 0})
    assert code == -2000
    assert f"{name} is 0 s, expected 1..4294967295" in sentence


def test_longest_time_outs_work(store_url: str, workers: Any) -> None:
    longest = dict.fromkeys(("init_timeout", "create_timeout", "operation_timeout"), 4294967295)
    assert pool_worker.enter(store_url, 4, **longest) == (0, "")
    pool_worker.create()
    with workers(1) as cluster:
        assert cluster.call(0, "enter", store_url, 4, **longest) == (0, "")
        cluster.call(0, "create")
        cluster.call(0, "join")
        pool_worker.join()
        assert pool_worker.view() == [0, 1]


def test_unified_address_space_must_stay(store_url: str) -> None:
    code, sentence = pool_worker.enter(store_url, 4, unified_address_space=False)
    assert code == -2000
    assert "unified_address_space is False" in sentence


@pytest.mark.parametrize("rank", [4, 65535, 4294967295])
def test_fixed_rank_outside_the_world(store_url: str, rank: int) -> None:
    code, sentence = pool_worker.enter(store_url, 4, auto_ranking=False, rank_id=rank)
    assert code == -2000
    assert f"rank_id is {rank}, expected 0..3" in sentence


def test_rank_id_is_not_looked_at_with_auto_ranking(store_url: str) -> None:
    assert pool_worker.enter(store_url, 4, rank_id=4294967295) == (0, "")


@pytest.mark.parametrize(
    "nic",
    ["eth0", "tcp://", "tcp://1.2.3.4", "tcp://1.2.3.4:0", "tcp://1.2.3.4:70000", "tcp://1.2.3.4/8", "x" * 64,
     "tcp://" + "1" * 53 + ":9000"],
)  # fmt: skip
def test_malformed_nic(store_url: str, nic: str) -> None:
    config = bm.BmConfig()
    config.set_nic(nic)
    assert bm.initialize(store_url, 4, 0, config) == -2000
    sentence = last_error()
    assert ("64 characters, the limit is 63" in sentence) if len(nic) > 63 else (nic in sentence)


@pytest.mark.parametrize("nic", ["", "tcp://127.0.0.1:9000", "tcp://127.0.0.1/24:9000", "tcp6://[::1]:9000"])
def test_good_nic(store_url: str, nic: str) -> None:
    config = bm.BmConfig()
    config.set_nic(nic)
    assert bm.initialize(store_url, 4, 0, config) == 0
    assert last_error() == ""


WRONG_TYPES: list[tuple[Any, ...]] = [
    (None, 4, 0, bm.BmConfig()),
    (b"tcp://127.0.0.1:1", 4, 0, bm.BmConfig()),
    ("tcp://127.0.0.1:1", "4", 0, bm.BmConfig()),
    ("tcp://127.0.0.1:1", 4.0, 0, bm.BmConfig()),
    ("tcp://127.0.0.1:1", -1, 0, bm.BmConfig()),
    ("tcp://127.0.0.1:1", 1 << 32, 0, bm.BmConfig()),
    ("tcp://127.0.0.1:1", 4, -1, bm.BmConfig()),
    ("tcp://127.0.0.1:1", 4, 65536, bm.BmConfig()),
    ("tcp://127.0.0.1:1", 4, None, bm.BmConfig()),
    ("tcp://127.0.0.1:1", 4, 0, None),
    ("tcp://127.0.0.1:1", 4, 0, {}),
    ("tcp://127.0.0.1:1", 4, 0),
]


@pytest.mark.parametrize("arguments", WRONG_TYPES, ids=lambda arguments: repr(arguments[:3])[:50])
def test_wrong_types_raise(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        bm.initialize(*arguments)
    assert last_error() == "", "a TypeError is no failure of the library"


def test_store_that_never_answers_times_out_neither_early_nor_late() -> None:
    with reserved_port() as port:
        began = time.monotonic()
        code, sentence = pool_worker.enter(f"tcp://127.0.0.1:{port}", 4, start_store=False, init_timeout=1)
        took_s = time.monotonic() - began
    assert code == -2004
    assert f"127.0.0.1:{port}" in sentence
    assert "1 s" in sentence
    assert 0.95 <= took_s < 4.0


def test_host_name_that_nobody_knows_times_out_with_its_name() -> None:
    code, sentence = pool_worker.enter("tcp://no-such-host.invalid:9000", 4, init_timeout=1)
    assert code == -2004
    assert "no-such-host.invalid" in sentence


def test_functions_before_initialize() -> None:
    assert bm.bm_rank_id() == 4294967295
    assert "bm.initialize()" in last_error()
    assert bm.update_store_url("tcp://127.0.0.1:9000") == -2008
    assert "bm.initialize()" in last_error()
    with pytest.raises(RuntimeError, match=r"create bm handle failed: .*bm\.initialize\(\)") as caught:
        bm.create(0, 1)
    assert isinstance(caught.value.__cause__, NotInit)
    assert "bm.initialize()" in last_error()
    bm.uninitialize()
    assert last_error() == ""


def test_update_store_url_validates_the_url(pool: bm.BigMemory) -> None:
    assert bm.update_store_url("tcp://127.0.0.1:0") == -2000
    assert "port '0'" in last_error()
    with pytest.raises(TypeError):
        bm.update_store_url(7)  # type: ignore[arg-type]


def test_create_config_store_twice_here_and_once_elsewhere(store_url: str, workers: Any) -> None:
    assert mf.create_config_store(store_url) == 0
    assert mf.create_config_store(store_url) == 0
    assert last_error() == ""
    with workers(1) as cluster:
        assert cluster.call(0, "enter", store_url, 4, start_store_only=True)[0] == -2009


def test_address_of_another_process_is_in_use(store_url: str, workers: Any) -> None:
    with workers(1) as cluster:
        assert cluster.call(0, "enter", store_url, 4, start_store_only=True) == (0, "")
        assert mf.create_config_store(store_url) == -2009
        assert store_url.removeprefix("tcp://") in last_error()


def test_address_of_another_machine_cannot_be_served() -> None:
    assert mf.create_config_store("tcp://192.0.2.1:9000") == -2000
    assert "192.0.2.1" in last_error()
