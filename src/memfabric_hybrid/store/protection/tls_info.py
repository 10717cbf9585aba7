"""The text that `set_conf_store_tls` takes: items `key: value`, separated by `;`. Pure; looks at no file."""

from __future__ import annotations

import os.path
from typing import NamedTuple

from memfabric_hybrid.errors import InvalidParam

MAX_BYTES = 10 * 1024
REQUIRED = ("tlsCaPath", "tlsCaFile", "tlsCert")
KEYS = (*REQUIRED, "tlsCrlPath", "tlsCrlFile", "tlsPk", "tlsPkPwd", "packagePath")


class TlsInfo(NamedTuple):
    ca_files: tuple[str, ...]
    crl_files: tuple[str, ...]
    certificate: str
    key_file: str  # "": the key comes from `set_conf_store_tls_key`
    key_passphrase: str  # itself, or the file that holds it


def parse(text: str) -> TlsInfo:
    """InvalidParam names the item that is wrong, never its value: one of them may be a passphrase."""
    if len(text.encode(errors="surrogateescape")) > MAX_BYTES:
        raise InvalidParam(f"tls_info has {len(text)} characters, allowed are {MAX_BYTES} bytes")
    items: dict[str, str] = {}
    for item in text.split(";"):
        if not item.strip():
            continue
        key, colon, value = (part.strip() for part in item.partition(":"))
        if not colon:
            raise InvalidParam("tls_info: an item has no colon, expected items `key: value` separated by `;`")
        if key not in KEYS:
            raise InvalidParam(f"tls_info: {key[:40]!r} is no key of it, expected some of {', '.join(KEYS)}")
        if key in items:
            raise InvalidParam(f"tls_info: {key} stands there twice")
        items[key] = value
    missing = [key for key in REQUIRED if not items.get(key)]
    if missing:
        raise InvalidParam(f"tls_info: {' and '.join(missing)} must be given")
    return TlsInfo(
        _inside(items["tlsCaPath"], items["tlsCaFile"]),
        _inside(items.get("tlsCrlPath") or items["tlsCaPath"], items.get("tlsCrlFile", "")),
        items["tlsCert"],
        items.get("tlsPk", ""),
        items.get("tlsPkPwd", ""),
    )


def _inside(folder: str, names: str) -> tuple[str, ...]:
    return tuple(os.path.join(folder, name.strip()) for name in names.split(",") if name.strip())
