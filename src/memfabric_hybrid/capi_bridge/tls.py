"""TLS as C programs configure it, in the words of the Python interface."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import memfabric_hybrid as mf
from memfabric_hybrid.store.protection import tls_configuration


def use_for_data(paths: Sequence[str]) -> None:
    """`hcomTlsConfig`; no paths: data is protected as the store is."""
    if paths:
        tls_configuration.for_data.set_paths(*paths)


def use_for_store(paths: Sequence[str]) -> None:
    """`storeTlsConfig`; no paths: it is off, and what smem_set_conf_store_tls has set stays."""
    if paths:
        tls_configuration.process_wide.set_paths(*paths)


def use_option(texts: Sequence[str]) -> int:
    """`smem_tls_option`."""
    names = ("tlsCaPath", "tlsCaFile", "tlsCert", "tlsCrlPath", "tlsCrlFile", "tlsPk", "tlsPkPwd")
    info = "; ".join(f"{name}: {text}" for name, text in zip(names, texts, strict=True) if text)
    return mf.set_conf_store_tls(True, info)


def set_key(key: str, passphrase: str, decrypt: Callable[[str], str] | None) -> int:
    return mf.set_conf_store_tls_key(key, passphrase, decrypt)
