"""The preflight: everything about a table that can be known before a row is written.

What fails here costs nothing; what slips through leaves a decided epoch stuck. Not here: how the
server is asked (catalog), which value goes where (fitting), single rows (refusals). Called by
`MySQLSink.bind`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pyarrow as pa
import pymysql

from sluicegate.protocol.errors import PreflightFailed, SchemaMismatch, TargetMissing
from sluicegate.protocol.record import SinkBinding
from sluicegate.sinks.mysql import faults
from sluicegate.sinks.mysql.bound import BoundMySQL
from sluicegate.sinks.mysql.catalog import Catalog, Table, create_markers, suggested
from sluicegate.sinks.mysql.columns import Column, Family
from sluicegate.sinks.mysql.fitting import Fitted, fit, hashed_for_part, sources
from sluicegate.sinks.mysql.session import Address, Connection, connect
from sluicegate.sinks.mysql.statements import InsertForm
from sluicegate.sinks.mysql.writer import MARKERS

_log = logging.getLogger(__name__)
_NOTHING = "nothing was written; the job has not started"
_MIN_TIMEOUT_S = 1.0
_LINEAGE_CHARS = 64
_SMALL_PACKET_BYTES = 1 << 20


@dataclass(frozen=True)
class Wish:
    """What the user asked for, with what the library adds; see `MySQLSink` for the fields."""

    id: str
    table: str
    keys: tuple[str, ...]
    on_conflict: str
    columns: tuple[str, ...] | None
    parts: int
    statement_rows: int
    lineage: str
    apply_timeout_s: float


def preflight(wish: Wish, address: Address, rows: pa.Schema) -> BoundMySQL:
    """Return the bound sink, or say why the job cannot start.

    Raises:
        PreflightFailed: or one of its kinds; nothing was written.
        SinkUnavailable: the server does not answer.
    """
    where = f"sink {wish.id}, table {address.database}.{wish.table}"
    if not 0 < len(wish.lineage) <= _LINEAGE_CHARS or wish.apply_timeout_s < _MIN_TIMEOUT_S:
        raise PreflightFailed(
            f"{where}: lineage {wish.lineage!r} or apply timeout {wish.apply_timeout_s} cannot work",
            data=_NOTHING,
            do=f"use a lineage of at most {_LINEAGE_CHARS} characters and a timeout from "
            f"{_MIN_TIMEOUT_S:g} s on",
        )
    connection = connect(address, timeout_s=wish.apply_timeout_s)
    try:
        return _bind(connection, wish, address, rows, where)
    except pymysql.err.Error as error:
        raise faults.in_preflight(error, where, "looking at the table") from error
    finally:
        if connection.open:
            connection.close()


def _bind(
    connection: Connection, wish: Wish, address: Address, rows: pa.Schema, where: str
) -> BoundMySQL:
    catalog = Catalog(connection)
    table = _table(catalog, wish, rows, where)
    fitted = fit(rows, table.by_lower_name(), wanted=wish.columns, where=where)
    keys = _keys(wish, table, fitted, where)
    _no_other_key(wish, table, fitted, keys, where)
    _addable(wish, fitted, keys, where)
    _warn(catalog, wish, table, fitted, where)
    form = InsertForm(
        table=table.name,
        columns=tuple(f.column for f in fitted),
        keys=keys if wish.on_conflict != "error" or wish.parts > 1 else (),
        on_conflict=wish.on_conflict,
        aliased=catalog.server.aliases_rows,
    )
    _probe(connection, form, where)
    create_markers(connection, catalog, where)
    return BoundMySQL(
        id=wish.id,
        binding=SinkBinding(
            kind="mysql",
            target=f"table {address.database}.{table.name}",
            parts=wish.parts,
            marker_key=f"{MARKERS}:{wish.id}",
        ),
        expressions=tuple((f.column.name, f.expression) for f in fitted),
        part_expression=_part_expression(wish, fitted, keys, where),
        address=address,
        form=form,
        statement_rows=wish.statement_rows,
        packet_bytes=catalog.server.max_allowed_packet,
        apply_timeout_s=wish.apply_timeout_s,
        lineage=wish.lineage,
    )


def _table(catalog: Catalog, wish: Wish, rows: pa.Schema, where: str) -> Table:
    """Return the table if it is one that an apply can roll back."""
    table = catalog.table(wish.table)
    if table is None:
        raise TargetMissing(
            f"{where}: the table does not exist, or this user may not see it",
            data=_NOTHING,
            do="create it, or grant SELECT, INSERT and UPDATE on it; such as: "
            + suggested(
                wish.table, wish.keys, [(s.name, s.type) for s in sources(rows, wish.columns)]
            ),
        )
    if (table.engine or "").lower() != "innodb":
        kind = f"of engine {table.engine}" if table.engine else f"a {table.kind.lower()}"
        raise PreflightFailed(
            f"{where}: it is {kind}; only InnoDB tables roll back with their marker",
            data="nothing was written. In another engine an error would leave half of an epoch",
            do=f"ALTER TABLE {wish.table} ENGINE=InnoDB, or write to the table beneath",
        )
    return table


def _keys(wish: Wish, table: Table, fitted: tuple[Fitted, ...], where: str) -> tuple[str, ...]:
    """Return the keys in the table's spelling; they are one unique key and are supplied."""
    written = {f.column.name.lower(): f.column.name for f in fitted}
    missing = [key for key in wish.keys if key.lower() not in written]
    if missing:
        raise SchemaMismatch(
            f"{where}: keys= names {', '.join(missing)}, which is not among the columns written",
            data=_NOTHING,
            do="supply the key's columns from the DataFrame",
        )
    keys = tuple(written[key.lower()] for key in wish.keys)
    if wish.on_conflict == "error" or any(i.is_exactly(keys) for i in table.unique):
        return keys
    there = "; ".join(str(i) for i in table.unique) or "none"
    raise PreflightFailed(
        f"{where}: ({', '.join(keys)}) is not a unique key, so on_conflict='{wish.on_conflict}' "
        f"would never find a row; unique keys: {there}",
        data="nothing was written. Without the key a repeated row would be there twice",
        do=f"ALTER TABLE {wish.table} ADD UNIQUE KEY ({', '.join(keys)}), or correct keys=",
    )


