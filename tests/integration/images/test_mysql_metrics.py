"""The exporter of the image mysql, with the arguments of the chart and a real MySQL."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from infra.local_services.process import Server, accepts, free_ports
from tests.integration.charts.promql import scraped, server_queries, unknown
from tests.integration.images.mysql_image import MySQLImage

pytestmark = [pytest.mark.integration, pytest.mark.mysql]


class Exporter(Server):
    """mysqld_exporter as its container starts it."""

    NAME = "mysqld_exporter of the image"
    LOG = "exporter.log"
    START_TIMEOUT_S = 30.0

    def __init__(self, folder: Path, image: MySQLImage, *options: str) -> None:
        super().__init__(folder)
        self._image, self._options = image, options
        (self._port,) = free_ports(1)

    def scrape(self) -> str:
        """Return the metrics as Prometheus reads them."""
        url = f"http://127.0.0.1:{self._port}/metrics"
        with urllib.request.urlopen(url, timeout=30) as answer:
            text: str = answer.read().decode()
        return text

    def _prepare(self) -> list[str]:
        account = self._image.metrics_reader
        return [
            *self._image.inside({"MYSQLD_EXPORTER_PASSWORD": account.password}),
            "/usr/bin/mysqld_exporter",
            f"--mysqld.address=127.0.0.1:{account.port}",
            f"--mysqld.username={account.user}",
            *self._options,
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]

    def _ready(self) -> bool:
        return accepts(self._port)


@pytest.fixture(params=[(), ("--tls.insecure-skip-verify",)], ids=["plain", "TLS"])
def exporter(
    request: pytest.FixtureRequest, mysql_image: MySQLImage, tmp_path: Path
) -> Iterator[Exporter]:
    server = Exporter(tmp_path, mysql_image, *request.param)
    server.start()
    yield server
    server.stop()


def test_the_exporter_serves_what_the_page_queries(exporter: Exporter) -> None:
    text = exporter.scrape()
    series = scraped(text)
    queries = server_queries("mysql_")
    assert len(queries) > 1
    assert [found for query in queries for found in unknown(query, series)] == []
    assert "\nmysql_up 1\n" in text
    failed = [line for line in text.splitlines() if "collector_success" in line and line[-1] == "0"]
    assert failed == []


def test_the_account_of_the_exporter_reads_no_table(mysql_image: MySQLImage) -> None:
    with mysql_image.metrics_reader.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW GRANTS")
        (grants,) = cursor.fetchall()
        assert str(grants[0]).startswith("GRANT PROCESS, REPLICATION CLIENT ON *.* TO")
        with pytest.raises(pymysql.OperationalError, match="denied"):
            cursor.execute("SELECT * FROM mysql.user")


def test_the_account_of_the_exporter_logs_in_from_its_pod_only(mysql_image: MySQLImage) -> None:
    with mysql_image.restorer.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT host FROM mysql.user WHERE user = 'sluicegate-metrics'")
        assert cursor.fetchall() == (("127.0.0.1",),)
