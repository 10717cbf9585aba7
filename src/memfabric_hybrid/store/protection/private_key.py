"""A private key and its passphrase: where they come from, and how they get to OpenSSL. Never shown, never on a disk.

What the program gave is kept as it was given while TLS is on, because a renewed certificate needs it again; what
`decrypt` makes of it lives as long as one call.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from memfabric_hybrid.errors import InvalidParam

Decrypt = Callable[[str], str]
MAX_FILE_BYTES = 1 << 20
# Belongs to no key that anybody has: a key that OpenSSL can read is refused beside it for being another's, one that it
# cannot read for that.
_STRANGER = b"""-----BEGIN CERTIFICATE-----
MIIBKTCBz6ADAgECAgEBMAoGCCqGSM49BAMCMB4xHDAaBgNVBAMME21lbWZhYnJp
YyBrZXkgY2hlY2swHhcNMjAwMTAxMDAwMDAwWhcNMjAwMTAyMDAwMDAwWjAeMRww
GgYDVQQDDBNtZW1mYWJyaWMga2V5IGNoZWNrMFkwEwYHKoZIzj0CAQYIKoZIzj0D
AQcDQgAEGbbfMgZMpd2hlG9G+s7Tj1kuvX3t5/ms6LfIfk6z3dRciDt0234CNybN
HyDzF/bAYU+QiAyM46dh1ooJmAoE7DAKBggqhkjOPQQDAgNJADBGAiEA+g+bQGCH
7YtDfgyO39erVR+fS/lg6RBdADziAkw6Ei8CIQD2NcTcJ2LDBY7O4N4sob2siqYc
negK1kbpBx59vxREqQ==
-----END CERTIFICATE-----
"""
_READABLE = frozenset(("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"))


class PrivateKey:
    """Of a file, or of a text. `passphrase` is passed through `decrypt`, if there are both."""

    def __init__(
        self,
        *,
        file: str = "",
        text: str = "",
        passphrase: str = "",
        decrypt: Decrypt | None = None,
        passphrase_file: str = "",
    ) -> None:
        self.file = file
        self.passphrase_file = passphrase_file
        self._text = text
        self._passphrase = passphrase
        self._decrypt = decrypt

    def __repr__(self) -> str:
        return f"PrivateKey({self.file or 'given as text'})"

    @property
    def name(self) -> str:
        return f"the private key of {self.file}" if self.file else "the private key"

    def check(self) -> None:
        """InvalidParam unless OpenSSL can read it, whosever it is."""
        scratch = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with _in_memory(_STRANGER) as stranger:
            try:
                self._load(scratch, stranger)
            except ssl.SSLError as error:
                if error.reason not in _READABLE:
                    raise self._unreadable() from None

    def load(self, context: ssl.SSLContext, certificate: str) -> None:
        """Both into the context. InvalidParam when they do not belong together."""
        try:
            self._load(context, certificate)
        except ssl.SSLError as error:
            if error.reason in _READABLE:
                raise InvalidParam(f"certificate {certificate} does not belong to {self.name}") from None
            raise self._unreadable() from None

    def material(self) -> tuple[bytes, bytes]:
        """Key and passphrase, as they are."""
        text = read_file(self.file, "private key") if self.file else self._text.encode(errors="surrogateescape")
        return text, self._plain_passphrase().encode(errors="surrogateescape")

    def _unreadable(self) -> InvalidParam:
        return InvalidParam(f"{self.name} cannot be read: it is no PEM key, or its passphrase is another")

    def _load(self, context: ssl.SSLContext, certificate: str) -> None:
        passphrase = self._plain_passphrase()
        if self.file:
            read_file(self.file, "private key")
        try:
            if self.file:
                context.load_cert_chain(certificate, self.file, passphrase)
            else:
                with _in_memory(self._text.encode(errors="surrogateescape")) as text:
                    context.load_cert_chain(certificate, text, passphrase)
        except ValueError:
            raise InvalidParam(f"the passphrase of {self.name} is longer than 1024 bytes") from None

    def _plain_passphrase(self) -> str:
        """Never None: OpenSSL would ask whoever sits at the terminal."""
        passphrase = self._passphrase
        if self.passphrase_file:
            passphrase = read_file(self.passphrase_file, "passphrase file").decode(errors="surrogateescape").strip()
        if not passphrase or self._decrypt is None:
            return passphrase
        try:
            plain = self._decrypt(passphrase)
        except Exception as error:
            # Its text may hold the passphrase; its kind does not.
            raise InvalidParam(f"the decrypt function failed for {self.name}: {type(error).__name__}") from None
        if not isinstance(plain, str):
            raise InvalidParam(f"the decrypt function returned {type(plain).__name__} for {self.name}, expected str")
        return plain


def read_file(path: str, what: str) -> bytes:
    """InvalidParam for what cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(MAX_FILE_BYTES)
    except OSError as error:
        raise InvalidParam(f"{what} {path} cannot be read: {error.strerror}") from None


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """A path, for OpenSSL takes keys from files only, to a file that no disk ever sees."""
    fd = os.memfd_create("memfabric-tls", os.MFD_CLOEXEC)
    try:
        os.write(fd, content)
        yield f"/proc/self/fd/{fd}"
    finally:
        os.ftruncate(fd, 0)
        os.close(fd)
