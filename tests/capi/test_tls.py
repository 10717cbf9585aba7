"""C members of a store that speaks TLS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import memfabric_hybrid as mf
from support.c_programs import run
from support.certificates import Authority, Issued

Compile = Callable[..., Path]

pytestmark = pytest.mark.plain_store("it turns TLS on itself")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def tls_store(authority: Authority, store_url: str) -> Iterator[str]:
    """In this process, for members that show a certificate of the authority."""
    assert mf.set_conf_store_tls(True, authority.info(authority.issue("store"))) == 0, mf.get_last_err_msg()
    assert mf.create_config_store(store_url) == 0, mf.get_last_err_msg()
    yield store_url
    mf.uninitialize()
    assert mf.set_conf_store_tls(False, "") == 0


def member(compiled: Compile, url: str, how: str, authority: Authority, issued: Issued) -> tuple[int, str]:
    said = run(compiled("tls_member.c"), url, how, authority.file, issued.certificate, issued.key)
    code, _, sentence = said.strip().partition(" ")
    return int(code), sentence


@pytest.mark.parametrize("how", ["struct", "option"])
def test_member_with_a_certificate_comes_in(compiled: Compile, tls_store: str, authority: Authority, how: str) -> None:
    assert member(compiled, tls_store, how, authority, authority.issue("member")) == (0, "")


@pytest.mark.parametrize("how", ["struct", "option"])
def test_member_of_another_authority_is_told_why(compiled: Compile, tls_store: str, tmp_path: Path, how: str) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other", "other")
    code, sentence = member(compiled, tls_store, how, other, other.issue("stranger"))
    assert code == -2014
    assert "certificate" in sentence


def test_member_without_tls_is_told_why(compiled: Compile, tls_store: str, authority: Authority) -> None:
    code, sentence = member(compiled, tls_store, "none", authority, authority.issue("member"))
    assert code == -2014
    assert "TLS" in sentence


def test_key_that_cannot_be_read_is_refused_at_the_call(
    compiled: Compile, tls_store: str, authority: Authority
) -> None:
    issued = authority.issue("member")
    issued.key.write_text("no key")
    for how in ("struct", "option"):
        code, sentence = member(compiled, tls_store, how, authority, issued)
        assert code == -2000
        assert str(issued.key) in sentence


def test_certificates_for_data(compiled: Compile, authority: Authority, tmp_path: Path) -> None:
    """`hcomTlsConfig`: with them an engine of another language is reached, and with a stranger's it is not."""
    memory = np.zeros(64, np.uint8)
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other", "other")
    assert mf.set_conf_store_tls(True, authority.info(authority.issue("target"))) == 0, mf.get_last_err_msg()
    engine = mf.TransferEngine()
    try:
        assert engine.initialize(None, "127.0.0.1:0", "Decode", 0) == 0, mf.get_last_err_msg()
        assert engine.register(memory) == 0
        for whose, code, words in ((authority, "0", ""), (stranger, "-2014", "its certificate is not trusted")):
            issued = whose.issue("initiator")
            program = compiled("tls_transfer.c")
            said = run(program, engine.session_id, memory.ctypes.data, whose.file, issued.certificate, issued.key)
            assert said.startswith(f"{code} ")
            assert words in said
        assert memory.tobytes().startswith(b"written by C with TLS\0")
    finally:
        engine.destroy()
        assert mf.set_conf_store_tls(False, "") == 0
