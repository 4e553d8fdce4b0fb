"""What a user gets wrong about MySQL: the error names the thing, the data's state and the cure."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from infra.embedded import Services
from infra.embedded.process import free_ports
from sluicegate.protocol.errors import (
    AccessDenied,
    PreflightFailed,
    SchemaMismatch,
    SettingsInvalid,
    SinkRejected,
    SinkUnavailable,
    SluicegateError,
    TargetMissing,
)
from sluicegate.sinks.mysql import MySQLSink

from .mysql_fixtures import HITS, MySQL, hits

pytestmark = [pytest.mark.integration, pytest.mark.mysql]


@pytest.fixture
def mysql(services: Services) -> MySQL:
    return MySQL.of(services)


def says(error: SluicegateError, *words: str) -> None:
    """All three sentences are there, and the words are among them."""
    assert error.data
    assert error.do
    for word in words:
        assert word in str(error)


def named(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex[:12]}"


# --- the server -------------------------------------------------------------------------------


def test_a_server_that_is_down_is_named_with_its_address(mysql: MySQL) -> None:
    (port,) = free_ports(1)
    with pytest.raises(SinkUnavailable) as caught:
        mysql.bind("any", url=mysql.url(host="127.0.0.1", port=port))
    says(caught.value, f"127.0.0.1:{port}", "nothing was written", "start the server")


def test_a_host_that_nobody_knows_is_named(mysql: MySQL) -> None:
    with pytest.raises(SinkUnavailable) as caught:
        mysql.bind("any", url=mysql.url(host="no-such-host.invalid"))
    says(caught.value, "no-such-host.invalid", "correct host and port")


def test_a_wrong_password_is_said_and_not_shown(mysql: MySQL) -> None:
    with pytest.raises(AccessDenied) as caught:
        mysql.bind("any", url=mysql.url(password="not-the-password"))
    says(caught.value, mysql.server.user, "correct user, password")
    assert "not-the-password" not in str(caught.value)


def test_a_missing_database_is_named(mysql: MySQL) -> None:
    user = mysql.user(named("u"), "SELECT ON *.*")
    name = named("nowhere")
    with pytest.raises(TargetMissing) as caught:
        mysql.bind("any", url=f"{user.rpartition('/')[0]}/{name}")
    says(caught.value, name, "create the database")


@pytest.mark.parametrize(
    "url",
    ["postgres://u:secret@h/d", "mysql://u:secret@h", "mysql://u:secret@h:x/d", "mysql://h/d",
     "mysql://u:secret@h/d?ssl=1"],
)  # fmt: skip
def test_a_url_that_cannot_be_used_is_explained_without_the_password(url: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        MySQLSink("t", keys=["ip"], url=url).bind(HITS, lineage="l", apply_timeout_s=5)
    says(caught.value, "mysql://user:password@host:port/database")
    assert "secret" not in str(caught.value)


def test_a_missing_url_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLUICEGATE_MYSQL", raising=False)
    with pytest.raises(SettingsInvalid) as caught:
        MySQLSink("t", keys=["ip"]).bind(HITS, lineage="l", apply_timeout_s=5)
    says(caught.value, "SLUICEGATE_MYSQL")


# --- privileges -------------------------------------------------------------------------------


def test_a_user_who_may_not_write_is_told_which_grant_is_missing(mysql: MySQL) -> None:
    table = mysql.table()
    url = mysql.user(named("u"), f"SELECT ON {mysql.server.database}.{table}")
    with pytest.raises(AccessDenied) as caught:
        mysql.bind(table, url=url)
    says(caught.value, table, "INSERT", "grant SELECT, INSERT and UPDATE")


def test_a_marker_table_that_may_not_be_created_is_said_with_its_ddl(mysql: MySQL) -> None:
    database = named("d")
    mysql.execute(f"CREATE DATABASE {database}")
    mysql.execute(
        f"CREATE TABLE {database}.t (ip VARCHAR(20) PRIMARY KEY, hits BIGINT) ENGINE=InnoDB"
    )
    user = mysql.user(named("u"), f"SELECT, INSERT, UPDATE ON {database}.t")
    with pytest.raises(AccessDenied) as caught:
        mysql.bind("t", url=f"{user.rpartition('/')[0]}/{database}")
    says(caught.value, "sluicegate_markers", "CREATE TABLE IF NOT EXISTS sluicegate_markers")
    mysql.execute(f"DROP DATABASE {database}")


def test_a_table_of_the_markers_name_that_is_none_is_refused(mysql: MySQL) -> None:
    database = named("d")
    mysql.execute(f"CREATE DATABASE {database}")
    columns = "lineage INT, sink INT, part INT, epoch INT, attempt INT, updated_at DATETIME"
    mysql.execute(
        f"CREATE TABLE {database}.t (ip VARCHAR(20) PRIMARY KEY, hits BIGINT) ENGINE=InnoDB"
    )
    mysql.execute(f"CREATE TABLE {database}.sluicegate_markers ({columns}) ENGINE=InnoDB")
    user = mysql.user(named("u"), f"ALL ON {database}.*")
    with pytest.raises(PreflightFailed) as caught:
        mysql.bind("t", url=f"{user.rpartition('/')[0]}/{database}")
    says(caught.value, "sluicegate_markers is not the table", "rename that table")
    mysql.execute(f"DROP DATABASE {database}")


# --- the table --------------------------------------------------------------------------------


def test_a_missing_table_comes_with_a_create_table_that_works(mysql: MySQL) -> None:
    name = named("missing")
    with pytest.raises(TargetMissing) as caught:
        mysql.bind(name)
    says(caught.value, name, "does not exist")
    mysql.execute(caught.value.do.partition("such as: ")[2])
    assert mysql.bind(name).binding.target.endswith(name)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("ip VARCHAR(20) PRIMARY KEY", "the table has no column hits (int64)"),
        ("ip VARCHAR(20) PRIMARY KEY, hits DATE", "hits is date and takes no int64"),
        (
            "ip VARCHAR(20) PRIMARY KEY, hits BIGINT, site INT NOT NULL",
            "site is NOT NULL without a default and is not supplied",
        ),
        (
            "ip VARCHAR(20) PRIMARY KEY, hits BIGINT AS (1) STORED",
            "hits is computed by the server",
        ),
        (
            "ip VARCHAR(20) CHARACTER SET gbk PRIMARY KEY, hits BIGINT",
            "ip has character set gbk",
        ),
    ],
)
def test_columns_that_do_not_fit_are_each_named(mysql: MySQL, body: str, said: str) -> None:
    table = mysql.table(body)
    with pytest.raises(SchemaMismatch) as caught:
        mysql.bind(table)
    says(caught.value, table, said, "nothing was written")


def test_all_columns_that_do_not_fit_are_named_at_once(mysql: MySQL) -> None:
    rows = pa.schema([("ip", pa.bool_()), ("a", pa.int64()), ("b", pa.int64())])
    with pytest.raises(SchemaMismatch) as caught:
        mysql.bind(mysql.table("ip DATE PRIMARY KEY"), rows=rows)
    says(caught.value, "ip is date", "no column a", "no column b")


def test_keys_that_are_no_unique_key_are_refused_with_the_alter(mysql: MySQL) -> None:
    table = mysql.table("ip VARCHAR(20), hits BIGINT, UNIQUE KEY whole (ip, hits)")
    with pytest.raises(PreflightFailed) as caught:
        mysql.bind(table)
    says(caught.value, "(ip) is not a unique key", "whole (ip, hits)", "ADD UNIQUE KEY (ip)")


def test_a_unique_key_over_the_beginning_of_a_column_does_not_count(mysql: MySQL) -> None:
    table = mysql.table("ip VARCHAR(20), hits BIGINT, UNIQUE KEY (ip(3))")
    with pytest.raises(PreflightFailed, match="part of a column"):
        mysql.bind(table)


def test_a_second_unique_key_is_refused_because_another_row_would_change(mysql: MySQL) -> None:
    table = mysql.table("ip VARCHAR(20) PRIMARY KEY, hits BIGINT UNIQUE")
    with pytest.raises(PreflightFailed) as caught:
        mysql.bind(table)
    says(caught.value, "can collide on hits (hits)", "change a row of another key")


def test_an_auto_increment_primary_key_beside_the_keys_is_fine(mysql: MySQL) -> None:
    table = mysql.table("n INT AUTO_INCREMENT PRIMARY KEY, ip VARCHAR(20) UNIQUE, hits BIGINT")
    assert mysql.bind(table).form.keys == ("ip",)


def test_a_view_is_refused(mysql: MySQL) -> None:
    view = named("v")
    mysql.execute(f"CREATE VIEW {view} AS SELECT * FROM {mysql.table()}")
    with pytest.raises(PreflightFailed, match="it is a view"):
        mysql.bind(view)


def test_adding_what_is_no_number_is_refused(mysql: MySQL) -> None:
    rows = pa.schema([("ip", pa.string()), ("name", pa.string())])
    with pytest.raises(SchemaMismatch, match="adds numbers; name is none"):
        mysql.bind(
            mysql.table("ip VARCHAR(9) PRIMARY KEY, name TEXT"), rows=rows, on_conflict="add"
        )


# --- the sink's settings ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "on_conflict='replace' needs keys="),
        ({"keys": ["ip"], "on_conflict": "upsert"}, "on_conflict='upsert' is not known"),
        ({"on_conflict": "error", "parts": 2}, "parts=2 needs keys="),
        ({"keys": ["ip"], "parts": 0}, "parts=0 is below 1"),
        ({"keys": ["ip"], "id": "x" * 191}, "longer than 190"),
    ],
)
def test_settings_that_cannot_work_are_refused_when_the_sink_is_made(
    settings: dict[str, object], said: str
) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        MySQLSink("ip_count", **settings)  # type: ignore[arg-type]
    says(caught.value, "table ip_count", said)


# --- rows -------------------------------------------------------------------------------------


def test_a_value_too_long_names_column_limit_and_its_beginning(mysql: MySQL) -> None:
    refused = mysql.bind(mysql.table()).refusals(hits(**{"a": 1, "x" * 99: 1}))
    assert refused is not None
    fine, reason = refused.to_pylist()
    assert fine is None
    assert (
        reason == f"column ip is longer than varchar(20) takes, 20 characters; it begins {'x' * 40}"
    )


def test_rows_that_a_changed_table_refuses_stay_decided_and_the_cure_is_said(mysql: MySQL) -> None:
    table = mysql.table()
    bound = mysql.bind(table)
    mysql.execute(f"ALTER TABLE {table} MODIFY ip VARCHAR(2)")
    with pytest.raises(SinkRejected) as caught:
        bound.open(0).apply(mysql.decided(0), [hits(abc=1)])
    says(caught.value, table, "'ip'", "1406", "stays decided, nothing is lost", "widen the column")
    mysql.execute(f"ALTER TABLE {table} MODIFY ip VARCHAR(20)")
    assert bound.open(0).apply(mysql.decided(0), [hits(abc=1)]).rows == 1


def test_a_table_dropped_after_the_preflight_is_said_to_be_missing(mysql: MySQL) -> None:
    table = mysql.table()
    bound = mysql.bind(table)
    mysql.execute(f"DROP TABLE {table}")
    with pytest.raises(SinkRejected) as caught:
        bound.open(0).apply(mysql.decided(0), [hits(a=1)])
    says(caught.value, table, "1146", "create the table again")
