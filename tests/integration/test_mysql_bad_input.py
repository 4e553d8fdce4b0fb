"""User errors about MySQL: the error names the cause, the state of the data and the remedy."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from infra.local_services import Services
from infra.local_services.process import free_ports
from sluicegate.errors import (
    AccessDenied,
    PreflightFailed,
    SchemaMismatch,
    SettingsInvalid,
    SinkRejected,
    SinkUnavailable,
    TargetMissing,
)
from sluicegate.sinks.mysql import MySQLSink
from sluicegate_jobs.targets import create_table
from tests.integration.error_messages import assert_message
from tests.integration.mysql_fixtures import HITS, MySQL, hits

pytestmark = [pytest.mark.integration, pytest.mark.mysql]


@pytest.fixture
def mysql(services: Services) -> MySQL:
    return MySQL.of(services)


def unique_name(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex[:12]}"


# --- the server -------------------------------------------------------------------------------


def test_a_server_that_is_down_is_named_with_its_address(mysql: MySQL) -> None:
    (port,) = free_ports(1)
    with pytest.raises(SinkUnavailable) as error_info:
        mysql.bind("any", url=mysql.url(host="127.0.0.1", port=port))
    assert_message(error_info.value, f"127.0.0.1:{port}", "nothing was written", "start the server")


def test_an_unknown_host_is_named(mysql: MySQL) -> None:
    with pytest.raises(SinkUnavailable) as error_info:
        mysql.bind("any", url=mysql.url(host="no-such-host.invalid"))
    assert_message(error_info.value, "no-such-host.invalid", "correct host and port")


def test_a_wrong_password_is_reported_and_not_shown(mysql: MySQL) -> None:
    with pytest.raises(AccessDenied) as error_info:
        mysql.bind("any", url=mysql.url(password="not-the-password"))
    assert_message(error_info.value, mysql.server.user, "correct user, password")
    assert "not-the-password" not in str(error_info.value)


def test_a_missing_database_is_named(mysql: MySQL) -> None:
    user = mysql.user(unique_name("u"), "SELECT ON *.*")
    name = unique_name("nowhere")
    with pytest.raises(TargetMissing) as error_info:
        mysql.bind("any", url=f"{user.rpartition('/')[0]}/{name}")
    assert_message(error_info.value, name, "create the database")


@pytest.mark.parametrize(
    "url",
    ["postgres://u:secret@h/d", "mysql://u:secret@h", "mysql://u:secret@h:x/d", "mysql://h/d",
     "mysql://u:secret@h/d?ssl=1"],
)  # fmt: skip
def test_an_invalid_url_is_explained_without_the_password(url: str) -> None:
    with pytest.raises(SettingsInvalid) as error_info:
        MySQLSink("t", keys=["ip"], url=url).bind(HITS, lineage="l", apply_timeout_s=5)
    assert_message(error_info.value, "mysql://user:password@host:port/database")
    assert "secret" not in str(error_info.value)


def test_a_missing_url_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLUICEGATE_MYSQL", raising=False)
    with pytest.raises(SettingsInvalid) as error_info:
        MySQLSink("t", keys=["ip"]).bind(HITS, lineage="l", apply_timeout_s=5)
    assert_message(error_info.value, "SLUICEGATE_MYSQL")


# --- privileges -------------------------------------------------------------------------------


def test_a_missing_write_privilege_is_named(mysql: MySQL) -> None:
    table = mysql.table()
    url = mysql.user(unique_name("u"), f"SELECT ON {mysql.server.database}.{table}")
    with pytest.raises(AccessDenied) as error_info:
        mysql.bind(table, url=url)
    assert_message(error_info.value, table, "INSERT", "grant SELECT, INSERT and UPDATE")


def create_database(mysql: MySQL) -> str:
    """Create a database with a table `t` that fits the rows of `HITS`; return its name."""
    name = unique_name("d")
    mysql.execute(f"CREATE DATABASE {name}")
    mysql.execute(f"CREATE TABLE {name}.t (ip VARCHAR(20) PRIMARY KEY, hits BIGINT) ENGINE=InnoDB")
    return name


def test_a_marker_table_that_may_not_be_created_is_named_with_its_ddl(mysql: MySQL) -> None:
    database = create_database(mysql)
    user = mysql.user(unique_name("u"), f"SELECT, INSERT, UPDATE ON {database}.t")
    with pytest.raises(AccessDenied) as error_info:
        mysql.bind("t", url=f"{user.rpartition('/')[0]}/{database}")
    assert_message(
        error_info.value, "sluicegate_markers", "CREATE TABLE IF NOT EXISTS sluicegate_markers"
    )
    mysql.execute(f"DROP DATABASE {database}")


def test_another_table_with_the_name_of_the_marker_table_is_refused(mysql: MySQL) -> None:
    database = create_database(mysql)
    columns = "lineage INT, sink INT, part INT, epoch INT, attempt INT, updated_at DATETIME"
    mysql.execute(f"CREATE TABLE {database}.sluicegate_markers ({columns}) ENGINE=InnoDB")
    user = mysql.user(unique_name("u"), f"ALL ON {database}.*")
    with pytest.raises(PreflightFailed) as error_info:
        mysql.bind("t", url=f"{user.rpartition('/')[0]}/{database}")
    assert_message(
        error_info.value, "sluicegate_markers is not the marker table", "rename that table"
    )
    mysql.execute(f"DROP DATABASE {database}")


# --- the table --------------------------------------------------------------------------------


def test_a_missing_table_is_named_with_a_working_create_table(mysql: MySQL) -> None:
    name = unique_name("missing")
    with pytest.raises(TargetMissing) as error_info:
        mysql.bind(name)
    assert_message(error_info.value, name, "does not exist")
    mysql.execute(error_info.value.do.partition("such as: ")[2])
    assert mysql.bind(name).binding.target.endswith(name)


def test_a_table_with_a_similar_name_does_not_count_as_existing(mysql: MySQL) -> None:
    """To LIKE, the underscore of a table's name matches any character."""
    name = unique_name("a")
    mysql.execute(f"CREATE TABLE {name.replace('_', 'x')} (id INT)")
    assert create_table(mysql.url(), name, "id INT") == [f"table {name}"]
    assert create_table(mysql.url(), name, "id INT") == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("ip VARCHAR(20) PRIMARY KEY", "the table has no column hits (int64)"),
        ("ip VARCHAR(20) PRIMARY KEY, hits DATE", "hits is date and cannot store int64"),
        (
            "ip VARCHAR(20) PRIMARY KEY, hits BIGINT, site INT NOT NULL",
            "site is NOT NULL without a default and has no value",
        ),
        (
            "ip VARCHAR(20) PRIMARY KEY, hits BIGINT AS (1) STORED",
            "hits is generated by the server",
        ),
        (
            "ip VARCHAR(20) CHARACTER SET gbk PRIMARY KEY, hits BIGINT",
            "ip has character set gbk",
        ),
    ],
)
def test_columns_that_do_not_fit_are_each_named(mysql: MySQL, body: str, message: str) -> None:
    table = mysql.table(body)
    with pytest.raises(SchemaMismatch) as error_info:
        mysql.bind(table)
    assert_message(error_info.value, table, message, "nothing was written")


