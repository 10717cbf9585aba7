"""etcd with TLS and with users: what fits is served, what does not is refused at once, with the reason."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import InvalidParam, NotConnected, TimedOut
from memfabric_hybrid.store.etcd.gateway.credentials import Credentials, configured
from memfabric_hybrid.store.etcd.store import EtcdStore
from memfabric_hybrid.store.protection.private_key import PrivateKey
from memfabric_hybrid.store.protection.protection import Protection
from memfabric_hybrid.store.protection.tls_identity import TlsFiles, TlsIdentity
from store.said import said
from store.worlds import Seen, soon
from support import etcd
from support.certificates import Authority
from support.etcd import EtcdCluster

PASSWORD = "a password of the test suite"


class Trusted(NamedTuple):
    cluster: EtcdCluster
    authority: Authority

    def store(self, authority: Authority | None = None) -> EtcdStore:
        own = authority or self.authority
        member = own.issue("member")
        identity = TlsIdentity(
            TlsFiles((str(own.file),), (), str(member.certificate)), PrivateKey(file=str(member.key))
        )
        return EtcdStore(self.cluster.url(), heartbeat_timeout_s=1.0, protection=lambda: Protection(tls=identity))


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trusted]:
    authority = Authority(tmp_path_factory.mktemp("etcd-certificates"))
    server = authority.issue("server")
    options = ["--cert-file", str(server.certificate), "--key-file", str(server.key)]
    options += ["--trusted-ca-file", str(authority.file), "--client-cert-auth"]
    with etcd.running(options=options) as cluster:
        yield Trusted(cluster, authority)


def check_it_serves(store: EtcdStore) -> None:
    """Everything that goes over connections of its own; and the lease outlives its time."""
    seen = Seen()
    store.watch("", seen, deadline=soon())
    store.set("k", b"v", ephemeral=True, deadline=soon())
    seen.until(lambda view: view == {"k": b"v"})
    assert store.gather("g", 0, 0, 1, b"part", deadline=soon()) == [b"part"]
    time.sleep(1.8)  # its lease of one second would be over
    assert store.get("k", deadline=soon()) == b"v"
    assert seen.empty


def test_certificates_on_both_sides(trusted: Trusted) -> None:
    with trusted.store() as store:
        check_it_serves(store)


def test_a_certificate_of_another_authority(trusted: Trusted, tmp_path: Path) -> None:
    with trusted.store(Authority(tmp_path, "other")) as store:
        for call in (
            lambda: store.get("k", deadline=soon()),
            lambda: store.set("k", b"", ephemeral=True, deadline=soon()),
        ):
            with pytest.raises(NotConnected, match=r"do not trust each other: .*"):
                call()


def test_who_speaks_no_tls_to_one_that_does(trusted: Trusted) -> None:
    """Such an etcd closes the connection without a word, as one does that is about to end: so it is tried again."""
    with EtcdStore(trusted.cluster.url()) as store, pytest.raises(TimedOut, match="does it want TLS"):
        store.get("k", deadline=Deadline(0.2))


def test_who_speaks_tls_to_one_that_does_not(trusted: Trusted, shared_etcd: EtcdCluster) -> None:
    with Trusted(shared_etcd, trusted.authority).store() as store, pytest.raises(TimedOut, match="have certificates"):
        store.get("k", deadline=Deadline(0.2))


# --- users ----------------------------------------------------------------------------------------------------------


def administer(cluster: EtcdCluster, path: str, body: dict[str, object]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", cluster.nodes[0].client_port, timeout=10)
    connection.request("POST", f"/v3/auth/{path}", json.dumps(body))
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    connection.close()


@pytest.fixture(scope="module")
def with_users() -> Iterator[EtcdCluster]:
    with etcd.running() as cluster:
        administer(cluster, "role/add", {"name": "root"})
        administer(cluster, "role/add", {"name": "members"})
        everything = {"permType": "READWRITE", "key": "L21lbWZhYnJpYy8=", "range_end": "L21lbWZhYnJpYzA="}
        administer(cluster, "role/grant", {"name": "members", "perm": everything})
        for name, role in (("root", "root"), ("member", "members"), ("stranger", "")):
            administer(cluster, "user/add", {"name": name, "password": PASSWORD})
            if role:
                administer(cluster, "user/grant", {"user": name, "role": role})
        administer(cluster, "enable", {})
        yield cluster


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MF_ETCD_USER", "member")
    monkeypatch.setenv("MF_ETCD_PASSWORD", PASSWORD)


@pytest.mark.usefixtures("member")
def test_a_user_with_its_password(with_users: EtcdCluster) -> None:
    with said() as lines, EtcdStore(with_users.url(), heartbeat_timeout_s=1.0) as store:
        check_it_serves(store)
        store._endpoints._token = "a token that has expired"
        store._gateway.drop_idle()
        assert store.get("k", deadline=soon()) == b"v"
    assert PASSWORD not in "".join(lines)


@pytest.mark.parametrize(
    ("user", "password", "reason"),
    [
        ("", "", "user name is empty"),
        ("member", "wrong", "authentication failed"),
        ("stranger", PASSWORD, "permission denied"),
    ],
    ids=["none", "wrong password", "no role"],
)
def test_who_is_not_admitted_learns_why(
    with_users: EtcdCluster, monkeypatch: pytest.MonkeyPatch, user: str, password: str, reason: str
) -> None:
    monkeypatch.setenv("MF_ETCD_USER", user)
    monkeypatch.setenv("MF_ETCD_PASSWORD", password)
    with EtcdStore(with_users.url()) as store:
        for call in (
            lambda: store.get("k", deadline=soon()),
            lambda: store.set("k", b"", ephemeral=True, deadline=soon()),
        ):
            with pytest.raises(NotConnected, match=f"does not admit this process: .*{reason}.*; set MF_ETCD_USER"):
                call()


def test_the_password_may_be_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\n")
    assert configured() is None
    monkeypatch.setenv("MF_ETCD_USER", "member")
    monkeypatch.setenv("MF_ETCD_PASSWORD_FILE", str(file))
    assert configured() == Credentials("member", PASSWORD)
    assert PASSWORD not in repr(configured())
    monkeypatch.setenv("MF_ETCD_PASSWORD", PASSWORD)
    with pytest.raises(InvalidParam, match="MF_ETCD_PASSWORD and MF_ETCD_PASSWORD_FILE are both set") as failure:
        configured()
    assert PASSWORD not in str(failure.value)
    monkeypatch.delenv("MF_ETCD_PASSWORD")
    monkeypatch.setenv("MF_ETCD_PASSWORD_FILE", str(tmp_path / "missing"))
    with pytest.raises(InvalidParam, match="cannot be read: No such file"):
        configured()
