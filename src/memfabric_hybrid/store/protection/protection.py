"""What this process protects its stores with, and expects of those it connects to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from memfabric_hybrid.store.protection import tls_configuration, token

if TYPE_CHECKING:
    from memfabric_hybrid.store.protection.tls_identity import TlsIdentity


class Protection(NamedTuple):
    """`repr` says what there is, never what it is: this may stand in a traceback."""

    token: bytes | None = None
    tls: TlsIdentity | None = None

    @property
    def is_on(self) -> bool:
        return self.token is not None or self.tls is not None

    def __repr__(self) -> str:
        return f"Protection(token={'set' if self.token else None}, tls={self.tls})"


NONE = Protection()
ProtectionSource = Callable[[], Protection]  # asked for every connection, so that a change counts from the next one on


def configured() -> Protection:
    """As the process is set up now. InvalidParam for what cannot be used."""
    return Protection(token.configured(), tls_configuration.process_wide.identity())
