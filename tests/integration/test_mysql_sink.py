"""Rule 12, and rule 11 in the MySQL sink, on a real server."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pymysql
import pytest

from infra.local_services import Services
from sluicegate.errors import (
    AccessDenied,
    Fenced,
    MarkerMismatch,
    PreflightFailed,
    SinkRegressed,
    SinkRejected,
    SinkUnavailable,
    SluicegateError,
)
from sluicegate.protocol.markers import NO_MARKER, Marker, Verdict
from sluicegate.sinks.contract import Receipt
from sluicegate.sinks.mysql import MySQLSink
from sluicegate.sinks.mysql.connection import SQL_MODE, Address, connect, prepare
from tests.integration.mysql_fixtures import HITS, HITS_TABLE, MySQL, hits, hook_at
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.mysql]

BEFORE_COMMIT = ("apply-begun", "apply-written", "before-commit")
KEYLESS: dict[str, Any] = {"keys": (), "on_conflict": "error"}


@pytest.fixture
def mysql(services: Services) -> MySQL:
    return MySQL.of(services)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=4) as threads:
        yield threads


# --- rule 12: the marker row -----------------------------------------------------------------


def test_rule_12_two_appliers_on_a_missing_marker_row_apply_once(
    mysql: MySQL, pool: ThreadPoolExecutor
) -> None:
    table = mysql.table("ip VARCHAR(20), hits BIGINT")  # no key that would stop a repeat
    bound = mysql.bind(table, **KEYLESS)

    def wait_for_other() -> None:
        wait_until(lambda: mysql.sessions("%sluicegate_markers%"), seconds=20)

    def apply() -> Verdict:
        decision = mysql.decision(0, hook_at("apply-begun", wait_for_other))
        return bound.open(0).apply(decision, [hits(a=1)]).verdict

    outcomes = [future.result(30) for future in [pool.submit(apply), pool.submit(apply)]]
    assert sorted(verdict.value for verdict in outcomes) == ["apply", "skip"]
    assert mysql.rows(table) == [("a", 1)]


def test_rule_12_a_marker_is_seeded_only_before_the_first_epoch(mysql: MySQL) -> None:
    bound = mysql.bind(mysql.table())
    with pytest.raises(MarkerMismatch, match="absent"):
        bound.open(0).apply(mysql.decision(5), [hits(a=1)])
    assert mysql.markers() == []


def test_rule_12_the_marker_advances_only_from_prev(mysql: MySQL) -> None:
    table = mysql.table()
    writer = mysql.bind(table).open(0)

    def change_marker() -> None:
        assert writer._connection is not None
        with writer._connection.cursor() as cursor:
            cursor.execute(
                "UPDATE sluicegate_markers SET epoch = 7 WHERE lineage = %s", (mysql.lineage,)
            )

    with pytest.raises(MarkerMismatch, match="changed 0 rows"):
        writer.apply(mysql.decision(0, hook_at("apply-written", change_marker)), [hits(a=1)])
    assert (mysql.rows(table), mysql.markers()) == ([], [(0, -1, "")])


def test_rule_12_marker_and_rows_become_visible_together(mysql: MySQL) -> None:
    table = mysql.table()
    observed: list[object] = []

    def observe() -> None:
        observed.append((mysql.rows(table), mysql.markers()))

    mysql.bind(table).open(0).apply(
        mysql.decision(0, hook_at("before-commit", observe)), [hits(a=1)]
    )
    assert observed == [([], [(0, -1, "")])]
    assert (mysql.rows(table), mysql.markers()) == ([("a", 1)], [(0, 0, "attempt-0")])


# --- the connection --------------------------------------------------------------------------


def test_required_tls_refuses_a_server_without_it(
    mysql: MySQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver alone would send the login and the rows in plain text."""
    monkeypatch.setenv("SLUICEGATE_MYSQL_TLS", "required")
    with pytest.raises(AccessDenied, match="SSL is required but the server") as error:
        connect(Address.parse(mysql.url()), timeout_s=7)
    assert "enable TLS on the server" in error.value.do


# --- rule 12: any error rolls everything back ------------------------------------------------


def test_rule_12_a_lock_timeout_does_not_half_commit(mysql: MySQL) -> None:
    table = mysql.table()
    mysql.execute(f"INSERT INTO {table} VALUES ('b', 100)")
    writer = mysql.bind(table, apply_timeout_s=2, statement_rows=1).open(0)
    with mysql.server.connect() as holder, holder.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} WHERE ip = 'b' FOR UPDATE")
        with pytest.raises(SinkUnavailable, match=r"writing rows.*1205"):
            writer.apply(mysql.decision(0), [hits(a=1, b=2, c=3)])
        assert mysql.rows(table) == [("b", 100)]
    assert writer.apply(mysql.decision(0), [hits(a=1, b=2, c=3)]).verdict is Verdict.APPLY
    assert mysql.rows(table) == [("a", 1), ("b", 2), ("c", 3)]


