"""TLS between real sockets: who is trusted, who is not and why, on both ends; and what goes on inside."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from memfabric_hybrid.errors import NotConnected, ResourceInUse
from memfabric_hybrid.store import StoreServer
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.client.client import StoreClient
from memfabric_hybrid.store.frames import VERSION, FrameReader
from memfabric_hybrid.store.limits import MIB
from memfabric_hybrid.store.protection.private_key import PrivateKey
from memfabric_hybrid.store.protection.protection import Protection
from memfabric_hybrid.store.protection.tls_identity import TlsFiles, TlsIdentity
from store.relay import Relay
from store.said import said
from store.test_local_socket import family_of
from store.worlds import PATIENCE_S, Seen, soon, wait_until
from support.certificates import DAY, NOW, Authority, Issued

TOKEN = b"a token of the test suite"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def identity(authority: Authority, member: Issued, *, with_crl: bool = False) -> TlsIdentity:
    crl_files = (str(authority.crl),) if with_crl else ()
    files = TlsFiles((str(authority.file),), crl_files, str(member.certificate))
    return TlsIdentity(files, PrivateKey(file=str(member.key)))


Source = Callable[[], Protection]


def with_tls(tls: TlsIdentity | None, token: bytes | None = None) -> Source:
    return lambda: Protection(token, tls)


@contextmanager
def serving(url: str, protection: Source, *, has_local_socket: bool = False) -> Iterator[StoreServer]:
    server = StoreServer(url, has_local_socket=has_local_socket, protection=protection)
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize("token", [None, TOKEN], ids=["tls", "tls and token"])
def test_both_show_certificates_and_talk(store_url: str, authority: Authority, token: bytes | None) -> None:
    store = with_tls(identity(authority, authority.issue("store")), token)
    member = with_tls(identity(authority, authority.issue("member")), token)
    large = os.urandom(20 * MIB)
    with serving(store_url, store) as server, StoreClient(store_url, protection=member) as client:
        assert client.claim_rank("g", 4, b"me", deadline=soon()) == 0
        seen = Seen()
        watch = client.watch("k", seen, deadline=soon())
        client.set("k", large, deadline=soon())
        seen.until(lambda view: view.get("k") == large)
        watch.close()
        assert client.get("k", deadline=soon()) == large
        assert client.gather("g", 1, 0, 1, b"x", deadline=soon()) == [b"x"]
        assert client.add("n", 2, deadline=soon()) == 2, "which looks whether the connection still stands"
        assert client.add("n", 2, deadline=soon()) == 4
        (connection,) = client._pool.idle
        assert connection.tls is not None
        assert connection.tls._stream._tls.version() == "TLSv1.3"
        assert server.state.tables.sessions._sessions


def test_what_goes_over_the_wire_cannot_be_read(store_url: str, authority: Authority) -> None:
    """Who stands in the middle sees neither keys nor values."""
    protection = with_tls(identity(authority, authority.issue("store")))
    with serving(store_url, protection), closing(Relay(int(store_url.rpartition(":")[2]))) as relay:
        with StoreClient(relay.url, protection=protection) as client:
            client.set("a secret key", b"a secret value", ephemeral=True, deadline=soon())
            assert client.get("a secret key", deadline=soon()) == b"a secret value"
        passed = relay.passed
    assert len(passed) > 1000
    assert b"secret" not in passed


# --- refusals -------------------------------------------------------------------------------------------------------


class Case:
    """Who is at both ends, and what each of them says."""

    def __init__(self, store: Source, member: Source, to_member: str, to_store: str) -> None:
        self.store, self.member, self.to_member, self.to_store = store, member, to_member, to_store


def unprotected() -> Protection:
    return Protection()


@pytest.fixture
def cases(authority: Authority, tmp_path: Path) -> dict[str, Case]:
    good = with_tls(identity(authority, authority.issue("good"), with_crl=True))
    other = Authority(tmp_path, "other")
    stranger = other.issue("stranger")
    files = TlsFiles((str(authority.file), str(other.file)), (), str(stranger.certificate))
    trusting_stranger = with_tls(TlsIdentity(files, PrivateKey(file=str(stranger.key))))
    expired = with_tls(identity(authority, authority.issue("expired", begin=NOW - 2 * DAY, end=NOW - DAY)))
    early = with_tls(identity(authority, authority.issue("early", begin=NOW + DAY)))
    gone = authority.issue("gone")
    authority.revoke(gone)
    revoked = with_tls(identity(authority, gone))
    client_only = with_tls(identity(authority, authority.issue("client only", client_only=True)))
    untrusted = "its certificate is not trusted: "
    return {
        "a member of another authority": Case(
            good,
            trusting_stranger,
            "this side's certificate is of no authority it knows",
            untrusted + "self-signed certificate",
        ),
        "a store of another authority": Case(
            trusting_stranger, good, untrusted + "self-signed certificate", "certificate is of no authority it knows"
        ),
        "neither knows the other": Case(
            with_tls(identity(other, stranger)),
            good,
            untrusted + "self-signed certificate",
            "is of no authority it knows",
        ),
        "an expired member": Case(
            good, expired, "this side's certificate has expired; renew it", untrusted + "certificate has expired"
        ),
        "an expired store": Case(expired, good, untrusted + "certificate has expired; renew it", "has expired"),
        "a member of tomorrow": Case(good, early, "this side's certificate is bad", "certificate is not yet valid"),
        "a revoked member": Case(
            good, revoked, "this side's certificate is revoked", untrusted + "certificate revoked"
        ),
        "a revoked store": Case(revoked, good, untrusted + "certificate revoked", "this side's certificate is revoked"),
        "a store with a member's certificate": Case(
            client_only, good, untrusted + "unsuitable certificate purpose", "not for this use"
        ),
        "a member without TLS": Case(good, unprotected, "it does not speak TLS, and this store does", "does not speak"),
        "a store without TLS": Case(unprotected, good, "it speaks no TLS, and this process wants", "it wants TLS"),
    }


KINDS = [
    "a member of another authority", "a store of another authority", "neither knows the other", "an expired member",
    "an expired store", "a member of tomorrow", "a revoked member", "a revoked store",
    "a store with a member's certificate", "a member without TLS", "a store without TLS",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "call",
    [lambda client: client.get("k", deadline=soon()), lambda client: client.claim_rank("g", 4, b"", deadline=soon())],
    ids=["request", "session"],
)
def test_who_is_not_trusted_is_refused_at_once_and_both_ends_say_why(
    store_url: str, cases: dict[str, Case], kind: str, call: Callable[[StoreClient], object]
) -> None:
    """At once: the first attempt ends the call, whose deadline only a failing test meets."""
    assert sorted(cases) == sorted(KINDS)
    case = cases[kind]
    with said() as lines, serving(store_url, case.store) as server:
        with (
            StoreClient(store_url, protection=case.member) as client,
            pytest.raises(NotConnected, match="do not trust each other") as failure,
        ):
            call(client)
        assert case.to_member in str(failure.value)
        wait_until(lambda: any("127.0.0.1:" in line and case.to_store in line for line in lines))
        assert not server.state.tables.sessions._sessions


def failure_of_greeting(context: ssl.SSLContext, raw: socket.socket) -> str:
    try:
        with context.wrap_socket(raw) as client:
            client.sendall(m.framed(m.Hello(bytes(16), m.REQUESTS, 3.0)))
            return f"no failure but {client.recv(65536)!r}"
    except ssl.SSLError as error:
        return str(error)


@pytest.mark.parametrize("kind", ["no certificate", "TLS 1.2"])
def test_other_clients_of_tls_are_refused(store_url: str, authority: Authority, kind: str) -> None:
    """Not ours, which always show a certificate: any TLS client at the store's port."""
    store = authority.issue("store")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(authority.file)
    if kind == "TLS 1.2":
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    with said() as lines, serving(store_url, with_tls(identity(authority, store))) as server:
        with socket.create_connection((server.url.host, server.url.port), PATIENCE_S) as raw:
            failure = failure_of_greeting(context, raw)
        assert "CERTIFICATE_REQUIRED" in failure or "PROTOCOL_VERSION" in failure
        expected = "it shows no certificate" if kind == "no certificate" else "it does not speak TLS 1.3"
        wait_until(lambda: any(expected in line for line in lines))


