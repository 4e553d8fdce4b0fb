"""`MySQLSink`: what a user writes to send rows to a table of MySQL or MariaDB; and its preflight."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import pyarrow as pa
import pymysql

from sluicegate.errors import PreflightFailed, SchemaMismatch, SettingsInvalid, TargetMissing
from sluicegate.protocol.record import SinkBinding
from sluicegate.sinks.mysql import errors as mysql_errors
from sluicegate.sinks.mysql.catalog import Catalog, Table, create_markers, suggest_create_table
from sluicegate.sinks.mysql.column_mapping import map_columns, part_key_expression, sources
from sluicegate.sinks.mysql.column_types import Column, Family
from sluicegate.sinks.mysql.connection import Address, connect
from sluicegate.sinks.mysql.statements import InsertForm
from sluicegate.sinks.mysql.writer import MARKERS, BoundMySQL

OnConflict = Literal["replace", "add", "ignore", "error"]
_MAX_ID_CHARS = 190
"""The length of the marker table's column."""

_NOTHING = "nothing was written; the job has not started"
_MIN_TIMEOUT_S = 1.0
_MAX_LINEAGE_CHARS = 64
_SMALL_PACKET_BYTES = 1 << 20

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MySQLSink:
    """Writes the rows of a DataFrame to a table of MySQL or MariaDB, exactly once.

    Struct columns are flattened: `window.start` goes into column `window_start`. Names are
    case-insensitive.

    Args:
        table: its name, without a database.
        keys: columns of the primary or of a unique key; required unless on_conflict is 'error'.
        on_conflict: what happens if a row with the same key exists. 'replace': its other columns are
            updated, the last row of an epoch wins. 'add': numbers are added (a null adds nothing).
            'ignore': the existing row stays. 'error': the epoch is stuck.
        columns: names of the values to write; None: all.
        url: mysql://user:password@host:port/database; None: the variable SLUICEGATE_MYSQL.
        id: unique in the job, stable across restarts; default: mysql.<table>.
        of: the output of the job that it writes, if there are several.
        parts: how many transactions write an epoch in parallel; a row's part depends on its keys.
        statement_rows: approximate number of rows per INSERT.
    """

    redoable: ClassVar[bool] = True

    table: str
    keys: Sequence[str] = ()
    on_conflict: OnConflict = "replace"
    columns: Sequence[str] | None = None
    url: str | None = field(default=None, repr=False)
    id: str = ""
    of: str | None = None
    parts: int = 1
    statement_rows: int = 10_000

    def __post_init__(self) -> None:
        keys = (self.keys,) if isinstance(self.keys, str) else tuple(self.keys)
        object.__setattr__(self, "keys", keys)
        if self.columns is not None:
            object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "id", self.id or f"mysql.{self.table}")
        for problem, do in self._problems():
            raise SettingsInvalid(
                f"MySQLSink for table {self.table}: {problem}", data="nothing was written", do=do
            )

    def bind(self, rows: pa.Schema, *, lineage: str, apply_timeout_s: float) -> BoundMySQL:
        """Check the table against the rows and create the marker table; see the contract."""
        address = Address.parse(self.url)
        where = f"sink {self.id}, table {address.database}.{self.table}"
        if not 0 < len(lineage) <= _MAX_LINEAGE_CHARS or apply_timeout_s < _MIN_TIMEOUT_S:
            raise PreflightFailed(
                f"{where}: lineage {lineage!r} or apply timeout {apply_timeout_s} is invalid",
                data=_NOTHING,
                do=f"use a lineage of at most {_MAX_LINEAGE_CHARS} characters and a timeout of at least "
                f"{_MIN_TIMEOUT_S:g} s",
            )
        with connect(address, timeout_s=apply_timeout_s) as connection:
            try:
                catalog = Catalog(connection)
                if exposure := address.exposure(catalog.server.cipher):
                    _log.warning("%s: %s; see ssl-mode in docs/guides/tls.md", where, exposure)
                checks = _Preflight(self, catalog, rows, where)
                form = checks.run()
                create_markers(checks.catalog, where)
                target = f"table {address.database}.{form.table}"
                return BoundMySQL(
                    id=self.id,
                    binding=SinkBinding(
                        "mysql", target, self.parts, f"{MARKERS}:{self.id}", form=str(form)
                    ),
                    expressions=tuple((f.column.name, f.expression) for f in checks.mapped),
                    part_expression=checks.part_expression(),
                    address=address,
                    form=form,
                    statement_rows=self.statement_rows,
                    packet_bytes=checks.catalog.server.max_allowed_packet,
                    apply_timeout_s=apply_timeout_s,
                    lineage=lineage,
                )
            except pymysql.err.Error as error:
                raise mysql_errors.preflight_error(
                    error, where, "reading the table's definition"
                ) from error

    def _problems(self) -> Iterator[tuple[str, str]]:
        """Yield the settings that no server accepts, each with what to do."""
        if not self.table or self.table != self.table.strip():
            yield "the name is empty or padded", "give the table's name"
        if "." in self.table:
            yield "the name has a dot", "name the database in the url only"
        if self.on_conflict not in get_args(OnConflict):
            choices = ", ".join(get_args(OnConflict))
            yield f"on_conflict={self.on_conflict!r} is unknown", f"use one of {choices}"
        if self.on_conflict != "error" and not self.keys:
            do = "name the columns of the primary or of a unique key, or set on_conflict='error'"
            yield f"on_conflict='{self.on_conflict}' needs keys=", do
        if self.parts < 1:
            yield f"parts={self.parts} is below 1", "set parts to 1 or more"
        if self.parts > 1 and not self.keys:
            problem = f"parts={self.parts} needs keys=: rows with the same key must share a part"
            yield problem, "name the key's columns, or set parts=1"
        if self.statement_rows < 1:
            yield "statement_rows is below 1", "set it to 1 or more"
        if not 0 < len(self.id) <= _MAX_ID_CHARS or self.id != self.id.strip():
            problem = f"id={self.id!r} is empty, padded or longer than {_MAX_ID_CHARS} characters"
            yield problem, "give a short id="


