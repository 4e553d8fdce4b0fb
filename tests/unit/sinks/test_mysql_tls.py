"""The TLS options of a MySQL url, and what an unchecked connection exposes."""

from __future__ import annotations

import pytest

from sluicegate.errors import SettingsInvalid
from sluicegate.sinks.mysql.connection import TLS, Address

URL = "mysql://u:secret@db.example/shop"


@pytest.fixture(autouse=True)
def _optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLUICEGATE_MYSQL_TLS", raising=False)


@pytest.mark.parametrize(
    ("options", "tls"),
    [
        ("", TLS("PREFERRED")),
        ("?ssl-ca=/ca", TLS("VERIFY_IDENTITY", "/ca")),
        ("?ssl-mode=VERIFY_IDENTITY", TLS("VERIFY_IDENTITY")),
        ("?ssl-mode=verify-ca&ssl-ca=/ca", TLS("VERIFY_CA", "/ca")),
        ("?ssl-cert=/c&ssl-key=/k", TLS("VERIFY_IDENTITY", None, "/c", "/k")),
    ],
)
def test_the_options_of_a_url(options: str, tls: TLS) -> None:
    assert Address.parse(URL + options).tls == tls


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("ssl-mode=REQUIRED", "does not check the server"),
        ("ssl-mode=off", "ssl-mode is not PREFERRED"),
        ("ssl-mode=PREFERRED&ssl-ca=/ca", "checks no certificate"),
        ("ssl-key=/k", "without ssl-cert"),
        ("tls=yes", "option tls is unknown; the options are ssl-mode, ssl-ca"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: str, message: str) -> None:
    with pytest.raises(SettingsInvalid, match=message) as error:
        Address.parse(f"{URL}?{options}")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("options", ["", "?ssl-mode=PREFERRED"])
def test_required_tls_raises_a_connection_without_checks(
    monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    monkeypatch.setenv("SLUICEGATE_MYSQL_TLS", "required")
    assert Address.parse(URL + options).tls == TLS("VERIFY_IDENTITY")


def test_required_tls_keeps_the_checks_of_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICEGATE_MYSQL_TLS", "required")
    tls = Address.parse(f"{URL}?ssl-mode=VERIFY_CA&ssl-ca=/ca").tls
    assert tls == TLS("VERIFY_CA", "/ca")


def test_a_misspelled_requirement_is_not_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICEGATE_MYSQL_TLS", "require")
    with pytest.raises(SettingsInvalid, match="'require' is unknown"):
        Address.parse(URL)


def test_a_missing_certificate_is_named() -> None:
    with pytest.raises(SettingsInvalid, match=r"cannot be read from /nowhere/ca\.crt"):
        Address.parse(f"{URL}?ssl-ca=/nowhere/ca.crt").tls.context()


@pytest.mark.parametrize(
    ("url", "cipher", "exposure"),
    [
        (URL, "", "is plain text"),
        (URL, "TLS_AES_256_GCM_SHA384", "is not checked"),
        (f"{URL}?ssl-ca=/ca", "TLS_AES_256_GCM_SHA384", ""),
        ("mysql://u:p@127.0.0.1/shop", "", ""),
        ("mysql://u:p@localhost/shop", "", ""),
    ],
)
def test_a_connection_that_is_not_checked_is_reported_off_this_machine(
    url: str, cipher: str, exposure: str
) -> None:
    said = Address.parse(url).exposure(cipher)
    assert exposure in said
    assert bool(said) == bool(exposure)
