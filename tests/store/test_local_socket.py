"""The store's local socket: who uses it, and that it never makes anything worse."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from memfabric_hybrid.store import StoreServer
from memfabric_hybrid.store.client.client import StoreClient
from memfabric_hybrid.store.local_socket import listen_local
from store.said import INFO, said
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
def without_local_socket(store_url: str) -> Iterator[StoreServer]:
    server = StoreServer(store_url, has_local_socket=False)
    server.start()
    yield server
    server.stop()


def family_of(client: StoreClient) -> socket.AddressFamily:
    """How the client's requests travel, after a request that worked."""
    client.set("k", b"v", deadline=soon())
    assert client.get("k", deadline=soon()) == b"v"
    (connection,) = client._pool.idle
    return connection._socket.family


def test_clients_of_this_host_use_the_local_socket(server: StoreServer) -> None:
    with StoreClient(server.url) as client:
        assert family_of(client) == socket.AF_UNIX
        assert client.peer_name(deadline=soon()) == f"127.0.0.1:{server.url.port}", "still its address"
        assert client.claim_rank("g", 4, b"", deadline=soon()) == 0, "sessions live at the address"


def test_clients_that_count_as_another_host_do_not(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MF_HOST_IDENTITY", "elsewhere")
    with StoreClient(server.url) as client:
        assert family_of(client) == socket.AF_INET


def test_store_without_a_local_socket(without_local_socket: StoreServer) -> None:
    with StoreClient(without_local_socket.url) as client:
        assert family_of(client) == socket.AF_INET


def test_local_socket_of_the_next_store_at_the_address(server: StoreServer) -> None:
    with StoreClient(server.url) as client:
        assert family_of(client) == socket.AF_UNIX
        server.stop()
        again = StoreServer(server.url)
        again.start()
        assert family_of(client) == socket.AF_UNIX
        again.stop()


@root_only
def test_local_socket_of_another_user_is_not_used(store_url: str) -> None:
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
def test_useless_local_socket_is_left_for_the_address(without_local_socket: StoreServer, words: bytes) -> None:
    with listen_local(without_local_socket.state.incarnation) as listener:
        listener.setblocking(True)

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(words)

        thread = threading.Thread(target=answer)
        thread.start()
        with StoreClient(without_local_socket.url) as client:
            assert family_of(client) == socket.AF_INET
        thread.join()


def test_another_store_behind_the_local_socket_is_not_used(without_local_socket: StoreServer) -> None:
    """It cannot happen by itself, names being random; it must not matter if it does."""
    with reserved_port() as port:
        other = StoreServer(f"tcp://127.0.0.1:{port}")
        its_own, other.state.incarnation = other.state.incarnation, without_local_socket.state.incarnation
        other.start()
        other.state.incarnation = its_own
        with StoreClient(without_local_socket.url) as client, said(INFO) as lines:
            for _ in range(3):
                assert family_of(client) == socket.AF_INET
                client._pool.drop_idle()
            assert len([line for line in lines if "local socket on this host is of no use" in line]) == 1
        other.stop()
