"""Certificates for TLS, made for a test."""

from __future__ import annotations

import datetime
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Authority:
    """An authority that signs certificates.

    Attributes:
        name: its name.
        key: its private key.
        certificate: its own certificate.
    """

    name: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def trusted(self, folder: Path) -> str:
        """Writes its certificate; returns the path."""
        path = folder / f"{self.name}.pem"
        path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        return str(path)

    def issue(self, folder: Path, name: str, *, valid: bool = True, password: bytes = b"") -> dict[str, object]:
        """Writes a certificate and its key; returns the options of a context that has both.

        Args:
            folder: where to write them.
            name: the alternative name.
            valid: whether the certificate has not expired.
            password: encrypts the key.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        alternative = x509.SubjectAlternativeName([x509.DNSName(name)])
        made = _sign(name, self.name, key, self.key, alternative, valid=valid)
        locked = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        files = {"tls_certificate": folder / f"{name}.pem", "tls_certificate_key": folder / f"{name}.key"}
        files["tls_certificate"].write_bytes(made.public_bytes(serialization.Encoding.PEM))
        files["tls_certificate_key"].touch(0o600)
        files["tls_certificate_key"].write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
        )
        return {option: str(path) for option, path in files.items()} | {"use_tls": True}


@functools.cache
def authority(name: str = "authority") -> Authority:
    """Returns an authority with a certificate of its own."""
    key = ec.generate_private_key(ec.SECP256R1())
    return Authority(name, key, _sign(name, name, key, key, x509.BasicConstraints(ca=True, path_length=None)))


def _sign(
    name: str,
    issuer: str,
    key: ec.EllipticCurvePrivateKey,
    signs: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
    *,
    valid: bool = True,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * _DAY)
        .not_valid_after(now + _DAY if valid else now - _DAY)
        .add_extension(extension, critical=False)
        .sign(signs, hashes.SHA256())
    )


def mutual(folder: Path, name: str = "peer") -> dict[str, object]:
    """Returns the options of a context with a certificate of the usual authority, which trusts only that authority."""
    return authority().issue(folder, name) | {"tls_trusted_certificates": authority().trusted(folder)}
