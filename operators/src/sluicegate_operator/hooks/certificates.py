"""Certificates of the bundled servers, issued by an authority of their own. Pure."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CERTIFICATE, KEY, AUTHORITY = "tls.crt", "tls.key", "ca.crt"
"""Keys of a Secret of the type kubernetes.io/tls."""

_AUTHORITY_DAYS: Final = 3650
_RENEW_BELOW: Final = 1 / 3
"""Part of its lifetime that a certificate has left when it is renewed."""
_CLOCK_SKEW: Final = dt.timedelta(minutes=5)
_BITS: Final = 2048
_LOOPBACK: Final = ipaddress.IPv4Address("127.0.0.1")


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes


def create_authority(name: str, now: dt.datetime) -> Pair:
    """Create a self-signed authority, valid for ten years."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=_BITS)
    subject = _name(f"{name}-ca")
    built = (
        _builder(subject, subject, key.public_key(), now, _AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _pair(built, key)


def issue(authority: Pair, name: str, hosts: list[str], days: int, now: dt.datetime) -> Pair:
    """Issue a certificate for a server that is also a client, as the nodes of Kafka are.

    The key is PKCS#8, the only form that Kafka reads.
    """
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = serialization.load_pem_private_key(authority.key, None)
    if not isinstance(issuer_key, rsa.RSAPrivateKey):
        raise TypeError(f"the authority has a key of the type {type(issuer_key).__name__}, not RSA")
    key = rsa.generate_private_key(public_exponent=65537, key_size=_BITS)
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    built = (
        _builder(_name(name), issuer.subject, key.public_key(), now, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(identifier, critical=False)
        .add_extension(_names(hosts), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return _pair(built, key)


def usable(certificate: bytes, authority: bytes, hosts: list[str], now: dt.datetime) -> bool:
    """Return whether a certificate is the authority's, has these names, and is not about to expire."""
    found = x509.load_pem_x509_certificate(certificate)
    issuer = x509.load_pem_x509_certificate(authority)
    try:
        found.verify_directly_issued_by(issuer)
    except (InvalidSignature, TypeError, ValueError):
        return False
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    lifetime = found.not_valid_after_utc - found.not_valid_before_utc
    remaining = found.not_valid_after_utc - now
    return set(names) == set(_names(hosts)) and remaining > lifetime * _RENEW_BELOW


def _builder(
    subject: x509.Name, issuer: x509.Name, key: rsa.RSAPublicKey, now: dt.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _names(hosts: list[str]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName(
        [
            *(x509.DNSName(host) for host in (*hosts, "localhost")),
            x509.IPAddress(_LOOPBACK),
        ]
    )


def _name(text: str) -> x509.Name:
    # X.520 limits a common name to 64 characters; clients read the alternative names instead
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _pair(certificate: x509.Certificate, key: rsa.RSAPrivateKey) -> Pair:
    pem = serialization.Encoding.PEM
    text = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(certificate.public_bytes(pem), text)