def test_something_else_at_the_address_is_no_store(store_url: str, authority: Authority) -> None:
    protection = with_tls(identity(authority, authority.issue("member")))
    with (
        socket.create_server(("127.0.0.1", int(store_url.rpartition(":")[2]))) as listener,
        StoreClient(store_url, protection=protection) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        asked = pool.submit(client.get, "k", deadline=soon())
        accepted, _ = listener.accept()
        with accepted:
            accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            with pytest.raises(ResourceInUse, match=r"no store: it answered 'HTTP/1.1 400 Bad Request'"):
                asked.result(PATIENCE_S)


def test_the_token_is_asked_for_inside_tls(store_url: str, authority: Authority) -> None:
    tls = identity(authority, authority.issue("member"))
    with (
        serving(store_url, with_tls(tls, TOKEN)),
        StoreClient(store_url, protection=with_tls(tls)) as client,
        pytest.raises(NotConnected, match="it has no token, and this store admits nobody without"),
    ):
        client.get("k", deadline=soon())


def test_garbage_after_the_handshake_ends_the_connection_only(store_url: str, authority: Authority) -> None:
    tls = identity(authority, authority.issue("member"))
    with serving(store_url, with_tls(tls)) as server:
        with (
            socket.create_connection((server.url.host, server.url.port), PATIENCE_S) as raw,
            tls.contexts().client.wrap_socket(raw) as client,
        ):
            client.sendall(m.framed(m.Hello(bytes(16), m.REQUESTS, 3.0)))
            reader = FrameReader(1 << 20)
            (welcome,) = reader.feed(client.recv(65536))
            assert isinstance(m.decode_server_message(welcome), m.Welcome)
            client.sendall(struct.pack(">IB", 2 << 30, VERSION))
            (refused,) = reader.feed(client.recv(65536))
            assert "frame of 2147483648 bytes" in str(m.decode_server_message(refused))
            assert not client.recv(1)
        with StoreClient(store_url, protection=with_tls(tls)) as other:
            assert other.get("k", deadline=soon()) is None
        wait_until(lambda: not server.lingering)


# --- life -----------------------------------------------------------------------------------------------------------


def test_certificates_are_renewed_without_a_restart(store_url: str, authority: Authority, tmp_path: Path) -> None:
    """Of the store and of a member that stays: its next connection shows the new one."""
    old = authority.issue("renewed", folder=tmp_path)
    tls = identity(authority, old, with_crl=True)
    with serving(store_url, with_tls(tls)) as server, StoreClient(store_url, protection=with_tls(tls)) as client:
        assert client.claim_rank("g", 4, b"me", deadline=soon()) == 0
        authority.revoke(old)  # whoever reads the list again does not trust it any more
        new = authority.issue("renewed", folder=tmp_path)
        assert new.serial != old.serial
        client._pool.drop_idle()
        assert client.get("g/0", deadline=soon()) == b"me"
        client._channel.renew()
        client.set("after", b"renewal", ephemeral=True, deadline=soon())
        (connection,) = client._pool.idle
        assert connection.tls is not None
        shown = connection.tls._stream._tls.getpeercert()
        assert shown is not None
        assert int(str(shown["serialNumber"]), 16) == new.serial
        assert server.state.tables.ranks.holder("g", 0) is not None, "it was there all the time"


def test_files_that_are_half_written_leave_the_old_ones_in_force(authority: Authority, tmp_path: Path) -> None:
    member = authority.issue("half", folder=tmp_path)
    tls = identity(authority, member)
    before = tls.contexts()
    whole = member.certificate.read_bytes()
    with said() as lines:
        member.certificate.write_bytes(whole[: len(whole) // 2])
        assert tls.contexts() is before
        assert tls.contexts() is before
    assert len([line for line in lines if "the old ones still serve" in line]) == 1, "said once"
    member.certificate.write_bytes(whole)
    assert tls.contexts() is not before


def test_a_revocation_counts_from_the_next_connection_on(store_url: str, authority: Authority) -> None:
    store, member = authority.issue("strict store"), authority.issue("traitor")
    with serving(store_url, with_tls(identity(authority, store, with_crl=True))):
        protection = with_tls(identity(authority, member))
        with StoreClient(store_url, protection=protection) as client:
            client.get("k", deadline=soon())
        authority.revoke(member)
        with (
            StoreClient(store_url, protection=protection) as client,
            pytest.raises(NotConnected, match="this side's certificate is revoked"),
        ):
            client.get("k", deadline=soon())


def test_heartbeats_need_no_interpreter(store_url: str, authority: Authority) -> None:
    """They are encrypted ahead: the native thread sends them while nothing else of this process runs."""
    tls = with_tls(identity(authority, authority.issue("member")))
    with (
        serving(store_url, tls) as server,
        StoreClient(store_url, protection=tls, heartbeat_timeout_s=0.5) as client,
    ):
        assert client.claim_rank("g", 4, b"me", deadline=soon()) == 0
        ((_, session),) = server.state.tables.sessions._sessions.items()
        heartbeat = client._channel._heartbeat
        assert heartbeat is not None
        heard, left = session.heard_at, heartbeat.beats_left
        wait_until(lambda: session.heard_at > heard + 1.0)
        assert heartbeat.beats_left < left
        assert client.get("g/0", deadline=soon()) == b"me"


def test_the_supply_of_heartbeats_is_refilled(
    store_url: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memfabric_hybrid.store.client.beat_supply.MAX_BEATS", 4)
    monkeypatch.setattr("memfabric_hybrid.store.client.event_channel.LOOK_S", 0.02)
    tls = with_tls(identity(authority, authority.issue("member")))
    with (
        serving(store_url, tls) as server,
        StoreClient(store_url, protection=tls, heartbeat_timeout_s=0.5) as client,
    ):
        assert client.claim_rank("g", 4, b"me", deadline=soon()) == 0
        ((_, session),) = server.state.tables.sessions._sessions.items()
        heard = session.heard_at
        wait_until(lambda: session.heard_at > heard + 1.2)  # three times what four beats last
        assert server.state.tables.ranks.holder("g", 0) is not None


def test_the_local_socket_serves_who_was_trusted_at_the_address(store_url: str, authority: Authority) -> None:
    tls = with_tls(identity(authority, authority.issue("member")))
    with (
        serving(store_url, tls, has_local_socket=True),
        StoreClient(store_url, protection=tls) as client,
    ):
        assert family_of(client) == socket.AF_UNIX


def test_many_threads_over_tls(store_url: str, authority: Authority) -> None:
    tls = with_tls(identity(authority, authority.issue("member")))
    with (
        serving(store_url, tls),
        StoreClient(store_url, protection=tls) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        done = threading.Barrier(8)

        def work(number: int) -> None:
            done.wait(PATIENCE_S)
            for turn in range(30):
                client.set(f"k/{number}", str(turn).encode(), deadline=soon())
                assert client.get(f"k/{number}", deadline=soon()) == str(turn).encode()

        list(pool.map(work, range(8)))
