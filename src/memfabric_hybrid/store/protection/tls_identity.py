"""Certificates and key of this process, as contexts of OpenSSL; made anew when their files have changed.

Any thread may ask for a context. A change that cannot be used leaves the contexts as they were and is logged once.
"""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Sequence
from typing import NamedTuple

from memfabric_hybrid import _native, logs
from memfabric_hybrid.errors import FabricError, InvalidParam
from memfabric_hybrid.store.protection.private_key import PrivateKey, read_file

_log = logs.get(__name__)


class TlsFiles(NamedTuple):
    """CA and CRL entries may be folders, which stand for all files in them."""

    ca_files: tuple[str, ...]
    crl_files: tuple[str, ...]
    certificate: str


class TlsContexts(NamedTuple):
    server: ssl.SSLContext
    client: ssl.SSLContext


Stamp = tuple[tuple[str, int, int, int] | tuple[str, str], ...]  # of all files, as they are now


class TlsIdentity:
    """InvalidParam for what cannot be used, here and in `replace`."""

    def __init__(self, files: TlsFiles, key: PrivateKey) -> None:
        self._lock = threading.Lock()
        self._made_from = _stamp(files, key)
        self._contexts = _contexts(files, key)
        self._files, self._key = files, key
        self._core: _native.TlsIdentity | None = None  # of connections that the core makes, once it has some

    def __repr__(self) -> str:
        return f"TlsIdentity({self._files.certificate})"

    def replace(self, files: TlsFiles, key: PrivateKey) -> None:
        """From the next connection on; those there are go on as they are."""
        stamp, contexts = _stamp(files, key), _contexts(files, key)
        with self._lock:
            if self._core is not None:
                self._core.renew(*_material(files, key))
            self._files, self._key, self._made_from, self._contexts = files, key, stamp, contexts

    def contexts(self) -> TlsContexts:
        with self._lock:
            self._look()
            return self._contexts

    def for_core(self) -> _native.TlsIdentity:
        """The same for connections that the core makes. Always this one: it changes with our files."""
        with self._lock:
            self._look()
            if self._core is None:
                self._core = _native.TlsIdentity(*_material(self._files, self._key))
            return self._core

    def look(self) -> None:
        """Whether the files have changed."""
        with self._lock:
            self._look()

    def _look(self) -> None:
        now = _stamp(self._files, self._key)
        if now != self._made_from:
            self._made_from = now
            self._renew()

    def _renew(self) -> None:
        try:
            contexts = _contexts(self._files, self._key)
            if self._core is not None:
                self._core.renew(*_material(self._files, self._key))
            self._contexts = contexts
        except FabricError as failure:
            _log.warning("TLS: changed files cannot be used, the old ones still serve: %s", failure)
        else:
            _log.info("TLS: certificate %s or its authorities have changed and are read again", self._files.certificate)


def check_files(files: TlsFiles) -> None:
    """InvalidParam for what cannot be used, before there is a key."""
    _load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), files)
    _check_certificate(files.certificate)


def _material(files: TlsFiles, key: PrivateKey) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """As the core wants it."""
    authorities = b"\n".join(read_file(path, "CA file") for path in _expanded(files.ca_files))
    revocations = b"\n".join(read_file(path, "CRL file") for path in _expanded(files.crl_files))
    return authorities, revocations, read_file(files.certificate, "certificate"), *key.material()


def _stamp(files: TlsFiles, key: PrivateKey) -> Stamp:
    paths = (*files.ca_files, *files.crl_files, files.certificate, key.file, key.passphrase_file)
    return tuple(_stamp_of(path) for path in _expanded([path for path in paths if path]))


def _stamp_of(path: str) -> tuple[str, int, int, int] | tuple[str, str]:
    try:
        status = os.stat(path)
    except OSError as error:
        return path, str(error.strerror)
    return path, status.st_mtime_ns, status.st_ino, status.st_size


def _expanded(paths: Sequence[str]) -> list[str]:
    expanded: list[str] = []
    for path in paths:
        if os.path.isdir(path):
            inside = (os.path.join(path, name) for name in sorted(os.listdir(path)))
            expanded += [name for name in inside if os.path.isfile(name)]
        else:
            expanded.append(path)
    return expanded


def _contexts(files: TlsFiles, key: PrivateKey) -> TlsContexts:
    return TlsContexts(_context(ssl.PROTOCOL_TLS_SERVER, files, key), _context(ssl.PROTOCOL_TLS_CLIENT, files, key))


def _context(protocol: int, files: TlsFiles, key: PrivateKey) -> ssl.SSLContext:
    """TLS 1.3, a certificate asked of the other side, nothing trusted but what is given here."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # a store's address may change; whoever has a certificate of the cluster is in it
    context.verify_mode = ssl.CERT_REQUIRED
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # every connection shows its certificate: one revoked meanwhile is not resumed
    _load_authorities(context, files)
    _check_certificate(files.certificate)
    key.load(context, files.certificate)
    return context


def _check_certificate(path: str) -> None:
    read_file(path, "certificate")
    scratch = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _load(scratch, "certificate", path)
    if not scratch.cert_store_stats()["x509"]:
        raise InvalidParam(f"certificate {path} holds no certificate in PEM form")


def _load_authorities(context: ssl.SSLContext, files: TlsFiles) -> None:
    for path in _expanded(files.ca_files):
        _load(context, "CA file", path)
    if not context.cert_store_stats()["x509"]:
        raise InvalidParam(f"CA files {', '.join(files.ca_files)} hold no certificate of an authority")
    for path in _expanded(files.crl_files):
        _load(context, "CRL file", path)
    if files.crl_files:
        if not context.cert_store_stats()["crl"]:
            raise InvalidParam(f"CRL files {', '.join(files.crl_files)} hold no list of revoked certificates")
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_CHAIN


def _load(context: ssl.SSLContext, kind: str, path: str) -> None:
    read_file(path, kind)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        why = (error.reason or str(error)).lower().replace("_", " ")
        raise InvalidParam(f"{kind} {path} cannot be used: {why}") from None
