"""Certificates for tests: an authority, what it issues, and what it revokes. Nothing here is ever valid elsewhere."""

from __future__ import annotations

import datetime
import functools
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NOW = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
DAY = datetime.timedelta(days=1)


class Issued(NamedTuple):
    """A member's certificate and key, as files."""

    certificate: Path
    key: Path
    serial: int

    @property
    def key_text(self) -> str:
        return self.key.read_text()


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _key_pem(key: ec.EllipticCurvePrivateKey, passphrase: str) -> bytes:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase:
        encryption = serialization.BestAvailableEncryption(passphrase.encode())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def private_key() -> str:
    """As the content of a file; nobody's."""
    return _key_pem(_key("nobody"), "").decode()


@functools.cache
def _key(name: str) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


class Authority:
    """Its files are in `folder`: `<name>.pem`, `<name>.crl`, and those of what it issues."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        self.name = name
        self._key = _key(f"authority {name} {folder}")
        self._revoked: list[int] = []
        self.file = folder / f"{name}.pem"
        self.crl = folder / f"{name}.crl"
        builder = self._builder(name, self._key, NOW - DAY, NOW + 30 * DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.file.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        self.revoke()

    def _builder(
        self, subject: str, key: ec.EllipticCurvePrivateKey, begin: datetime.datetime, end: datetime.datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(_name(subject))
            .issuer_name(_name(self.name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(end)
        )

    def issue(
        self,
        name: str,
        *,
        begin: datetime.datetime = NOW - DAY,
        end: datetime.datetime = NOW + 30 * DAY,
        passphrase: str = "",
        client_only: bool = False,
        folder: Path | None = None,
    ) -> Issued:
        key = _key(f"member {name} {self.folder}")
        builder = self._builder(name, key, begin, end)
        if client_only:
            builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        place = folder or self.folder
        issued = Issued(place / f"{name}.pem", place / f"{name}.key", certificate.serial_number)
        issued.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        issued.key.write_bytes(_key_pem(key, passphrase))
        return issued

    def revoke(self, *members: Issued) -> None:
        """Writes the list anew."""
        self._revoked += [member.serial for member in members]
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(_name(self.name))
            .last_update(NOW - DAY)
            .next_update(NOW + 30 * DAY)
        )
        for serial in self._revoked:
            revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(NOW - DAY).build()
            builder = builder.add_revoked_certificate(revoked)
        crl = builder.sign(self._key, hashes.SHA256())
        self.crl.write_bytes(crl.public_bytes(serialization.Encoding.PEM))

    def info(self, member: Issued, *, with_key: bool = True, with_crl: bool = False) -> str:
        """The text for `set_conf_store_tls`."""
        items = [f"tlsCaPath: {self.folder}", f"tlsCaFile: {self.file.name}", f"tlsCert: {member.certificate}"]
        if with_key:
            items.append(f"tlsPk: {member.key}")
        if with_crl:
            items += [f"tlsCrlPath: {self.folder}", f"tlsCrlFile: {self.crl.name}"]
        return "; ".join(items)
