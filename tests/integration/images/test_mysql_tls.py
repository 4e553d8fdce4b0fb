"""Connections of the MySQL sink to a real MySQL with TLS, whose certificates it made itself."""

from __future__ import annotations

import logging

import pytest

from sluicegate.errors import SinkUnavailable
from sluicegate.sinks.mysql.connection import Address, connect
from tests.integration.images.mysql_image import MySQLImage
from tests.integration.mysql_fixtures import MySQL

pytestmark = [pytest.mark.integration, pytest.mark.mysql]


def cipher_of(url: str) -> str:
    with connect(Address.parse(url), timeout_s=10) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
        return str(cursor.fetchone()[1])


def test_a_server_of_the_named_authority_is_accepted(mysql_image: MySQLImage) -> None:
    ca = mysql_image.data / "ca.pem"
    assert cipher_of(f"{mysql_image.endpoint.url}?ssl-mode=VERIFY_CA&ssl-ca={ca}")


def test_a_server_with_another_name_is_refused(mysql_image: MySQLImage) -> None:
    url = f"{mysql_image.endpoint.url}?ssl-ca={mysql_image.data / 'ca.pem'}"
    with pytest.raises(SinkUnavailable, match="certificate") as error:
        cipher_of(url)
    assert "ssl-ca" in error.value.do


def test_required_tls_checks_the_server_with_the_authorities_of_the_system(
    mysql_image: MySQLImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cipher_of(mysql_image.endpoint.url)
    monkeypatch.setenv("SLUICEGATE_MYSQL_TLS", "required")
    with pytest.raises(SinkUnavailable, match=r"self.signed certificate"):
        cipher_of(mysql_image.endpoint.url)


def test_a_client_certificate_is_presented(mysql_image: MySQLImage) -> None:
    data, user = mysql_image.data, mysql_image.endpoint.user
    options = f"ssl-mode=VERIFY_CA&ssl-ca={data / 'ca.pem'}"
    certificate = f"ssl-cert={data / 'client-cert.pem'}&ssl-key={data / 'client-key.pem'}"
    with mysql_image.restorer.connect(autocommit=True) as admin, admin.cursor() as cursor:
        cursor.execute(f"ALTER USER '{user}'@'%' REQUIRE X509")
        try:
            assert cipher_of(f"{mysql_image.endpoint.url}?{options}&{certificate}")
            with pytest.raises(Exception, match="denied"):
                cipher_of(f"{mysql_image.endpoint.url}?{options}")
        finally:
            cursor.execute(f"ALTER USER '{user}'@'%' REQUIRE NONE")


def test_the_preflight_warns_of_a_binary_log_that_is_not_flushed(
    mysql_image: MySQLImage, caplog: pytest.LogCaptureFixture
) -> None:
    mysql = MySQL(mysql_image.endpoint, mysql_image.endpoint)
    table = mysql.table()
    with mysql_image.restorer.connect(autocommit=True) as admin, admin.cursor() as cursor:
        for value, warned in ((0, True), (1, False)):
            cursor.execute(f"SET GLOBAL sync_binlog = {value}")
            with caplog.at_level(logging.WARNING):
                caplog.clear()
                mysql.bind(table)
            assert ("sync_binlog is 0: a crash of the server" in caplog.text) == warned