def test_rule_12_a_refused_row_rolls_back_the_statements_before_it(mysql: MySQL) -> None:
    table = mysql.table()
    writer = mysql.bind(table, on_conflict="error", statement_rows=1).open(0)
    with pytest.raises(SinkRejected, match=r"Duplicate entry.*1062"):
        writer.apply(mysql.decision(0), [hits(a=1, b=2), hits(a=3)])
    assert (mysql.rows(table), mysql.markers()) == ([], [(0, -1, "")])


def test_rule_12_an_error_from_the_rows_rolls_back_and_is_raised_unchanged(mysql: MySQL) -> None:
    table = mysql.table()

    def rows() -> Iterator[pa.RecordBatch]:
        yield hits(a=1)
        yield hits(b=1)
        raise OSError("the chunk is gone")

    with pytest.raises(OSError, match="the chunk is gone"):
        mysql.bind(table, statement_rows=1).open(0).apply(mysql.decision(0), rows())
    assert mysql.rows(table) == []


@pytest.mark.parametrize("point", BEFORE_COMMIT)
def test_rule_12_a_connection_killed_during_an_apply_leaves_nothing_and_is_not_reopened(
    mysql: MySQL, point: str
) -> None:
    table = mysql.table("ip VARCHAR(20), hits BIGINT")
    writer = mysql.bind(table, statement_rows=1, **KEYLESS).open(0)
    hook = hook_at(point, lambda: mysql.kill(writer))
    with pytest.raises(SinkUnavailable, match="sink mysql"):
        writer.apply(mysql.decision(0, hook), [hits(a=1, b=2)])
    assert (mysql.rows(table), mysql.markers()) == ([], [(0, -1, "")])
    assert writer.apply(mysql.decision(0), [hits(a=1, b=2)]).rows == 2
    assert mysql.rows(table) == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("change", [{"on_conflict": "add"}, {"columns": ["ip"]}, {}])
def test_rule_04_rows_are_written_only_as_they_were_decided(
    mysql: MySQL, change: dict[str, Any]
) -> None:
    """Totals that were to replace others would be added to them, or lose a column."""
    table = mysql.table("ip VARCHAR(15) PRIMARY KEY, hits BIGINT")
    decided = mysql.bind(table)
    decision = mysql.decision(0, form=decided.binding.form)
    writer = mysql.bind(table, **change).open(0)
    if change:
        with pytest.raises(SinkRejected, match="its former columns, keys and on_conflict"):
            writer.apply(decision, [hits()])
        assert mysql.rows(table) == []
        # to a part that has the epoch, or whose rows are given up, it does not matter
        decided.open(0).apply(decision, [hits()])
        assert writer.apply(decision, [hits()]).verdict is Verdict.SKIP
        given_up = mysql.decision(1, form=decided.binding.form)
        assert writer.apply(given_up, []).verdict is Verdict.APPLY
    else:
        assert writer.apply(decision, [hits()]).verdict is Verdict.APPLY
    writer.close()


def test_rule_12_the_marker_resolves_a_lost_answer_to_commit(mysql: MySQL) -> None:
    table = mysql.table("ip VARCHAR(20), hits BIGINT")
    writer = mysql.bind(table, **KEYLESS).open(0)

    def lose_the_answer() -> None:
        connection = writer._connection
        assert connection is not None
        original_commit = connection.commit

        def commit() -> None:
            original_commit()
            raise pymysql.err.OperationalError(2013, "Lost connection during query")

        connection.commit = commit  # type: ignore[method-assign]

    with pytest.raises(SinkUnavailable, match="as a whole or not at all"):
        writer.apply(mysql.decision(0, hook_at("before-commit", lose_the_answer)), [hits(a=1)])
    assert writer.apply(mysql.decision(0), [hits(a=1)]).verdict is Verdict.SKIP
    assert mysql.rows(table) == [("a", 1)]


def test_a_session_that_ended_between_epochs_is_reopened(mysql: MySQL) -> None:
    table = mysql.table()
    writer = mysql.bind(table).open(0)
    writer.apply(mysql.decision(0), [hits(a=1)])
    mysql.kill(writer)
    writer.apply(mysql.decision(1), [hits(b=1)])
    assert mysql.rows(table) == [("a", 1), ("b", 1)]


# --- rule 12: tables and sessions ------------------------------------------------------------


def test_rule_12_a_table_that_cannot_roll_back_is_refused(mysql: MySQL) -> None:
    with pytest.raises(PreflightFailed, match="of engine MyISAM"):
        mysql.bind(mysql.table(engine="MyISAM"))


def test_rule_12_the_session_overrides_a_lax_server(mysql: MySQL) -> None:
    with mysql.server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = '', time_zone = '+05:00', completion_type = 1")
        prepare(connection, 20)
        cursor.execute("SELECT @@sql_mode, @@time_zone, @@completion_type")
        mode, zone, completion = cursor.fetchone() or ("", "", "")
    assert set(mode.split(",")) == set(SQL_MODE.split(","))
    assert (zone, completion) == ("+00:00", "NO_CHAIN")


def test_rule_12_the_server_never_truncates(mysql: MySQL) -> None:
    table = mysql.table()
    with pytest.raises(SinkRejected, match="1406"):
        mysql.bind(table).open(0).apply(mysql.decision(0), [hits(**{"x" * 21: 1})])
    assert mysql.rows(table) == []


def test_rule_12_the_preflight_logs_triggers(
    mysql: MySQL, caplog: pytest.LogCaptureFixture
) -> None:
    table = mysql.table()
    trigger = f"audit_{table}"
    mysql.execute(f"CREATE TRIGGER {trigger} AFTER INSERT ON {table} FOR EACH ROW SET @seen = 1")
    with caplog.at_level(logging.WARNING):
        mysql.bind(table)
    assert f"trigger {trigger} (AFTER INSERT) runs in every apply" in caplog.text


def test_rule_12_no_timeout_of_a_session_exceeds_the_apply_timeout(mysql: MySQL) -> None:
    connection = connect(Address.parse(mysql.url()), timeout_s=7)
    names = ("wait", "innodb_lock_wait", "lock_wait", "net_read", "net_write")
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT " + ", ".join(f"@@SESSION.{name}_timeout" for name in names))
        assert [int(timeout) for timeout in cursor.fetchone() or ()] == [7] * len(names)


def test_rule_12_the_lock_of_a_lost_node_ends_with_its_session(
    mysql: MySQL, pool: ThreadPoolExecutor
) -> None:
    table = mysql.table()
    locked, released = threading.Event(), threading.Event()

    def hang() -> None:
        locked.set()
        released.wait(30)

    lost_writer = mysql.bind(table, apply_timeout_s=2).open(0)
    lost = pool.submit(
        lost_writer.apply, mysql.decision(0, hook_at("apply-written", hang)), [hits(a=1)]
    )
    assert locked.wait(10)
    started = time.monotonic()
    writer = mysql.bind(table, apply_timeout_s=20).open(0)
    assert writer.apply(mysql.decision(0), [hits(a=1)]).verdict is Verdict.APPLY
    waited_s = time.monotonic() - started
    released.set()
    assert isinstance(lost.exception(10), SinkUnavailable)
    assert waited_s < 10
    assert (mysql.rows(table), mysql.markers()) == ([("a", 1)], [(0, 0, "attempt-0")])


# --- rule 12: parts ---------------------------------------------------------------------------


def apply_in_opposite_orders(
    mysql: MySQL, pool: ThreadPoolExecutor, keys: tuple[tuple[str, str], tuple[str, str]]
) -> list[Future[Receipt]]:
    """Apply two parts of two rows each; both write their first row before either writes the second."""
    table, barrier = mysql.table(), threading.Barrier(2)
    bound = mysql.bind(table, statement_rows=1, apply_timeout_s=10, parts=2)

    def rows(part: int) -> Iterator[pa.RecordBatch]:
        first, second = keys[part]
        yield hits(**{first: 1})
        yield hits(**{f"filler{part}": 1})
        barrier.wait(10)  # a statement is sent when the next row is requested
        yield hits(**{second: 1})

    return [pool.submit(bound.open(p).apply, mysql.decision(0), rows(p)) for p in (0, 1)]


def test_rule_12_parts_that_share_keys_deadlock(mysql: MySQL, pool: ThreadPoolExecutor) -> None:
    errors = [
        future.exception(30)
        for future in apply_in_opposite_orders(mysql, pool, (("a", "b"), ("b", "a")))
    ]
    (deadlock,) = [error for error in errors if error]
    assert isinstance(deadlock, SinkUnavailable)
    assert "1213" in str(deadlock)


def test_rule_12_parts_with_distinct_keys_do_not_deadlock(
    mysql: MySQL, pool: ThreadPoolExecutor
) -> None:
    verdicts = [
        future.result(30).verdict
        for future in apply_in_opposite_orders(mysql, pool, (("a", "c"), ("b", "d")))
    ]
    assert verdicts == [Verdict.APPLY, Verdict.APPLY]
    assert [marker[:2] for marker in mysql.markers()] == [(0, 0), (1, 0)]


