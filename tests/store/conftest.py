"""A server, and all kinds of store for the conformance suite: every test that takes `world` runs over each."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from memfabric_hybrid.store import Store, StoreServer
from store.bench import Bench
from store.worlds import WORLDS, World
from support.etcd import EtcdCluster


@pytest.fixture(params=list(WORLDS))
def world(request: pytest.FixtureRequest, store_url: str, shared_etcd: EtcdCluster) -> Iterator[World]:
    world = WORLDS[request.param](shared_etcd.url() if request.param == "etcd" else store_url)
    yield world
    world.close()


@pytest.fixture
def store(world: World) -> Store:
    return world.participant()


@pytest.fixture
def other(world: World) -> Store:
    return world.participant()


@pytest.fixture
def server(store_url: str) -> Iterator[StoreServer]:
    server = StoreServer(store_url)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool
