"""Saying once that data between hosts goes as it is, where the store is protected: who protects one may expect both."""

from __future__ import annotations

from memfabric_hybrid import logs, settings
from memfabric_hybrid.settings import STORE_TLS_INFO, STORE_TOKEN, STORE_TOKEN_FILE
from memfabric_hybrid.store.protection import tls_configuration

_log = logs.get(__name__)
_said = False


def mention(way: str) -> None:
    """Before data goes to another host, that `way`. Any thread; two that meet here may say it twice."""
    global _said
    if _said or not _is_store_protected():
        return
    _said = True
    _log.warning(
        "the store is protected, data between hosts is not: it goes %s as it is; use a network that you trust, or one "
        "that encrypts (docs/security.md)",
        way,
    )


def _is_store_protected() -> bool:
    """Whether somebody wants it; whether it works is found out elsewhere."""
    wanted = any(settings.text(setting) for setting in (STORE_TOKEN, STORE_TOKEN_FILE, STORE_TLS_INFO))
    return wanted or tls_configuration.process_wide.is_on
