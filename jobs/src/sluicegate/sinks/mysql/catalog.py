"""Reads information_schema and server settings, and creates the marker table.

The queries run on MySQL 8 and 9 and on MariaDB; `Server` distinguishes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
import pymysql
from pymysql.cursors import DictCursor

from sluicegate.errors import AccessDenied, PreflightFailed
from sluicegate.sinks.contract import quoted
from sluicegate.sinks.mysql import errors as mysql_errors
from sluicegate.sinks.mysql.column_types import Column, Family, describe
from sluicegate.sinks.mysql.connection import Connection
from sluicegate.sinks.mysql.writer import MARKERS

_MARKERS_DDL = f"""CREATE TABLE IF NOT EXISTS {MARKERS} (
  lineage VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  sink VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  part INT NOT NULL,
  epoch BIGINT NOT NULL,
  attempt VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  updated_at DATETIME(6) NOT NULL,
  PRIMARY KEY (lineage, sink, part)
) ENGINE=InnoDB"""

_INSERT_PROBE = (
    f"INSERT IGNORE INTO {MARKERS} (lineage, sink, part, epoch, attempt, updated_at) "  # noqa: S608 - a constant
    "SELECT '', '', 0, 0, '', UTC_TIMESTAMP(6) FROM DUAL WHERE FALSE"
)
_UPDATE_PROBE = (
    f"UPDATE {MARKERS} SET epoch = 0, attempt = '', updated_at = UTC_TIMESTAMP(6) "  # noqa: S608 - a constant
    "WHERE lineage = '' AND sink = '' AND part = -1 AND epoch = 0 AND attempt = ''"
)

_COLUMNS = """SELECT column_name AS column_name, data_type AS data_type, column_type AS column_type,
  is_nullable AS is_nullable, column_default AS column_default, extra AS extra,
  generation_expression AS generation_expression,
  character_maximum_length AS character_maximum_length,
  character_octet_length AS character_octet_length, numeric_precision AS numeric_precision,
  numeric_scale AS numeric_scale, datetime_precision AS datetime_precision,
  character_set_name AS character_set_name, collation_name AS collation_name
FROM information_schema.columns
WHERE table_schema = DATABASE() AND table_name = %s ORDER BY ordinal_position"""
_INDEXES = """SELECT index_name AS name, column_name AS col, sub_part AS sub_part
FROM information_schema.statistics
WHERE table_schema = DATABASE() AND table_name = %s AND non_unique = 0
ORDER BY index_name, seq_in_index"""
_CHECKS = """SELECT t.constraint_name AS name, t.constraint_type AS kind, c.check_clause AS clause
FROM information_schema.table_constraints t
LEFT JOIN information_schema.check_constraints c
  ON c.constraint_schema = t.constraint_schema AND c.constraint_name = t.constraint_name{match}
