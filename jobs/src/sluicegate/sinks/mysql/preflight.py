"""The preflight: checks everything about a table that can be checked before a row is written.

A failure here costs nothing; a problem that it misses leaves a decided epoch stuck.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pyarrow as pa
import pymysql

from sluicegate.errors import PreflightFailed, SchemaMismatch, TargetMissing
from sluicegate.protocol.record import SinkBinding
from sluicegate.sinks.mysql import errors as mysql_errors
from sluicegate.sinks.mysql.bound_sink import BoundMySQL
from sluicegate.sinks.mysql.catalog import Catalog, Table, create_markers, suggest_create_table
from sluicegate.sinks.mysql.column_mapping import (
    MappedColumn,
    map_columns,
    part_key_expression,
    sources,
)
from sluicegate.sinks.mysql.column_types import Column, Family
from sluicegate.sinks.mysql.connection import Address, Connection, connect
from sluicegate.sinks.mysql.statements import InsertForm
from sluicegate.sinks.mysql.writer import MARKERS

_log = logging.getLogger(__name__)
_NOTHING = "nothing was written; the job has not started"
_MIN_TIMEOUT_S = 1.0
_MAX_LINEAGE_CHARS = 64
_SMALL_PACKET_BYTES = 1 << 20


@dataclass(frozen=True)
class TableSpec:
    """The arguments of `MySQLSink`, with lineage and timeout."""

    id: str
    table: str
    keys: tuple[str, ...]
    on_conflict: str
    columns: tuple[str, ...] | None
    parts: int
    statement_rows: int
    lineage: str
    apply_timeout_s: float


def preflight(spec: TableSpec, address: Address, rows: pa.Schema) -> BoundMySQL:
    """Return the bound sink.

    Raises:
        PreflightFailed: or a subclass; nothing was written.
        SinkUnavailable: the server does not answer.
    """
    where = f"sink {spec.id}, table {address.database}.{spec.table}"
    if not 0 < len(spec.lineage) <= _MAX_LINEAGE_CHARS or spec.apply_timeout_s < _MIN_TIMEOUT_S:
        raise PreflightFailed(
            f"{where}: lineage {spec.lineage!r} or apply timeout {spec.apply_timeout_s} is invalid",
            data=_NOTHING,
            do=f"use a lineage of at most {_MAX_LINEAGE_CHARS} characters and a timeout of at least "
            f"{_MIN_TIMEOUT_S:g} s",
        )
    connection = connect(address, timeout_s=spec.apply_timeout_s)
    try:
        return _bind(connection, spec, address, rows, where)
    except pymysql.err.Error as error:
        raise mysql_errors.preflight_error(
            error, where, "reading the table's definition"
        ) from error
    finally:
        if connection.open:
            connection.close()


def _bind(
    connection: Connection, spec: TableSpec, address: Address, rows: pa.Schema, where: str
) -> BoundMySQL:
    catalog = Catalog(connection)
    table = _find_table(catalog, spec, rows, where)
    mapped = map_columns(rows, table.by_lower_name(), wanted=spec.columns, where=where)
    keys = _keys(spec, table, mapped, where)
    _check_no_other_key(spec, table, mapped, keys, where)
    _check_addable(spec, mapped, keys, where)
    _log_warnings(catalog, spec, table, mapped, where)
    form = InsertForm(
        table=table.name,
        columns=tuple(f.column for f in mapped),
        keys=keys if spec.on_conflict != "error" or spec.parts > 1 else (),
        on_conflict=spec.on_conflict,
        aliased=catalog.server.aliases_rows,
    )
    _probe(connection, form, where)
    create_markers(connection, catalog, where)
    return BoundMySQL(
        id=spec.id,
        binding=SinkBinding(
            kind="mysql",
            target=f"table {address.database}.{table.name}",
            parts=spec.parts,
            marker_key=f"{MARKERS}:{spec.id}",
        ),
        expressions=tuple((f.column.name, f.expression) for f in mapped),
        part_expression=_part_expression(spec, mapped, keys, where),
        address=address,
        form=form,
        statement_rows=spec.statement_rows,
        packet_bytes=catalog.server.max_allowed_packet,
        apply_timeout_s=spec.apply_timeout_s,
        lineage=spec.lineage,
    )


def _find_table(catalog: Catalog, spec: TableSpec, rows: pa.Schema, where: str) -> Table:
    """Return the table; refuse one that cannot roll back."""
    table = catalog.table(spec.table)
    if table is None:
        raise TargetMissing(
            f"{where}: the table does not exist, or this user may not see it",
            data=_NOTHING,
            do="create it, or grant SELECT, INSERT and UPDATE on it; such as: "
            + suggest_create_table(
                spec.table, spec.keys, [(s.name, s.type) for s in sources(rows, spec.columns)]
            ),
        )
    if (table.engine or "").lower() != "innodb":
        kind = f"of engine {table.engine}" if table.engine else f"a {table.kind.lower()}"
        raise PreflightFailed(
            f"{where}: it is {kind}; only InnoDB tables roll back with their marker",
            data="nothing was written; in another engine an error would leave a part of an epoch",
            do=f"ALTER TABLE {spec.table} ENGINE=InnoDB, or write to the base table of the view",
        )
    return table


def _keys(
    spec: TableSpec, table: Table, mapped: tuple[MappedColumn, ...], where: str
) -> tuple[str, ...]:
    """Return the keys as the table spells them; they must be written and be a unique key."""
    written = {f.column.name.lower(): f.column.name for f in mapped}
    missing = [key for key in spec.keys if key.lower() not in written]
    if missing:
        raise SchemaMismatch(
            f"{where}: keys= names {', '.join(missing)}, which is not among the written columns",
            data=_NOTHING,
            do="add the key's columns to the DataFrame",
        )
    keys = tuple(written[key.lower()] for key in spec.keys)
    if spec.on_conflict == "error" or any(i.is_exactly(keys) for i in table.unique):
        return keys
    unique = "; ".join(str(i) for i in table.unique) or "none"
    raise PreflightFailed(
        f"{where}: ({', '.join(keys)}) is not a unique key, so on_conflict='{spec.on_conflict}' "
        f"would never find a row; unique keys: {unique}",
        data="nothing was written; without the key a repeated row would be stored twice",
        do=f"ALTER TABLE {spec.table} ADD UNIQUE KEY ({', '.join(keys)}), or correct keys=",
    )


def _check_no_other_key(
    spec: TableSpec,
    table: Table,
    mapped: tuple[MappedColumn, ...],
    keys: tuple[str, ...],
    where: str,
) -> None:
    """Refuse a second unique key on which rows can collide: they would change another row."""
    if spec.on_conflict == "error":
        return
    written = {f.column.name for f in mapped}
    others = [i for i in table.unique if not i.is_exactly(keys) and i.can_collide(table, written)]
    if others:
        raise PreflightFailed(
            f"{where}: besides keys=({', '.join(keys)}) rows can collide on {'; '.join(map(str, others))}",
            data="nothing was written; MySQL does not report which key collided, so on_conflict="
            f"'{spec.on_conflict}' would change a row of another key",
            do="drop the other unique key, omit its columns with columns=, or set on_conflict='error'",
        )


def _check_addable(
    spec: TableSpec, mapped: tuple[MappedColumn, ...], keys: tuple[str, ...], where: str
) -> None:
    numbers = (Family.INTEGER, Family.DECIMAL, Family.FLOAT)
    others = [f.column for f in mapped if f.column.name not in keys]
    wrong = [c.name for c in others if c.family not in numbers or c.kind in ("bit", "year")]
    if spec.on_conflict == "add" and (wrong or not others):
        raise SchemaMismatch(
            f"{where}: on_conflict='add' adds numbers; "
            + (
                f"{', '.join(wrong)} is not a number"
                if wrong
                else "there is no column besides the keys"
            ),
            data=_NOTHING,
            do="omit the column with columns=, make it a key, or set on_conflict='replace'",
        )


def _probe(connection: Connection, form: InsertForm, where: str) -> None:
    """Let the server check names and privileges, with a statement without rows."""
    try:
        connection.begin()
        with connection.cursor() as cursor:
            cursor.execute(form.probe())
        connection.rollback()
    except pymysql.err.Error as error:
        raise mysql_errors.preflight_error(error, where, "the server refuses a write") from error


def _part_expression(
    spec: TableSpec, mapped: tuple[MappedColumn, ...], keys: tuple[str, ...], where: str
) -> str | None:
    if spec.parts == 1:
        return None
    by_key = {f.column.name: part_key_expression(f) for f in mapped if f.column.name in keys}
    hashes = [expression for expression in by_key.values() if expression]
    if not hashes:
        raise PreflightFailed(
            f"{where}: parts={spec.parts} needs a key that Spark can compare as the server does; "
            f"{', '.join(_type_of(f.column) for f in mapped if f.column.name in keys)}",
            data="nothing was written; keys that only the server treats as equal would be in two "
            "parts, deadlock and lose their order",
            do="give the key column a binary collation such as utf8mb4_bin, or set parts=1",
        )
    ignored = [name for name, expression in by_key.items() if not expression]
    if ignored:
        _log.warning(
            "%s: the part of a row does not depend on key %s, which only the server can compare",
            where,
            ", ".join(ignored),
        )
    return f"CAST(pmod(xxhash64({', '.join(hashes)}), {spec.parts}L) AS INT)"


def _type_of(column: Column) -> str:
    return f"{column.name} is {column.declared}" + (
        f" with collation {column.collation}" if column.collation else ""
    )


def _log_warnings(
    catalog: Catalog, spec: TableSpec, table: Table, mapped: tuple[MappedColumn, ...], where: str
) -> None:
    """Log what is allowed but may surprise."""
    for name in catalog.triggers(table.name):
        _log.warning(
            "%s: trigger %s runs in every apply; its writes to tables that are not InnoDB, and its "
            "other side effects, are not exactly-once",
            where,
            name,
        )
    for name in catalog.constraints(table.name):
        _log.warning(
            "%s: constraint %s may refuse rows after they are decided; the epoch is then stuck "
            "until the constraint or the rows that it refers to are changed",
            where,
            name,
        )
    for f in mapped:
        # The ends of a window are almost always whole seconds.
        truncated = f.column.family is Family.DATETIME and f.column.step_us() > 1
        if truncated and pa.types.is_timestamp(f.source.type) and not f.source.optional:
            _log.warning(
                "%s: column %s is %s; finer fractions of a second are truncated",
                where,
                f.column.name,
                f.column.declared,
            )
    server = catalog.server
    _log.info("%s: %s, max_allowed_packet %d", where, server.version, server.max_allowed_packet)
    if server.max_allowed_packet < _SMALL_PACKET_BYTES:
        _log.warning(
            "%s: max_allowed_packet is only %d bytes: statements of %d rows may be split, and "
            "longer rows are refused",
            where,
            server.max_allowed_packet,
            spec.statement_rows,
        )
    if server.loses_commits:
        _log.warning(
            "%s: %s: a crash of the server may lose commits; they are repeated from retained records",
            where,
            server.loses_commits,
        )