@pytest.mark.parametrize(
    ("key", "expression"),
    [
        ("ip VARCHAR(20) COLLATE utf8mb4_bin", "CAST(pmod(xxhash64(rtrim(`ip`)), 4L) AS INT)"),
        (
            "ip VARCHAR(20) CHARACTER SET ascii",
            "CAST(pmod(xxhash64(lower(rtrim(`ip`))), 4L) AS INT)",
        ),
    ],
)
def test_keys_that_are_equal_to_the_server_share_a_part(
    mysql: MySQL, key: str, expression: str
) -> None:
    bound = mysql.bind(mysql.table(f"{key} PRIMARY KEY, hits BIGINT"), parts=4)
    assert bound.part_expression == expression


def test_parts_are_refused_if_only_the_server_can_compare_keys(mysql: MySQL) -> None:
    table = mysql.table("ip VARCHAR(20) COLLATE utf8mb4_unicode_ci PRIMARY KEY, hits BIGINT")
    with pytest.raises(PreflightFailed, match="utf8mb4_unicode_ci"):
        mysql.bind(table, parts=2)


# --- rule 11 in the sink ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "error"),
    [
        (Marker(9, "attempt-9"), Fenced),
        (Marker(2, "attempt-2"), SinkRegressed),
        (Marker(4, "somebody's"), MarkerMismatch),
        (Marker(5, "somebody's"), MarkerMismatch),
        (NO_MARKER, MarkerMismatch),
    ],
    ids=str,
)
def test_rule_11_a_marker_that_is_not_prev_stops_the_apply(
    mysql: MySQL, stored: Marker, error: type[SluicegateError]
) -> None:
    table = mysql.table()
    writer = mysql.bind(table).open(0)
    first = mysql.decision(0, this=stored) if stored != NO_MARKER else mysql.decision(0)
    writer.apply(first, [hits(a=1)])
    mysql.execute(
        "UPDATE sluicegate_markers SET epoch = %s, attempt = %s WHERE lineage = %s",
        stored.epoch,
        stored.attempt,
        mysql.lineage,
    )
    assert writer.marker() == stored
    with pytest.raises(error):
        writer.apply(mysql.decision(5), [hits(b=1)])
    assert mysql.rows(table) == [("a", 1)]


# --- on_conflict ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on_conflict", "expected"),
    [
        ("replace", [("a", 30), ("b", 2), ("c", 5)]),
        ("add", [("a", 41), ("b", 2), ("c", 5)]),
        ("ignore", [("a", 1), ("b", 2), ("c", 5)]),
    ],
)
@pytest.mark.parametrize("statement_rows", [1, 100])
def test_rows_of_a_repeated_key_are_written_in_order(
    mysql: MySQL, on_conflict: str, expected: list[tuple[str, int]], statement_rows: int
) -> None:
    table = mysql.table()
    bound = mysql.bind(table, on_conflict=on_conflict, statement_rows=statement_rows)
    writer = bound.open(0)
    writer.apply(mysql.decision(0), [hits(a=1, b=2)])
    writer.apply(mysql.decision(1), [hits(a=10, c=5), hits(a=30)])
    assert mysql.rows(table) == expected


def test_at_least_once_writes_without_a_marker(mysql: MySQL) -> None:
    table = mysql.table("ip VARCHAR(20), hits BIGINT")
    writer = mysql.bind(table, **KEYLESS).open(0)
    for _ in range(2):
        writer.apply(mysql.decision(0, markers=False), [hits(a=1)])
    assert (mysql.rows(table), mysql.markers()) == ([("a", 1), ("a", 1)], [])


def test_an_apply_that_takes_too_long_is_rolled_back(mysql: MySQL) -> None:
    table = mysql.table()
    writer = mysql.bind(table, apply_timeout_s=1).open(0)
    slow: Callable[[], object] = lambda: setattr(writer, "_deadline", 0.0)  # noqa: E731
    with pytest.raises(SinkUnavailable, match="took longer than an apply may, 1 s"):
        writer.apply(mysql.decision(0, hook_at("apply-written", slow)), [hits(a=1)])
    assert mysql.rows(table) == []


def test_the_binding_names_the_table_and_no_secret(mysql: MySQL) -> None:
    table = mysql.table(HITS_TABLE)
    bound = MySQLSink(table, keys=["ip"], url=mysql.url()).bind(
        HITS, lineage=mysql.lineage, apply_timeout_s=20
    )
    assert bound.binding.target == f"table {mysql.server.database}.{table}"
    representations = (
        f"{bound!r} {bound.binding!r} {MySQLSink(table, keys=['ip'], url=mysql.url())!r}"
    )
    assert mysql.server.password not in representations
