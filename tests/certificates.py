"""Creates a certificate for 127.0.0.1 and the CA that signed it, for TLS servers of the tests."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey as Key
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certificate:
    """A certificate, its private key and the CA's certificate, in PEM; valid for one day."""

    public: bytes
    private: bytes
    authority: bytes


def write_certificate(folder: Path, name: str) -> Path:
    """Write tls.crt, tls.key and ca.crt, the files of a kubernetes.io/tls Secret; return the folder."""
    issued = certificate(name)
    folder.mkdir(parents=True)
    for file, text in (
        ("tls.crt", issued.public),
        ("tls.key", issued.private),
        ("ca.crt", issued.authority),
    ):
        (folder / file).write_bytes(text)
    return folder


def certificate(name: str) -> Certificate:
    """Create a certificate for 127.0.0.1, signed by a new CA.

    The CA is a separate certificate, because rustls rejects a CA as a server's certificate.
    """
    key, ca_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca_builder = _builder(f"authority of {name}", f"authority of {name}", ca_key).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    builder = _builder(name, f"authority of {name}", key).add_extension(
        x509.SubjectAlternativeName([address]), critical=False
    )
    return Certificate(
        _sign(builder, ca_key),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        _sign(ca_builder, ca_key),
    )


def _builder(subject: str, issuer: str, key: Key) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_common_name(subject))
        .issuer_name(_common_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _sign(builder: x509.CertificateBuilder, key: Key) -> bytes:
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
