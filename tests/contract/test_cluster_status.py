"""`get_cluster_status`: what an operator learns in the process that runs the store, from Python and from C alike."""

from __future__ import annotations

import json
from typing import Any

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm
from memfabric_hybrid.capi_bridge import process_calls
from memfabric_hybrid.store.server import hosting
from memfabric_hybrid.store.url import parse_url

pytestmark = [pytest.mark.usefixtures("everything_off"), pytest.mark.own_store]


def said_to_c() -> tuple[int, Any]:
    """What smem_config_store_get_cluster_status() gets from us."""
    code, text = process_calls.config_store_get_cluster_status()  # type: ignore[misc]
    return code, json.loads(text)


def without_time(stores: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in store.items() if name != "uptime_s"} for store in stores]


def test_nothing_runs_here() -> None:
    assert mf.get_cluster_status() == "[]"
    assert "this process runs no store" in mf.get_and_clear_last_err_msg()
    assert said_to_c() == (-2007, [])
    assert "this process runs no store" in mf.get_and_clear_last_err_msg()


def test_store_without_members(store_url: str) -> None:
    assert mf.create_config_store(store_url) == 0
    (store,) = json.loads(mf.get_cluster_status())
    assert store["url"] == store_url
    assert store["uptime_s"] >= 0
    assert len(store["incarnation"]) == 16
    assert (store["clusters"], store["sessions"], store["keys"], store["watches"]) == ({}, 0, 0, 0)
    assert mf.get_last_err_msg() == ""


def test_member_of_the_same_process(store_url: str) -> None:
    assert bm.initialize(store_url, 3, 0, bm.BmConfig()) == 0, mf.get_last_err_msg()
    with bm.create(7, local_dram_size=2 << 20) as pool:
        assert pool.join() == 0, mf.get_last_err_msg()
        stores = json.loads(mf.get_cluster_status())
        (store,) = stores
        assert store["clusters"] == {"bm": {"world_size": 3, "ranks": [0]}}
        assert store["sessions"] == store["connections"]["events"] == 1
        assert store["connections"]["requests"] >= 1
        assert store["keys"] >= 2  # its rank and its part of the pool
        assert store["bytes"]["members"] > 0
        assert store["bytes"]["plain"] == 0
        assert store["watches"] >= 1
        assert store["revision"] >= 2
        code, same = said_to_c()
        assert (code, without_time(same)) == (0, without_time(stores))
    bm.uninitialize()
    assert mf.get_cluster_status() == "[]", "the store went with its member"


def test_store_that_does_not_answer_is_a_failure(store_url: str) -> None:
    assert mf.create_config_store(store_url) == 0
    server = hosting._servers[parse_url(store_url)]
    server.stop()
    assert mf.get_cluster_status() == "[]"
    assert f"store {store_url} does not say who is here" in mf.get_and_clear_last_err_msg()
    assert process_calls.config_store_get_cluster_status() == -2014
