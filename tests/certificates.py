"""A certificate for 127.0.0.1 and the authority that signed it, for servers of tests on loopback."""

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
    """A certificate of a day, its key, and the certificate of who signed it; in PEM."""

    public: bytes
    private: bytes
    authority: bytes


def write_certificate(folder: Path, name: str) -> Path:
    """Write tls.crt, tls.key and ca.crt as a kubernetes.io/tls Secret is mounted; return the folder."""
    made = certificate(name)
    folder.mkdir(parents=True)
    for file, text in (
        ("tls.crt", made.public),
        ("tls.key", made.private),
        ("ca.crt", made.authority),
    ):
        (folder / file).write_bytes(text)
    return folder


def certificate(name: str) -> Certificate:
    """Make a certificate of 127.0.0.1.

    Its authority is another certificate: rustls refuses one that signs as a server's own.
    """
    key, its_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _builder(f"authority of {name}", f"authority of {name}", its_key).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = _builder(name, f"authority of {name}", key).add_extension(
        x509.SubjectAlternativeName([address]), critical=False
    )
    return Certificate(
        _signed(made, its_key),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        _signed(authority, its_key),
    )


def _builder(subject: str, issuer: str, key: Key) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_named(subject))
        .issuer_name(_named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _signed(builder: x509.CertificateBuilder, key: Key) -> bytes:
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
