"""TLS of this process: what `set_conf_store_tls`, `set_conf_store_tls_key` and the C library's paths set. Thread-safe.

What the program sets counts before what `MF_CONFIG_STORE_TLS_INFO` says. Servers and clients that use an identity go on
with its successor when it is set again. Turned off it forgets
certificates, key and passphrase; a server that runs keeps speaking TLS until it ends. Functions import what they need:
most processes never use TLS, and OpenSSL would be a third of what the package loads.
"""

from __future__ import annotations

import os.path
import threading
from typing import TYPE_CHECKING

from memfabric_hybrid import settings
from memfabric_hybrid.errors import InvalidParam
from memfabric_hybrid.settings import STORE_TLS_INFO, Setting
from memfabric_hybrid.store.protection import tls_info

if TYPE_CHECKING:
    from memfabric_hybrid.store.protection.private_key import Decrypt, PrivateKey
    from memfabric_hybrid.store.protection.tls_identity import TlsFiles, TlsIdentity


class TlsConfiguration:
    """Every `set_…` raises InvalidParam for what cannot be used; then everything is as it was."""

    def __init__(self, environment: Setting | None = None) -> None:
        """`environment` counts where the program says nothing."""
        self._setting = environment
        self._lock = threading.Lock()
        self._files: TlsFiles | None = None  # None: off
        self._key: PrivateKey | None = None  # the one that was given last
        self._identity: TlsIdentity | None = None
        self._environment: tuple[str, TlsIdentity] | None = None  # made from that text

    @property
    def is_on(self) -> bool:
        """By the program; the environment may turn it on as well."""
        return self._files is not None

    def turn_off(self) -> None:
        with self._lock:
            self._files = self._key = self._identity = None

    def set_info(self, text: str) -> None:
        """The text of `set_conf_store_tls`. Without a key in it the one of `set_key` counts, now or later."""
        self._set(*_of(text))

    def set_paths(
        self,
        ca_path: str,
        crl_path: str,
        cert_path: str,
        key_path: str,
        key_pass_path: str = "",
        package_path: str = "",
        decrypter_lib_path: str = "",
    ) -> None:
        """The fields of the C library's `smem_tls_config`; paths of authorities are files or folders, "" is none.

        `package_path` is accepted and not used, as `packagePath` of the text.
        """
        from memfabric_hybrid.store.protection.passphrase_library import decrypt_of
        from memfabric_hybrid.store.protection.private_key import PrivateKey
        from memfabric_hybrid.store.protection.tls_identity import TlsFiles

        for name, path in (("caPath", ca_path), ("certPath", cert_path), ("keyPath", key_path)):
            if not path:
                raise InvalidParam(f"TLS: {name} must be given")
        if decrypter_lib_path and not key_pass_path:
            raise InvalidParam("TLS: decrypterLibPath is given without keyPassPath, so there is nothing to decrypt")
        decrypt = decrypt_of(decrypter_lib_path) if decrypter_lib_path else None
        key = PrivateKey(file=key_path, passphrase_file=key_pass_path, decrypt=decrypt)
        self._set(TlsFiles((ca_path,), (crl_path,) if crl_path else (), cert_path), key)

    def set_key(self, text: str, passphrase: str, decrypt: Decrypt | None) -> None:
        """What `set_conf_store_tls_key` gets; it may come before the files or after them."""
        from memfabric_hybrid.store.protection.private_key import PrivateKey

        if not text.strip():
            raise InvalidParam("the private key is empty, expected the content of a PEM file")
        key = PrivateKey(text=text, passphrase=passphrase, decrypt=decrypt)
        key.check()
        with self._lock:
            if self._files is not None:
                self._identify(self._files, key)
            self._key = key

    def identity(self) -> TlsIdentity | None:
        """None: TLS is off. InvalidParam: it is on and has no key yet, or the environment turns it on and is wrong."""
        with self._lock:
            if self._files is None:
                return None if self._setting is None else self._of_environment(settings.text(self._setting))
            if self._identity is None:
                raise InvalidParam("TLS of the store is on and has no private key; set_conf_store_tls_key gives it one")
            return self._identity

    def _of_environment(self, text: str) -> TlsIdentity | None:
        """Programs turn TLS off as a matter of routine; whoever runs them may want it all the same."""
        if not text:
            self._environment = None
        elif self._environment is None or self._environment[0] != text:
            from memfabric_hybrid.store.protection.tls_identity import TlsIdentity

            try:
                files, key = _of(text)
                if key is None:
                    raise InvalidParam("tls_info: tlsPk must be given")
                self._environment = text, TlsIdentity(files, key)
            except InvalidParam as error:
                raise InvalidParam(f"{STORE_TLS_INFO.names[0]}: {error}") from None
        return None if self._environment is None else self._environment[1]

    def _set(self, files: TlsFiles, key: PrivateKey | None) -> None:
        from memfabric_hybrid.store.protection.tls_identity import check_files

        with self._lock:
            key = key or self._key
            if key is None:
                check_files(files)
            else:
                self._identify(files, key)
            self._files, self._key = files, key

    def _identify(self, files: TlsFiles, key: PrivateKey) -> None:
        from memfabric_hybrid.store.protection.tls_identity import TlsIdentity

        if self._identity is None:
            self._identity = TlsIdentity(files, key)
        else:
            self._identity.replace(files, key)


def _of(text: str) -> tuple[TlsFiles, PrivateKey | None]:
    from memfabric_hybrid.store.protection.private_key import PrivateKey
    from memfabric_hybrid.store.protection.tls_identity import TlsFiles

    info = tls_info.parse(text)
    files = TlsFiles(info.ca_files, info.crl_files, info.certificate)
    if not info.key_file:
        return files, None
    is_file = os.path.isfile(info.key_passphrase)
    key = PrivateKey(
        file=info.key_file,
        passphrase="" if is_file else info.key_passphrase,
        passphrase_file=info.key_passphrase if is_file else "",
    )
    return files, key


process_wide = TlsConfiguration(STORE_TLS_INFO)
for_data = TlsConfiguration()  # of C programs, which may give other certificates for data
