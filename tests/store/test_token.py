"""The shared token, with real handshakes: nobody comes in without it, both ends say why, and nobody says what it is."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from memfabric_hybrid.errors import InvalidParam, NotConnected
from memfabric_hybrid.store import StoreServer, local_socket
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.client.client import StoreClient
from memfabric_hybrid.store.frames import FrameReader
from memfabric_hybrid.store.local_socket import connect_local
from memfabric_hybrid.store.proofs import NONCE_BYTES, client_proof, server_proof
from memfabric_hybrid.store.protection import protection as protections
from memfabric_hybrid.store.protection.protection import Protection
from memfabric_hybrid.store.state.gate import Gate, NotAdmitted
from store.said import said
from store.test_local_socket import family_of
from store.worlds import PATIENCE_S, soon, wait_until

TOKEN, OTHER = b"a token of the test suite", b"another token of the test suite"


def with_token(token: bytes | None) -> Callable[[], Protection]:
    return lambda: Protection(token)


@contextmanager
def serving(url: str, token: bytes | None, *, has_local_socket: bool = True) -> Iterator[StoreServer]:
    server = StoreServer(url, has_local_socket=has_local_socket, protection=with_token(token))
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize("has_local_socket", [True, False])
def test_who_has_the_token_is_a_member(store_url: str, has_local_socket: bool) -> None:
    with (
        serving(store_url, TOKEN, has_local_socket=has_local_socket),
        StoreClient(store_url, protection=with_token(TOKEN)) as client,
    ):
        assert client.claim_rank("g", 4, b"me", deadline=soon()) == 0
        client.set("k", b"v", deadline=soon())
        assert client.get("k", deadline=soon()) == b"v"
        assert family_of(client) == (socket.AF_UNIX if has_local_socket else socket.AF_INET)


REFUSALS = {
    "no token": (TOKEN, None, "it has no token, and this store admits nobody without", "it has no token"),
    "another token": (TOKEN, OTHER, "its token is another than that of this process", "its token is another"),
    "a store without": (None, TOKEN, "it wants a store with a token, and this store has none", "wants a store with"),
}


@pytest.mark.parametrize("kind", REFUSALS)
@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.get("k", deadline=soon()),  # on a request connection
        lambda client: client.claim_rank("g", 4, b"", deadline=soon()),  # on the event channel first
    ],
    ids=["request", "session"],
)
def test_who_has_not_is_told_at_once_and_so_is_the_store(
    store_url: str, kind: str, call: Callable[[StoreClient], object]
) -> None:
    """At once: the first attempt ends the call, whose deadline only a failing test meets."""
    servers, clients, to_client, to_server = REFUSALS[kind]
    with said() as lines, serving(store_url, servers) as server:
        with StoreClient(store_url, protection=with_token(clients)) as client:
            with pytest.raises(NotConnected, match="do not trust each other") as failure:
                call(client)
            assert to_client in str(failure.value)
            assert "MF_CONFIG_STORE_TOKEN" in str(failure.value), "the remedy"
            wait_until(lambda: any("127.0.0.1:" in line and to_server in line for line in lines))
        assert not server.state.tables.sessions._sessions
    assert not any(token.decode() in line for line in lines for token in (TOKEN, OTHER)), lines


def test_a_store_that_welcomes_without_a_proof_is_refused(store_url: str) -> None:
    """Somebody who pretends to be the store and answers whatever the client likes to hear."""
    port = int(store_url.rpartition(":")[2])
    with (
        socket.create_server(("127.0.0.1", port)) as listener,
        StoreClient(store_url, protection=with_token(TOKEN)) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        asked = pool.submit(client.get, "k", deadline=soon())
        accepted, _ = listener.accept()
        with accepted:
            accepted.sendall(m.framed(m.Welcome("f" * 16, 0)))
            with pytest.raises(NotConnected, match="it has no token, and this process wants a store with one"):
                asked.result(PATIENCE_S)


def test_a_proof_of_another_connection_is_worth_nothing(store_url: str) -> None:
    """Whoever has listened to one greeting cannot repeat it: the store's nonce is another."""
    with serving(store_url, TOKEN, has_local_socket=False) as server:
        session, nonce = bytes(16), b"n" * NONCE_BYTES

        def greeting(answer: Callable[[m.Challenge], bytes]) -> m.ServerMessage:
            reader = FrameReader(1 << 20)
            with socket.create_connection((server.url.host, server.url.port), PATIENCE_S) as raw:
                raw.sendall(m.framed(m.Hello(session, m.REQUESTS, 3.0, False, nonce)))
                (payload,) = reader.feed(raw.recv(65536))
                challenge = m.decode_server_message(payload)
                assert isinstance(challenge, m.Challenge)
                assert challenge.proof == server_proof(TOKEN, nonce, challenge.nonce)
                raw.sendall(m.framed(m.Proof(answer(challenge))))
                (payload,) = reader.feed(raw.recv(65536))
                return m.decode_server_message(payload)

        right: list[bytes] = []

        def prove(challenge: m.Challenge) -> bytes:
            right.append(client_proof(TOKEN, nonce, challenge.nonce, session))
            return right[0]

        assert isinstance(greeting(prove), m.Welcome)
        again = greeting(lambda challenge: right[0])
        assert isinstance(again, m.Refused)
        assert "its token is another" in again.sentence
        back = greeting(lambda challenge: challenge.proof)
        assert isinstance(back, m.Refused), "the store's own proof is not a client's"