class _Preflight:
    """Checks everything about a table that can be checked before a row is written.

    A failure here costs nothing; a problem that it misses leaves a decided epoch stuck.
    """

    def __init__(self, sink: MySQLSink, catalog: Catalog, rows: pa.Schema, where: str) -> None:
        self._sink, self.catalog, self._where = sink, catalog, where
        self._table = self._find_table(rows)
        by_name = self._table.by_lower_name()
        self.mapped = map_columns(rows, by_name, wanted=sink.columns, where=where)
        self._columns = tuple(f.column for f in self.mapped)
        self._keys = self._find_keys()

    def run(self) -> InsertForm:
        """Check everything and return the form of the statements."""
        if self._sink.on_conflict != "error":
            self._check_no_other_key()
        if self._sink.on_conflict == "add":
            self._check_addable()
        for warning in self._warnings():
            _log.warning("%s: %s", self._where, warning)
        needs_keys = self._sink.on_conflict != "error" or self._sink.parts > 1
        form = InsertForm(
            table=self._table.name,
            columns=self._columns,
            keys=self._keys if needs_keys else (),
            on_conflict=self._sink.on_conflict,
            aliased=self.catalog.server.aliases_rows,
        )
        try:
            self.catalog.probe(form.probe())
        except pymysql.err.Error as error:
            raise mysql_errors.preflight_error(
                error, self._where, "the server refuses a write"
            ) from error
        return form

    def part_expression(self) -> str | None:
        """Return Spark SQL of a row's part, None for one part."""
        if self._sink.parts == 1:
            return None
        keys = [f for f in self.mapped if f.column.name in self._keys]
        by_key = {f.column.name: part_key_expression(f) for f in keys}
        hashes = [expression for expression in by_key.values() if expression]
        if not hashes:
            raise PreflightFailed(
                f"{self._where}: parts={self._sink.parts} needs a key that Spark can compare as the "
                f"server does; {', '.join(_type_of(f.column) for f in keys)}",
                data="nothing was written; keys that only the server treats as equal would be in two "
                "parts, deadlock and lose their order",
                do="give the key column a binary collation such as utf8mb4_bin, or set parts=1",
            )
        ignored = [name for name, expression in by_key.items() if not expression]
        if ignored:
            _log.warning(
                "%s: the part of a row does not depend on key %s, which only the server can compare",
                self._where,
                ", ".join(ignored),
            )
        return f"CAST(pmod(xxhash64({', '.join(hashes)}), {self._sink.parts}L) AS INT)"

    def _find_table(self, rows: pa.Schema) -> Table:
        """Return the table; refuse one that cannot roll back."""
        sink, where = self._sink, self._where
        table = self.catalog.table(sink.table)
        if table is None:
            values = [(s.name, s.type) for s in sources(rows, sink.columns)]
            raise TargetMissing(
                f"{where}: the table does not exist, or this user may not see it",
                data=_NOTHING,
                do="create it, or grant SELECT, INSERT and UPDATE on it; such as: "
                + suggest_create_table(sink.table, sink.keys, values),
            )
        if (table.engine or "").lower() != "innodb":
            kind = f"of engine {table.engine}" if table.engine else f"a {table.kind.lower()}"
            raise PreflightFailed(
                f"{where}: it is {kind}; only InnoDB tables roll back with their marker",
                data="nothing was written; in another engine an error would leave a part of an epoch",
                do=f"ALTER TABLE {sink.table} ENGINE=InnoDB, or write to the base table of the view",
            )
        return table

    def _find_keys(self) -> tuple[str, ...]:
        """Return the keys as the table spells them; they must be written and be a unique key."""
        sink, where = self._sink, self._where
        written = {column.name.lower(): column.name for column in self._columns}
        missing = [key for key in sink.keys if key.lower() not in written]
        if missing:
            raise SchemaMismatch(
                f"{where}: keys= names {', '.join(missing)}, which is not among the written columns",
                data=_NOTHING,
                do="add the key's columns to the DataFrame",
            )
        keys = tuple(written[key.lower()] for key in sink.keys)
        if sink.on_conflict == "error" or any(i.is_exactly(keys) for i in self._table.unique):
            return keys
        unique = "; ".join(str(i) for i in self._table.unique) or "none"
        raise PreflightFailed(
            f"{where}: ({', '.join(keys)}) is not a unique key, so on_conflict='{sink.on_conflict}' "
            f"would never find a row; unique keys: {unique}",
            data="nothing was written; without the key a repeated row would be stored twice",
            do=f"ALTER TABLE {sink.table} ADD UNIQUE KEY ({', '.join(keys)}), or correct keys=",
        )

    def _check_no_other_key(self) -> None:
        """Refuse a second unique key on which rows can collide: they would change another row."""
        table, keys = self._table, self._keys
        written = {column.name for column in self._columns}
        others = [
            i for i in table.unique if not i.is_exactly(keys) and i.can_collide(table, written)
        ]
        if others:
            raise PreflightFailed(
                f"{self._where}: besides keys=({', '.join(keys)}) rows can collide on "
                f"{'; '.join(map(str, others))}",
                data="nothing was written; MySQL does not report which key collided, so on_conflict="
                f"'{self._sink.on_conflict}' would change a row of another key",
                do="drop the other unique key, omit its columns with columns=, make a column that the "
                "server numbers a BIGINT, or set on_conflict='error'",
            )

    def _check_addable(self) -> None:
        numbers = (Family.INTEGER, Family.DECIMAL, Family.FLOAT)
        others = [column for column in self._columns if column.name not in self._keys]
        wrong = [c.name for c in others if c.family not in numbers or c.kind in ("bit", "year")]
        if wrong or not others:
            problem = "there is no column besides the keys"
            if wrong:
                problem = f"{', '.join(wrong)} is not a number"
            raise SchemaMismatch(
                f"{self._where}: on_conflict='add' adds numbers; {problem}",
                data=_NOTHING,
                do="omit the column with columns=, make it a key, or set on_conflict='replace'",
            )

    def _warnings(self) -> Iterator[str]:
        """Yield what is allowed but may surprise."""
        for name in self.catalog.triggers(self._table.name):
            yield (
                f"trigger {name} runs in every apply; its writes to tables that are not InnoDB, and its "
                "other side effects, are not exactly-once"
            )
        for name in self._table.constraints:
            yield (
                f"constraint {name} may refuse rows after they are decided; the epoch is then stuck "
                "until the constraint or the rows that it refers to are changed"
            )
        for f in self.mapped:
            # The ends of a window are almost always whole seconds.
            truncated = f.column.family is Family.DATETIME and f.column.step_us() > 1
            if truncated and pa.types.is_timestamp(f.source.type) and not f.source.other_end:
                yield (
                    f"column {f.column.name} is {f.column.declared}; "
                    "finer fractions of a second are truncated"
                )
        server = self.catalog.server
        packet_bytes = server.max_allowed_packet
        _log.info("%s: %s, max_allowed_packet %d", self._where, server.version, packet_bytes)
        if packet_bytes < _SMALL_PACKET_BYTES:
            yield (
                f"max_allowed_packet is only {packet_bytes} bytes: statements of "
                f"{self._sink.statement_rows} rows may be split, and longer rows are refused"
            )
        if server.loses_commits:
            yield (
                f"{server.loses_commits}: a crash of the server may lose commits; "
                "they are repeated from retained records"
            )


def _type_of(column: Column) -> str:
    collation = f" with collation {column.collation}" if column.collation else ""
    return f"{column.name} is {column.declared}{collation}"
