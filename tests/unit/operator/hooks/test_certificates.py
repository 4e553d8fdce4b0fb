"""Certificates of the bundled servers, verified as a TLS client verifies them."""

from __future__ import annotations

import datetime as dt

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from sluicegate_operator.hooks.certificates import Pair, create_authority, issue, usable

NOW = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)
HOSTS = ["kafka.shop.svc", "*.kafka-headless.shop.svc"]


@pytest.fixture(scope="module")
def authority() -> Pair:
    return create_authority("kafka-tls", NOW)


@pytest.fixture(scope="module")
def issued(authority: Pair) -> Pair:
    return issue(authority, "kafka-tls", HOSTS, 300, NOW)


def verify(certificate: bytes, authority: bytes, host: str, at: dt.datetime) -> None:
    """Raise VerificationError if a client that trusts the authority would refuse the server."""
    store = Store([x509.load_pem_x509_certificate(authority)])
    verifier = PolicyBuilder().store(store).time(at).build_server_verifier(x509.DNSName(host))
    verifier.verify(x509.load_pem_x509_certificate(certificate), [])


@pytest.mark.parametrize("host", ["kafka.shop.svc", "kafka-0.kafka-headless.shop.svc", "localhost"])
def test_clients_accept_the_server_by_each_of_its_names(
    authority: Pair, issued: Pair, host: str
) -> None:
    verify(issued.certificate, authority.certificate, host, NOW)


def test_clients_refuse_another_name(authority: Pair, issued: Pair) -> None:
    with pytest.raises(VerificationError):
        verify(issued.certificate, authority.certificate, "mysql.shop.svc", NOW)


def test_the_key_has_the_form_that_kafka_reads(issued: Pair) -> None:
    assert issued.key.startswith(b"-----BEGIN PRIVATE KEY-----")


@pytest.mark.parametrize(("days", "expected"), [(0, True), (199, True), (201, False), (400, False)])
def test_a_certificate_is_renewed_in_the_last_third_of_its_lifetime(
    authority: Pair, issued: Pair, days: int, *, expected: bool
) -> None:
    later = NOW + dt.timedelta(days=days)
    assert usable(issued.certificate, authority.certificate, HOSTS, later) is expected


def test_a_renewed_certificate_is_trusted_by_clients_that_have_not_restarted(
    authority: Pair,
) -> None:
    """So servers can be restarted one by one."""
    later = NOW + dt.timedelta(days=299)
    renewed = issue(authority, "kafka-tls", HOSTS, 300, later)
    verify(renewed.certificate, authority.certificate, HOSTS[0], later + dt.timedelta(days=1))


def test_a_certificate_with_other_names_is_replaced(authority: Pair, issued: Pair) -> None:
    assert not usable(issued.certificate, authority.certificate, [*HOSTS, "new.svc"], NOW)


def test_a_certificate_of_another_authority_of_the_same_name_is_replaced(issued: Pair) -> None:
    other = create_authority("kafka-tls", NOW)
    assert not usable(issued.certificate, other.certificate, HOSTS, NOW)
