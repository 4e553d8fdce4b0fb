"""Spark's stage-and-merge upserts what Sluicegate's sink does."""

from __future__ import annotations

from infra.local_services import MySQLEndpoint
from tests.bench.order import Order
from tests.bench.plan import ADD, SPARK_JDBC, UPSERT
from tests.bench.stage_and_merge import merge_statement, url


def _order(kind: str) -> Order:
    return Order(kind, SPARK_JDBC, "host:1", "in", "", "", "t", 10, "available-now")


def test_staged_rows_replace_those_of_the_same_key() -> None:
    assert merge_statement(_order(UPSERT)) == (
        "INSERT INTO `t` (id, amount, quantity) SELECT id, amount, quantity FROM `t_staging` "
        "ON DUPLICATE KEY UPDATE amount = VALUES(amount), quantity = VALUES(quantity)"
    )


def test_staged_numbers_are_added() -> None:
    assert "amount = `t`.amount + VALUES(amount)" in merge_statement(_order(ADD))


def test_the_url_has_no_password() -> None:
    mysql = MySQLEndpoint("h", 3306, "u", "secret", "d")
    assert url(mysql).startswith("jdbc:mysql://h:3306/d?")
    assert "secret" not in url(mysql)