WHERE t.table_schema = DATABASE() AND t.table_name = %s
  AND t.constraint_type IN ('CHECK', 'FOREIGN KEY') ORDER BY t.constraint_name"""
_ALIASES_SINCE = (8, 0, 20)
_JSON_CHECK = re.compile(r"\s*json_valid\(`(.*)`\)\s*", re.IGNORECASE)
"""How MariaDB declares a JSON column: by a check on a longtext."""


@dataclass(frozen=True)
class Server:
    """The server: its version and settings.

    Args:
        version: as the server reports it.
        max_allowed_packet: in bytes.
        loses_commits: settings with which a crash may lose commits; empty: none.
        cipher: of this connection; empty: plain text.
    """

    version: str
    max_allowed_packet: int
    loses_commits: str
    cipher: str

    @property
    def is_mariadb(self) -> bool:
        return "mariadb" in self.version.lower()

    @property
    def aliases_rows(self) -> bool:
        """Whether INSERT can alias the new row, as MySQL requires from 8.0.20; MariaDB has VALUES()."""
        match = re.match(r"(\d+)\.(\d+)\.(\d+)", self.version)
        number = tuple(map(int, match.groups())) if match else (0, 0, 0)
        return not self.is_mariadb and number >= _ALIASES_SINCE


@dataclass(frozen=True)
class Index:
    """A unique key; a column is None if only its prefix or an expression is indexed."""

    name: str
    columns: tuple[str | None, ...]

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(c or 'part of a column' for c in self.columns)})"

    def is_exactly(self, keys: Sequence[str]) -> bool:
        """Return whether it has exactly these columns, in any order."""
        return len(keys) == len(self.columns) and set(keys) == set(self.columns)

    def can_collide(self, table: Table, written: set[str]) -> bool:
        """Return whether a new row can collide on it; impossible if the server numbers a BIGINT column.

        Each upsert uses up a number, also one that updates. When a smaller type has none left, the server
        gives the last one again, and the upsert changes the row that has it.
        """
        columns = [c for c in table.columns if c.name in self.columns]
        numbered = (c for c in columns if c.auto_increment and c.name not in written)
        return not any(c.kind == "bigint" for c in numbered)


@dataclass(frozen=True)
class Table:
    """A table as the server describes it.

    Args:
        constraints: checks and foreign keys, which may refuse rows that fit the columns' types.
    """

    name: str
    kind: str
    engine: str | None
    columns: tuple[Column, ...]
    unique: tuple[Index, ...]
    constraints: tuple[str, ...]

    def by_lower_name(self) -> dict[str, Column]:
        """Return the columns by name in lower case, in the table's order."""
        return {column.name.lower(): column for column in self.columns}