def test_all_columns_that_do_not_fit_are_named_at_once(mysql: MySQL) -> None:
    rows = pa.schema([("ip", pa.bool_()), ("a", pa.int64()), ("b", pa.int64())])
    with pytest.raises(SchemaMismatch) as error_info:
        mysql.bind(mysql.table("ip DATE PRIMARY KEY"), rows=rows)
    assert_message(error_info.value, "ip is date", "no column a", "no column b")


def test_keys_that_are_not_a_unique_key_are_refused_with_the_alter_statement(mysql: MySQL) -> None:
    table = mysql.table("ip VARCHAR(20), hits BIGINT, UNIQUE KEY whole (ip, hits)")
    with pytest.raises(PreflightFailed) as error_info:
        mysql.bind(table)
    assert_message(
        error_info.value, "(ip) is not a unique key", "whole (ip, hits)", "ADD UNIQUE KEY (ip)"
    )


def test_a_unique_key_on_a_prefix_of_a_column_does_not_count(mysql: MySQL) -> None:
    table = mysql.table("ip VARCHAR(20), hits BIGINT, UNIQUE KEY (ip(3))")
    with pytest.raises(PreflightFailed, match="part of a column"):
        mysql.bind(table)


def test_a_second_unique_key_is_refused_because_another_row_would_change(mysql: MySQL) -> None:
    table = mysql.table("ip VARCHAR(20) PRIMARY KEY, hits BIGINT UNIQUE")
    with pytest.raises(PreflightFailed) as error_info:
        mysql.bind(table)
    assert_message(error_info.value, "can collide on hits (hits)", "change a row of another key")


