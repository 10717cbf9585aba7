"""Right and wrong frames to a store's port, plain, before the TLS handshake and after it: it goes on serving others.

`MF_PORT_FUZZ_FRAMES` says how many; the seed is in the report's header.
"""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import Callable, Iterator

import pytest

from fuzz.test_store_fuzz import SESSIONS, mutated, random_bytes
from memfabric_hybrid.store import StoreServer
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.client.client import StoreClient
from memfabric_hybrid.store.protection.protection import Protection
from memfabric_hybrid.store.protection.tls_identity import TlsIdentity
from store.worlds import PATIENCE_S, member_identity, soon, wait_until
from support import campaigns

FRAMES = 1500
CONNECTIONS = 8
LOOK_EVERY = 500


@pytest.fixture(scope="module")
def tls() -> TlsIdentity:
    return member_identity()


@pytest.fixture
def server(request: pytest.FixtureRequest, store_url: str, tls: TlsIdentity) -> Iterator[StoreServer]:
    protection = Protection(None, None if request.param == "plain" else tls)
    server = StoreServer(store_url, protection=lambda: protection)
    server.start()
    yield server
    server.stop()


class Sender:
    """Connections that are replaced when the server has closed them."""

    def __init__(self, server: StoreServer, wrap: Callable[[socket.socket], socket.socket]) -> None:
        self._address = (server.url.host, server.url.port)
        self._wrap = wrap
        self._connections: dict[int, socket.socket] = {}
        self.opened = 0

    def send(self, number: int, data: bytes) -> None:
        connection = self._connections.get(number) or self._open(number)
        try:
            connection.sendall(data)
            connection.setblocking(False)
            while connection.recv(65536):
                pass
        except (BlockingIOError, ssl.SSLWantReadError):
            connection.settimeout(PATIENCE_S)
            return
        except OSError:
            self._drop(number, connection)
        else:
            self._drop(number, connection)

    def _open(self, number: int) -> socket.socket:
        self.opened += 1
        connection = self._wrap(socket.create_connection(self._address, PATIENCE_S))
        self._connections[number] = connection
        return connection

    def _drop(self, number: int, connection: socket.socket) -> None:
        connection.close()
        self._connections.pop(number, None)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


def check_serves(server: StoreServer, protection: Protection) -> None:
    with StoreClient(server.url, protection=lambda: protection) as client:
        client.set("after", b"all", deadline=soon())
        assert client.get("after", deadline=soon()) == b"all"


def run(server: StoreServer, sender: Sender, rng: random.Random, make: Callable[[], bytes], after: Protection) -> None:
    try:
        for number in range(campaigns.length("MF_PORT_FUZZ_FRAMES", FRAMES)):
            sender.send(rng.randrange(CONNECTIONS), make())
            if number % LOOK_EVERY == 0:
                check_serves(server, after)
    finally:
        sender.close()
    check_serves(server, after)
    wait_until(lambda: not server.peers and not server.lingering)
    assert server.failure is None
    assert server._incomplete.held_bytes == 0
    assert not server.state._connections


@pytest.mark.soak
@pytest.mark.parametrize("server", ["plain", "tls"], indirect=True)
def test_frames_after_the_handshake(server: StoreServer, tls: TlsIdentity, rng: random.Random) -> None:
    protection = server._protection
    context = tls.contexts().client

    def greeted(raw: socket.socket) -> socket.socket:
        connection = raw if protection.tls is None else context.wrap_socket(raw)
        if rng.random() < 0.8:
            connection.sendall(m.framed(m.Hello(rng.choice(SESSIONS), rng.choice([m.REQUESTS, m.EVENTS]), 3.0)))
        return connection

    run(server, Sender(server, greeted), rng, lambda: random_bytes(rng), protection)


@pytest.mark.soak
@pytest.mark.parametrize("server", ["tls"], indirect=True)
def test_frames_before_the_handshake(server: StoreServer, tls: TlsIdentity, rng: random.Random) -> None:
    """Plain frames, wounded handshakes of a proper client, and noise that begins like one."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = tls.contexts().client.wrap_bio(incoming, outgoing)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outgoing.read()

    def make() -> bytes:
        choice = rng.random()
        if choice < 0.3:
            return random_bytes(rng)
        if choice < 0.8:
            return mutated(rng, hello)
        return b"\x16\x03\x01" + rng.randbytes(rng.randrange(600))

    run(server, Sender(server, lambda raw: raw), rng, make, server._protection)