def test_the_local_socket_of_a_protected_store_wants_its_key(store_url: str) -> None:
    """Its name can be read by everybody on the host; the key is told to whoever is admitted at the address."""
    with said() as lines, serving(store_url, TOKEN) as server:
        local = connect_local(server.state.incarnation)
        assert local is not None
        with local:
            local.settimeout(PATIENCE_S)
            local.sendall(m.framed(m.Hello(bytes(16), m.REQUESTS, 3.0)))
            (payload,) = FrameReader(1 << 20).feed(local.recv(65536))
        answer = m.decode_server_message(payload)
        assert isinstance(answer, m.Refused)
        assert "the key of this store's local socket" in answer.sentence
        wait_until(lambda: any("the local socket is not admitted" in line for line in lines))


def test_the_local_socket_of_a_protected_store_is_for_its_own_user(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On both ends: a client of another user stays at the address."""

    def denied(connected: socket.socket) -> None:
        raise PermissionError("the local socket of a protected store is for its own user 1 only, not for user 2")

    with serving(store_url, TOKEN):
        with monkeypatch.context() as patch:
            patch.setattr(local_socket, "check_own_user", denied)  # the client's end
            with StoreClient(store_url, protection=with_token(TOKEN)) as client:
                assert family_of(client) == socket.AF_INET
        with monkeypatch.context() as patch, said() as lines:
            patch.setattr("memfabric_hybrid.store.server.peer.check_own_user", denied)
            with StoreClient(store_url, protection=with_token(TOKEN)) as client:
                assert family_of(client) == socket.AF_INET
            wait_until(lambda: any("for its own user 1 only" in line for line in lines))


def test_tokens_come_from_the_environment_or_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert protections.configured() == Protection(None)
    monkeypatch.setenv("MF_CONFIG_STORE_TOKEN", " " + TOKEN.decode())
    assert protections.configured().token == TOKEN
    assert TOKEN.decode() not in repr(protections.configured())
    file = tmp_path / "token"
    file.write_bytes(OTHER + b"\n")
    monkeypatch.setenv("MF_CONFIG_STORE_TOKEN_FILE", str(file))
    with pytest.raises(InvalidParam, match="both set"):
        protections.configured()
    monkeypatch.delenv("MF_CONFIG_STORE_TOKEN")
    assert protections.configured().token == OTHER


def test_a_token_that_cannot_be_used_fails_the_call_and_is_not_shown(
    store_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MF_CONFIG_STORE_TOKEN", "hunter2")
    for call in (
        lambda: StoreServer(store_url),
        lambda: StoreClient(store_url).get("k", deadline=soon()),
    ):
        with pytest.raises(InvalidParam, match="token of 7 bytes, expected 16 to 4096") as failure:
            call()
        assert "hunter2" not in str(failure.value)
    with StoreClient(store_url) as client, pytest.raises(InvalidParam, match="token of 7 bytes"):
        client.claim_rank("g", 2, b"", deadline=soon())  # the event thread finds it out
    monkeypatch.delenv("MF_CONFIG_STORE_TOKEN")
    monkeypatch.setenv("MF_CONFIG_STORE_TOKEN_FILE", str(tmp_path / "nowhere"))
    with pytest.raises(InvalidParam, match="cannot be read: No such file"):
        protections.configured()


def test_the_gate_forgets_who_left_in_the_middle() -> None:
    gate = Gate(TOKEN, b"", lambda: bytes(NONCE_BYTES))
    hello = m.Hello(bytes(16), m.REQUESTS, 3.0, False, b"n" * NONCE_BYTES)
    assert isinstance(gate.validate(1, hello, False), m.Challenge)
    gate.forget(1)
    assert isinstance(gate.hear(1, b""), NotAdmitted)
    assert not gate._asked
