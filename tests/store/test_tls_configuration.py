"""What the program, the environment and the C library's paths say about TLS, before anybody connects."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid.errors import InvalidParam
from memfabric_hybrid.store.protection import protection as protections
from memfabric_hybrid.store.protection import tls_info
from memfabric_hybrid.store.protection.tls_configuration import TlsConfiguration, process_wide
from store.said import said
from support.certificates import Authority

PASSPHRASE = "a passphrase of the test suite"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def configuration() -> TlsConfiguration:
    return TlsConfiguration()


@pytest.fixture
def process() -> Iterator[TlsConfiguration]:
    yield process_wide
    process_wide.turn_off()


def test_the_text() -> None:
    text = (
        "tlsCaPath: /ca ;tlsCaFile: a.pem, b.pem; tlsCert:/c:d.pem;;packagePath:x; tlsCrlPath: /crl;tlsCrlFile: l.crl;"
    )
    info = tls_info.parse(text)
    assert info.ca_files == ("/ca/a.pem", "/ca/b.pem")
    assert info.crl_files == ("/crl/l.crl",)
    assert (info.certificate, info.key_file, info.key_passphrase) == ("/c:d.pem", "", "")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "tlsCaPath and tlsCaFile and tlsCert must be given"),
        ("tlsCaPath: /ca; tlsCaFile: a", "tlsCert must be given"),
        ("tlsCaPath /ca", "an item has no colon"),
        ("tlsCaPaths: /ca", "'tlsCaPaths' is no key of it"),
        ("tlsCaPath: /ca; tlsCaPath: /ca", "tlsCaPath stands there twice"),
        ("tlsCaPath: " + "x" * 10240, "allowed are 10240 bytes"),
    ],
)
def test_the_text_names_what_is_wrong(text: str, wrong: str) -> None:
    with pytest.raises(InvalidParam, match=wrong):
        tls_info.parse(text)


def test_key_before_files_and_files_before_key(authority: Authority, configuration: TlsConfiguration) -> None:
    member = authority.issue("member", passphrase=PASSPHRASE)
    configuration.set_key(member.key_text, PASSPHRASE, None)
    assert configuration.identity() is None, "TLS is not on yet"
    configuration.set_info(authority.info(member, with_key=False))
    assert configuration.identity() is not None
    other = TlsConfiguration()
    other.set_info(authority.info(member, with_key=False))
    with pytest.raises(InvalidParam, match="is on and has no private key; set_conf_store_tls_key"):
        other.identity()
    other.set_key(member.key_text, PASSPHRASE[::-1], lambda cipher: cipher[::-1])
    assert other.identity() is not None


def test_what_is_wrong_fails_at_the_call_and_changes_nothing(
    authority: Authority, configuration: TlsConfiguration, tmp_path: Path
) -> None:
    member, other = authority.issue("member"), authority.issue("other")
    locked = authority.issue("locked", passphrase=PASSPHRASE)
    configuration.set_info(authority.info(member))
    before = configuration.identity()
    good = authority.info(member)
    garbage = tmp_path / "garbage"
    garbage.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    for wrong, sentence in (
        (good.replace("ca.pem", "none.pem"), "CA file .*none.pem cannot be read: No such file"),
        (good.replace("ca.pem", "garbage"), "CA file .*garbage cannot be used"),
        (good.replace("tlsCert: ", "tlsCert: /nowhere"), "certificate /nowhere.* cannot be read"),
        (good.replace(str(member.certificate), str(garbage)), "certificate .*garbage cannot be used"),
        (good.replace(str(member.key), str(other.key)), "certificate .*member.pem does not belong to the private key"),
        (good.replace(str(member.key), str(locked.key)), "private key of .*locked.key cannot be read"),
        (good.replace(str(member.key), "/nowhere"), "private key /nowhere cannot be read: No such file"),
        (good + "; tlsCrlFile: none.crl", "CRL file .*none.crl cannot be read"),
        (good + "; tlsCrlFile: ca.pem", "CRL files .*ca.pem hold no list of revoked certificates"),
    ):
        with pytest.raises(InvalidParam, match=sentence):
            configuration.set_info(wrong)
    with pytest.raises(InvalidParam, match="does not belong to the private key"):
        configuration.set_key(other.key_text, "", None)
    with pytest.raises(InvalidParam, match="the private key is empty"):
        configuration.set_key("", "", None)
    for passphrase, decrypt in (("wrong", None), ("", None), (PASSPHRASE, lambda cipher: "wrong")):
        with pytest.raises(InvalidParam, match="no PEM key, or its passphrase is another"):
            configuration.set_key(locked.key_text, passphrase, decrypt)
    assert configuration.identity() is before
    assert before is not None
    before.contexts()


def test_a_decrypt_function_that_fails_does_not_tell_the_passphrase(
    authority: Authority, process: TlsConfiguration
) -> None:
    key = authority.issue("locked", passphrase=PASSPHRASE).key_text

    def fails(cipher: str) -> str:
        raise RuntimeError(f"cannot decrypt {cipher}")

    with said() as lines:
        assert mf.set_conf_store_tls_key(key, PASSPHRASE, fails) == -2000
        assert mf.set_conf_store_tls_key(key, PASSPHRASE, lambda cipher: 5) == -2000  # type: ignore[arg-type,return-value]
        assert mf.set_conf_store_tls_key(key, "x" * 2000, None) == -2000
        assert "longer than 1024 bytes" in mf.get_and_clear_last_err_msg()
        assert mf.set_conf_store_tls(True, f"tlsPkPwd: {PASSPHRASE}; what: {PASSPHRASE}") == -2000
        assert PASSPHRASE not in mf.get_and_clear_last_err_msg()
    assert lines
    assert not any(PASSPHRASE in line or "PRIVATE KEY" in line for line in lines)


def test_the_calls_of_the_interface(authority: Authority, process: TlsConfiguration) -> None:
    member = authority.issue("member", passphrase=PASSPHRASE)
    assert mf.set_conf_store_tls_key(member.key_text, PASSPHRASE, lambda cipher: cipher) == 0
    assert mf.set_conf_store_tls(True, authority.info(member, with_key=False, with_crl=True)) == 0
    tls = protections.configured().tls
    assert tls is not None
    assert PASSPHRASE not in repr(protections.configured())
    assert mf.set_conf_store_tls(False, "") == 0
    assert protections.configured().tls is None
    assert mf.set_conf_store_tls(True, authority.info(member, with_key=False)) == 0, "the key is forgotten as well"
    with pytest.raises(InvalidParam, match="has no private key"):
        protections.configured()
    with pytest.raises(TypeError):
        mf.set_conf_store_tls_key(member.key_text, PASSPHRASE, "no function")  # type: ignore[arg-type]


def test_the_environment_turns_it_on_for_programs_that_do_not_mind(
    authority: Authority, process: TlsConfiguration, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = authority.issue("member")
    monkeypatch.setenv("MF_CONFIG_STORE_TLS_INFO", authority.info(member))
    first = protections.configured().tls
    assert first is not None
    assert mf.set_conf_store_tls(False, "") == 0, "as programs do by default"
    assert protections.configured().tls is first
    assert mf.set_conf_store_tls(True, authority.info(member)) == 0
    assert protections.configured().tls is not first, "what the program gives counts before"
    assert mf.set_conf_store_tls(False, "") == 0
    monkeypatch.setenv("MF_CONFIG_STORE_TLS_INFO", authority.info(member, with_key=False))
    with pytest.raises(InvalidParam, match="MF_CONFIG_STORE_TLS_INFO: tls_info: tlsPk must be given"):
        protections.configured()


def test_passphrases_in_files(authority: Authority, configuration: TlsConfiguration, tmp_path: Path) -> None:
    member = authority.issue("member", passphrase=PASSPHRASE)
    file = tmp_path / "passphrase"
    file.write_text(PASSPHRASE + "\n")
    configuration.set_info(authority.info(member) + f"; tlsPkPwd: {file}")
    assert configuration.identity() is not None
    configuration.set_info(authority.info(member) + f"; tlsPkPwd: {PASSPHRASE}")


DECRYPTER = r"""
#include <stddef.h>
#include <string.h>
int DecryptPassword(const char *cipher, size_t cipherLen, char *plain, size_t *plainLen) {
    if (*plainLen < cipherLen || memchr(cipher, '!', cipherLen)) return 7;
    for (size_t i = 0; i < cipherLen; ++i) plain[i] = cipher[cipherLen - 1 - i];
    *plainLen = cipherLen;
    return 0;
}
"""


def test_the_paths_of_the_c_library(authority: Authority, configuration: TlsConfiguration, tmp_path: Path) -> None:
    """Authorities are files or folders; the passphrase's file may be encrypted."""
    member = authority.issue("member", passphrase=PASSPHRASE)
    (tmp_path / "decrypter.c").write_text(DECRYPTER)
    library = tmp_path / "decrypter.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "decrypter.c")], check=True)
    (tmp_path / "cas").mkdir()
    (tmp_path / "cas" / "ca.pem").write_bytes(authority.file.read_bytes())
    secret = tmp_path / "secret"
    paths = [str(authority.crl), str(member.certificate), str(member.key), str(secret), "", str(library)]
    secret.write_text(PASSPHRASE[::-1])
    for authorities in (authority.file, tmp_path / "cas"):
        configuration.set_paths(str(authorities), *paths)
        assert configuration.identity() is not None
    secret.write_text("!")
    with pytest.raises(InvalidParam, match=r"the decrypt function failed .*: InvalidParam"):
        configuration.set_paths(str(authority.file), *paths)
    with pytest.raises(InvalidParam, match="cannot be loaded"):
        configuration.set_paths(str(authority.file), *paths[:-1], str(tmp_path / "none.so"))
    with pytest.raises(InvalidParam, match="exports no DecryptPassword"):
        configuration.set_paths(str(authority.file), *paths[:-1], "libc.so.6")
    with pytest.raises(InvalidParam, match="keyPath must be given"):
        configuration.set_paths(str(authority.file), "", str(member.certificate), "")
    with pytest.raises(InvalidParam, match="without keyPassPath"):
        configuration.set_paths(str(authority.file), "", str(member.certificate), str(member.key), "", "", str(library))


def test_who_has_no_tls_does_not_load_it() -> None:
    code = "import sys, memfabric_hybrid.store.client.client; print('ssl' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
