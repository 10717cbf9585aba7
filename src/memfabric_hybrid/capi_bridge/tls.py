"""TLS as C programs configure it, in the words of the Python interface."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import memfabric_hybrid as mf
from memfabric_hybrid.capi_bridge import c_functions
from memfabric_hybrid.errors import InvalidParam, NoResources


def refuse_for_data(paths: Sequence[str]) -> None:
    """`hcomTlsConfig`; no paths: it is off."""
    if paths:
        raise NoResources("this version has no TLS for data: turn hcomTlsConfig.tlsEnable off, or protect the network")


def use_for_store(paths: Sequence[str]) -> int:
    """`storeTlsConfig`; no paths: it is off, and what smem_set_conf_store_tls has set stays."""
    if not paths:
        return 0
    authorities, revoked, certificate, key, passphrase, _, decrypter = paths
    decrypt = c_functions.decrypting_of_library(decrypter) if decrypter else None
    items = {
        "tlsCaPath": os.path.dirname(authorities),
        "tlsCaFile": os.path.basename(authorities),
        "tlsCert": certificate,
        "tlsCrlPath": os.path.dirname(revoked),
        "tlsCrlFile": os.path.basename(revoked),
    }
    return _turn_on(items, key, passphrase, decrypt)


def use_option(texts: Sequence[str]) -> int:
    """`smem_tls_option`."""
    folder, authorities, certificate, revoked_folder, revoked, key, passphrase = texts
    items = {
        "tlsCaPath": folder,
        "tlsCaFile": authorities,
        "tlsCert": certificate,
        "tlsCrlPath": revoked_folder,
        "tlsCrlFile": revoked,
    }
    return _turn_on(items, key, passphrase, None)


def set_key(key: str, passphrase: str, decrypt: Callable[[str], str] | None) -> int:
    return mf.set_conf_store_tls_key(key, passphrase, decrypt or _as_it_is)


def _turn_on(items: dict[str, str], key: str, passphrase: str, decrypt: Callable[[str], str] | None) -> int:
    info = "; ".join(f"{name}: {value}" for name, value in items.items() if value)
    code = mf.set_conf_store_tls(True, info)
    if code != 0 or not key:
        return code
    return set_key(_content("the private key", key), _content("the passphrase", passphrase).rstrip("\n"), decrypt)


def _as_it_is(passphrase: str) -> str:
    return passphrase


def _content(what: str, path: str) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text()
    except OSError as failure:
        raise InvalidParam(f"{what} cannot be read: {failure}") from failure