def test_an_auto_increment_primary_key_besides_the_keys_is_accepted(mysql: MySQL) -> None:
    table = mysql.table("n BIGINT AUTO_INCREMENT PRIMARY KEY, ip VARCHAR(20) UNIQUE, hits BIGINT")
    assert mysql.bind(table).form.keys == ("ip",)


def test_numbers_of_the_server_that_upserts_use_up_are_refused(mysql: MySQL) -> None:
    """Each upsert takes one. With the last one, given again, it would change the row of another key."""
    table = mysql.table("n INT AUTO_INCREMENT PRIMARY KEY, ip VARCHAR(20) UNIQUE, hits BIGINT")
    with pytest.raises(PreflightFailed, match="make a column that the server numbers a BIGINT"):
        mysql.bind(table)


def test_a_view_is_refused(mysql: MySQL) -> None:
    view = unique_name("v")
    mysql.execute(f"CREATE VIEW {view} AS SELECT * FROM {mysql.table()}")
    with pytest.raises(PreflightFailed, match="it is a view"):
        mysql.bind(view)


def test_adding_text_is_refused(mysql: MySQL) -> None:
    rows = pa.schema([("ip", pa.string()), ("name", pa.string())])
    with pytest.raises(SchemaMismatch, match="adds numbers; name is not a number"):
        mysql.bind(
            mysql.table("ip VARCHAR(9) PRIMARY KEY, name TEXT"), rows=rows, on_conflict="add"
        )


# --- the sink's settings ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "on_conflict='replace' needs keys="),
        ({"keys": ["ip"], "on_conflict": "upsert"}, "on_conflict='upsert' is unknown"),
        ({"on_conflict": "error", "parts": 2}, "parts=2 needs keys="),
        ({"keys": ["ip"], "parts": 0}, "parts=0 is below 1"),
        ({"keys": ["ip"], "id": "x" * 191}, "longer than 190"),
    ],
)
def test_invalid_settings_are_refused_when_the_sink_is_created(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(SettingsInvalid) as error_info:
        MySQLSink("ip_count", **settings)  # type: ignore[arg-type]
    assert_message(error_info.value, "table ip_count", message)


# --- rows -------------------------------------------------------------------------------------


def test_a_refused_value_names_column_and_limit_and_quotes_its_start(mysql: MySQL) -> None:
    refused = mysql.bind(mysql.table()).refusals(hits(**{"a": 1, "x" * 99: 1}))
    assert refused is not None
    accepted, reason = refused.to_pylist()
    assert accepted is None
    assert (
        reason
        == f"column ip is longer than varchar(20) allows, 20 characters; it starts with {'x' * 40}"
    )


def test_rows_that_a_changed_table_refuses_stay_decided_and_the_remedy_is_named(
    mysql: MySQL,
) -> None:
    table = mysql.table()
    bound = mysql.bind(table)
    mysql.execute(f"ALTER TABLE {table} MODIFY ip VARCHAR(2)")
    with pytest.raises(SinkRejected) as error_info:
        bound.open(0).apply(mysql.decision(0), [hits(abc=1)])
    assert_message(
        error_info.value,
        table,
        "'ip'",
        "1406",
        "stays decided, nothing is lost",
        "widen the column",
    )
    mysql.execute(f"ALTER TABLE {table} MODIFY ip VARCHAR(20)")
    assert bound.open(0).apply(mysql.decision(0), [hits(abc=1)]).rows == 1


def test_a_table_dropped_after_the_preflight_is_reported_as_missing(mysql: MySQL) -> None:
    table = mysql.table()
    bound = mysql.bind(table)
    mysql.execute(f"DROP TABLE {table}")
    with pytest.raises(SinkRejected) as error_info:
        bound.open(0).apply(mysql.decision(0), [hits(a=1)])
    assert_message(error_info.value, table, "1146", "create the table again")
