"""Callbacks that exit, a standard error that is closed, service threads that fail: nothing pretends to go on."""

from __future__ import annotations

import io
import socket
import sys
import threading
from typing import Any

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm
from memfabric_hybrid._native import Link
from memfabric_hybrid.address_space.exchange import answerer
from memfabric_hybrid.bm import runtime
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.store import connect, parse_url
from memfabric_hybrid.store.server import hosting
from support import pool_worker
from support.threads import LONG_S, wait_until


def exit_now(*values: object) -> None:
    sys.exit("a defect")


def test_group_events_go_on_after_a_handler_that_exits(store_url: str, workers: Any) -> None:
    heard: list[tuple[int, str]] = []
    twice = threading.Event()

    def handler(rank: int, event: bm.BmGroupEvent) -> None:
        heard.append((rank, event.name))
        if len(heard) == 2:
            twice.set()
        sys.exit(1)

    pool_worker.take_part(store_url)
    pool_worker.pools[0].set_group_event_handler(handler)
    with workers(1) as cluster:
        cluster.call(0, "take_part", store_url)
        cluster.kill(0)
        assert twice.wait(LONG_S)
    assert heard == [(1, "JOIN_EVENT"), (1, "LEAVE_EVENT")]


def test_refused_peer_and_a_closed_standard_error(
    store_url: str, workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal is logged, the log cannot be written, and the exchange goes on: it notices a death."""
    closed = io.StringIO()
    closed.close()
    pool_worker.take_part(store_url)
    member = runtime.current_node().member

    def refuse(link: Link) -> None:
        raise PermissionError("another user")

    with workers(1) as cluster:
        cluster.call(0, "take_part", store_url)
        pool_worker.wait_for_view([0, 1])
        with monkeypatch.context() as broken:
            broken.setattr(sys, "stderr", closed)
            broken.setattr(answerer, "check_peer", refuse)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
                peer.settimeout(LONG_S)
                peer.connect("\0" + member.exchange_name)
                assert peer.recv(1) == b""
        cluster.kill(0)
        pool_worker.wait_for_view([0])
    assert runtime.current_node().exchange._thread._thread.is_alive()


def test_exchange_that_fails_takes_its_pools_along(
    store_url: str, workers: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with workers(1) as cluster:
        cluster.call(0, "take_part", store_url)
        pool_worker.take_part(store_url)
        node = runtime.current_node()
        node.exchange._on_tick = exit_now  # type: ignore[assignment]
        node.exchange.request_tick()
        wait_until(lambda: pool_worker.write(0, 0, b"x")[0] != 0)
        code, sentence = pool_worker.write(0, 0, b"x")
        assert code == -2014
        assert "thread 'memfabric-exchange' ended unexpectedly (SystemExit: a defect)" in sentence
        pool_worker.create(1)
        assert pool_worker.call("join", object_id=1)[0] == -2014
        assert "memfabric-exchange" in mf.get_last_err_msg()
        assert cluster.call(0, "wait_for_view", [0]) < LONG_S  # which heard us hang up
        bm.uninitialize()
        pool_worker.take_part(store_url)
        assert pool_worker.view() == [0, 1]
    assert "CRITICAL" in capsys.readouterr().err


def test_event_thread_that_fails_takes_its_pools_along(store_url: str, workers: Any) -> None:
    with workers(2) as cluster:
        cluster.call(0, "take_part", store_url)
        pool_worker.take_part(store_url)
        store = runtime.current_node().member.store
        store._channel.watch_callbacks.deliver = exit_now  # type: ignore[attr-defined]
        cluster.call(1, "take_part", store_url)  # which the store tells us
        wait_until(lambda: pool_worker.write(1, 0, b"x")[0] != 0)
        code, sentence = pool_worker.write(1, 0, b"x")
        assert code == -2014
        assert "ended unexpectedly (SystemExit: a defect)" in sentence
        with pytest.raises(RuntimeError, match="ended unexpectedly"):
            pool_worker.create(1)
        bm.uninitialize()
        assert pool_worker.enter(store_url) == (0, "")


@pytest.mark.plain_store("it speaks to the store without a client")
def test_store_server_that_fails_is_replaced_when_it_is_wanted_again(store_url: str) -> None:
    assert mf.create_config_store(store_url) == 0
    server = hosting._servers[parse_url(store_url)]
    server.carry_out = exit_now  # type: ignore[method-assign]
    with socket.create_connection((server.url.host, server.url.port)) as client:
        client.settimeout(LONG_S)
        client.sendall(b"what no store understands")
        assert client.recv(100) == b""
    wait_until(lambda: server.failure is not None)
    assert "SystemExit: a defect" in str(server.failure)
    assert mf.create_config_store(store_url) == 0
    with connect(store_url) as store:
        store.set("k", b"v", deadline=Deadline(10))