class Catalog:
    """Queries the server."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.server = self._server()

    def table(self, name: str) -> Table | None:
        """Return a table of the database, None if it does not exist or this user may not see it."""
        rows = self._rows(
            "SELECT table_name AS name, table_type AS kind, engine AS engine FROM "
            "information_schema.tables WHERE table_schema = DATABASE() AND table_name = %s",
            name,
        )
        if not rows:
            return None
        json_columns, constraints = self._constraints(name)
        columns = (describe(row) for row in self._rows(_COLUMNS, name))
        return Table(
            **rows[0],
            columns=tuple(
                replace(c, family=Family.JSON) if c.name in json_columns else c for c in columns
            ),
            unique=self._unique(name),
            constraints=tuple(constraints),
        )

    def triggers(self, table: str) -> list[str]:
        """Return the names of a table's triggers that this user may see."""
        rows = self._rows(
            "SELECT trigger_name AS name, action_timing AS at, event_manipulation AS event "
            "FROM information_schema.triggers WHERE event_object_schema = DATABASE() "
            "AND event_object_table = %s ORDER BY trigger_name",
            table,
        )
        return [f"{row['name']} ({row['at']} {row['event']})" for row in rows]

    def execute(self, *statements: str) -> None:
        with self._connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def probe(self, *statements: str) -> None:
        """Let the server check columns and privileges, with statements that change no row."""
        self._connection.begin()
        self.execute(*statements)
        self._connection.rollback()

    def _constraints(self, table: str) -> tuple[set[str], list[str]]:
        """Return the columns that a check declares as JSON, and all other constraints."""
        # MariaDB's constraint names are unique only within a table, and it has the table's name.
        match = " AND c.table_name = t.table_name" if self.server.is_mariadb else ""
        json_columns, others = set[str](), list[str]()
        for row in self._rows(_CHECKS.format(match=match), table):
            json = _JSON_CHECK.fullmatch(row["clause"] or "")
            if json and self.server.is_mariadb:
                json_columns.add(json[1].replace("``", "`"))
            else:
                others.append(f"{row['name']} ({row['kind'].lower()})")
        return json_columns, others

    def _unique(self, table: str) -> tuple[Index, ...]:
        indexes: dict[str, list[str | None]] = {}
        for row in self._rows(_INDEXES, table):
            column = row["col"] if row["sub_part"] is None else None
            indexes.setdefault(row["name"], []).append(column)
        return tuple(Index(name, tuple(columns)) for name, columns in indexes.items())

    def _server(self) -> Server:
        row = self._rows(
            "SELECT VERSION() AS version, @@max_allowed_packet AS packet, @@log_bin AS log_bin, "
            "@@innodb_flush_log_at_trx_commit AS flush_log, @@sync_binlog AS sync_binlog"
        )[0]
        lax = []
        if row["flush_log"] != 1:
            lax.append(f"innodb_flush_log_at_trx_commit is {row['flush_log']}")
        # a commit that is not in the binary log after a crash is rolled back
        if row["log_bin"] and row["sync_binlog"] != 1:
            lax.append(f"sync_binlog is {row['sync_binlog']}")
        (status,) = self._rows("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
        packet = int(row["packet"])
        return Server(row["version"], packet, " and ".join(lax), status["Value"])

    def _rows(self, sql: str, *values: object) -> list[dict[str, Any]]:
        with self._connection.cursor(DictCursor) as cursor:
            cursor.execute(sql, values)
            return list(cursor.fetchall())


def create_markers(catalog: Catalog, where: str) -> None:
    """Create the marker table, or check the existing one.

    Raises:
        AccessDenied: it is missing and this user may not create it, or may not write to it.
        PreflightFailed: the existing table has another structure.
    """
    table = catalog.table(MARKERS)
    try:
        if table is None:
            catalog.execute(_MARKERS_DDL)
            table = catalog.table(MARKERS)
        catalog.probe(_INSERT_PROBE, _UPDATE_PROBE)
    except pymysql.err.Error as error:
        if isinstance(mysql_errors.preflight_error(error, where, ""), AccessDenied):
            raise AccessDenied(
                f"{where}: the marker table {MARKERS} cannot be created or written: "
                f"{mysql_errors.describe(error)}",
                data="nothing was written; without markers nothing is exactly-once",
                do=f"grant SELECT, INSERT and UPDATE on {MARKERS}; if it is missing, grant CREATE "
                f"once, or let an administrator run: {_MARKERS_DDL}",
            ) from error
        raise mysql_errors.preflight_error(error, where, f"the marker table {MARKERS}") from error
    keyed = table and any(i.is_exactly(("lineage", "sink", "part")) for i in table.unique)
    if table is None or (table.engine or "").lower() != "innodb" or not keyed:
        raise PreflightFailed(
            f"{where}: {MARKERS} is not the marker table of Sluicegate",
            data="nothing was written; markers in it would not be safe",
            do=f"rename that table; Sluicegate then creates its own: {_MARKERS_DDL}",
        )


def suggest_create_table(
    table: str, keys: Sequence[str], values: Sequence[tuple[str, pa.DataType]]
) -> str:
    """Return a CREATE TABLE statement that fits the rows, as a starting point."""
    lines = [
        f"{quoted(name)} {_sql_type(kind, key=name in keys)}{' NOT NULL' if name in keys else ''}"
        for name, kind in values
    ]
    if keys:
        lines.append(f"PRIMARY KEY ({', '.join(map(quoted, keys))})")
    return f"CREATE TABLE {quoted(table)} ({', '.join(lines)}) ENGINE=InnoDB CHARACTER SET utf8mb4"


_SQL_TYPES: Mapping[str, str] = {
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "DOUBLE",
    "double": "DOUBLE",
    "date32[day]": "DATE",
}


def _sql_type(kind: pa.DataType, *, key: bool) -> str:
    if pt.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pt.is_timestamp(kind):
        return "DATETIME(6)"
    if pt.is_binary(kind):
        return "VARBINARY(255)" if key else "LONGBLOB"
    if pt.is_nested(kind):
        return "JSON"
    return _SQL_TYPES.get(str(kind)) or ("VARCHAR(255) COLLATE utf8mb4_bin" if key else "TEXT")
