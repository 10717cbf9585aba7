"""The store's side door: who comes through it, and that it never makes anything worse."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from memfabric_hybrid.store import StoreClient, StoreServer
from memfabric_hybrid.store.door import open_door
from store.worlds import soon
from support.ports import reserved_port

pytestmark = pytest.mark.plain_user

root_only = pytest.mark.needs_root("only root can start processes of other users")

SERVER_OF_ANOTHER_USER = """
import encodings.idna, os, sys  # all that is needed is imported while it can be read
from memfabric_hybrid.store import StoreServer
server = StoreServer(sys.argv[1])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
server.start()
print("serves", flush=True)
sys.stdin.read()
server.stop()
"""


@pytest.fixture
def doorless(store_url: str) -> Iterator[StoreServer]:
    server = StoreServer(store_url, has_door=False)
    server.start()
    yield server
    server.stop()


def family_of(client: StoreClient) -> socket.AddressFamily:
    """How the client's requests travel, after a request that worked."""
    client.set("k", b"v", deadline=soon())
    assert client.get("k", deadline=soon()) == b"v"
    (connection,) = client._pool.idle
    return connection._socket.family


def test_clients_of_this_host_come_through_the_door(server: StoreServer) -> None:
    with StoreClient(server.url) as client:
        assert family_of(client) == socket.AF_UNIX
        assert client.peer_name(deadline=soon()) == f"127.0.0.1:{server.url.port}", "still its address"
        assert client.claim_rank("g", 4, b"", deadline=soon()) == 0, "sessions live at the address"


def test_clients_that_count_as_another_host_do_not(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MF_HOST_IDENTITY", "elsewhere")
    with StoreClient(server.url) as client:
        assert family_of(client) == socket.AF_INET


def test_store_without_a_door(doorless: StoreServer) -> None:
    with StoreClient(doorless.url) as client:
        assert family_of(client) == socket.AF_INET


def test_door_of_the_next_store_at_the_address(server: StoreServer) -> None:
    with StoreClient(server.url) as client:
        assert family_of(client) == socket.AF_UNIX
        server.stop()
        again = StoreServer(server.url)
        again.start()
        assert family_of(client) == socket.AF_UNIX
        again.stop()


@root_only
def test_door_of_another_user_is_not_entered(store_url: str) -> None:
    command = [sys.executable, "-c", SERVER_OF_ANOTHER_USER, store_url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "serves\n"
        with StoreClient(store_url) as client:
            assert family_of(client) == socket.AF_INET
        process.stdin.close()
        assert process.wait(20) == 0


@pytest.mark.parametrize("words", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_useless_door_is_left_for_the_address(doorless: StoreServer, words: bytes) -> None:
    with open_door(doorless.state.incarnation) as door:
        door.setblocking(True)

        def answer() -> None:
            visitor, _ = door.accept()
            with visitor:
                visitor.recv(1000)
                visitor.sendall(words)

        thread = threading.Thread(target=answer)
        thread.start()
        with StoreClient(doorless.url) as client:
            assert family_of(client) == socket.AF_INET
        thread.join()


def test_another_store_behind_the_door_is_not_entered(doorless: StoreServer) -> None:
    """It cannot happen by itself, names being random; it must not matter if it does."""
    with reserved_port() as port:
        other = StoreServer(f"tcp://127.0.0.1:{port}")
        its_own, other.state.incarnation = other.state.incarnation, doorless.state.incarnation
        other.start()
        other.state.incarnation = its_own
        with StoreClient(doorless.url) as client:
            assert family_of(client) == socket.AF_INET
        other.stop()