def _no_other_key(
    wish: Wish, table: Table, fitted: tuple[Fitted, ...], keys: tuple[str, ...], where: str
) -> None:
    """Refuse a second unique key that rows can meet: they would change another row."""
    if wish.on_conflict == "error":
        return
    written = {f.column.name for f in fitted}
    others = [i for i in table.unique if not i.is_exactly(keys) and i.can_be_met(table, written)]
    if others:
        raise PreflightFailed(
            f"{where}: besides keys=({', '.join(keys)}) rows can collide on {'; '.join(map(str, others))}",
            data="nothing was written. MySQL does not say which key collided, so on_conflict="
            f"'{wish.on_conflict}' would change a row of another key",
            do="drop the other unique key, leave its columns out with columns=, or set on_conflict='error'",
        )


def _addable(wish: Wish, fitted: tuple[Fitted, ...], keys: tuple[str, ...], where: str) -> None:
    numbers = (Family.INTEGER, Family.DECIMAL, Family.FLOAT)
    others = [f.column for f in fitted if f.column.name not in keys]
    wrong = [c.name for c in others if c.family not in numbers or c.kind in ("bit", "year")]
    if wish.on_conflict == "add" and (wrong or not others):
        raise SchemaMismatch(
            f"{where}: on_conflict='add' adds numbers; "
            + (f"{', '.join(wrong)} is none" if wrong else "there is no column besides the keys"),
            data=_NOTHING,
            do="leave the column out with columns=, make it a key, or set on_conflict='replace'",
        )


def _probe(connection: Connection, form: InsertForm, where: str) -> None:
    """Let the server check names and privileges, with a statement of no rows."""
    try:
        connection.begin()
        with connection.cursor() as cursor:
            cursor.execute(form.probe())
        connection.rollback()
    except pymysql.err.Error as error:
        raise faults.in_preflight(error, where, "the server refuses to write") from error


def _part_expression(
    wish: Wish, fitted: tuple[Fitted, ...], keys: tuple[str, ...], where: str
) -> str | None:
    if wish.parts == 1:
        return None
    of_keys = {f.column.name: hashed_for_part(f) for f in fitted if f.column.name in keys}
    hashed = [expression for expression in of_keys.values() if expression]
    if not hashed:
        raise PreflightFailed(
            f"{where}: parts={wish.parts} needs a key whose equality Spark knows; "
            f"{', '.join(_why_not(f.column) for f in fitted if f.column.name in keys)}",
            data="nothing was written. Keys that only the server holds equal would be in two "
            "parts, deadlock and lose their order",
            do="give the key column a binary collation such as utf8mb4_bin, or set parts=1",
        )
    left_out = [name for name, expression in of_keys.items() if not expression]
    if left_out:
        _log.warning(
            "%s: rows are spread over parts without key %s, whose equality only the server knows",
            where,
            ", ".join(left_out),
        )
    return f"CAST(pmod(xxhash64({', '.join(hashed)}), {wish.parts}L) AS INT)"


def _why_not(column: Column) -> str:
    return f"{column.name} is {column.declared}" + (
        f" with collation {column.collation}" if column.collation else ""
    )


def _warn(
    catalog: Catalog, wish: Wish, table: Table, fitted: tuple[Fitted, ...], where: str
) -> None:
    """Name what is allowed and surprises."""
    for name in catalog.triggers(table.name):
        _log.warning(
            "%s: trigger %s runs in every apply; what it writes to tables that are not InnoDB, or "
            "sends elsewhere, is not exactly-once",
            where,
            name,
        )
    for name in catalog.constraints(table.name):
        _log.warning(
            "%s: constraint %s may refuse rows after they are decided; the epoch is then stuck "
            "until the constraint or what it refers to is changed",
            where,
            name,
        )
    for f in fitted:
        # The ends of a window are whole seconds nearly always.
        cut = f.column.family is Family.DATETIME and f.column.step_us() > 1
        if cut and pa.types.is_timestamp(f.source.type) and not f.source.spared:
            _log.warning(
                "%s: column %s is %s; further digits of a second are cut off",
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
            wish.statement_rows,
        )
    if server.loses_commits:
        _log.warning(
            "%s: %s: a crash of the server may lose commits; they are redone from kept records",
            where,
            server.loses_commits,
        )
