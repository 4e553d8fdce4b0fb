"""`MySQLSink`: what a user writes to send rows to a table of MySQL or MariaDB."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import pyarrow as pa

from sluicegate.errors import SettingsInvalid
from sluicegate.sinks.mysql.bound_sink import BoundMySQL
from sluicegate.sinks.mysql.connection import Address
from sluicegate.sinks.mysql.preflight import TableSpec, preflight

OnConflict = Literal["replace", "add", "ignore", "error"]
_MAX_ID_CHARS = 190
"""The length of the marker table's column."""


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
        """Fill in the id, and refuse settings that no server accepts."""
        keys = (self.keys,) if isinstance(self.keys, str) else tuple(self.keys)
        object.__setattr__(self, "keys", keys)
        if self.columns is not None:
            object.__setattr__(self, "columns", tuple(self.columns))
        if not self.id:
            object.__setattr__(self, "id", f"mysql.{self.table}")
        for wrong, reason, do in self._checks():
            if wrong:
                raise SettingsInvalid(
                    f"MySQLSink for table {self.table}: {reason}", data="nothing was written", do=do
                )

    def bind(self, rows: pa.Schema, *, lineage: str, apply_timeout_s: float) -> BoundMySQL:
        """Check the table against the rows and create the marker table; see the contract."""
        spec = TableSpec(
            id=self.id,
            table=self.table,
            keys=tuple(self.keys),
            on_conflict=self.on_conflict,
            columns=None if self.columns is None else tuple(self.columns),
            parts=self.parts,
            statement_rows=self.statement_rows,
            lineage=lineage,
            apply_timeout_s=apply_timeout_s,
        )
        return preflight(spec, Address.parse(self.url), rows)

    def _checks(self) -> tuple[tuple[bool, str, str], ...]:
        return (
            (
                not self.table or self.table != self.table.strip(),
                "the name is empty or padded",
                "give the table's name",
            ),
            ("." in self.table, "the name has a dot", "name the database in the url only"),
            (
                self.on_conflict not in get_args(OnConflict),
                f"on_conflict={self.on_conflict!r} is unknown",
                f"use one of {', '.join(get_args(OnConflict))}",
            ),
            (
                self.on_conflict != "error" and not self.keys,
                f"on_conflict='{self.on_conflict}' needs keys=",
                "name the columns of the primary or of a unique key, or set on_conflict='error'",
            ),
            (self.parts < 1, f"parts={self.parts} is below 1", "set parts to 1 or more"),
            (
                self.parts > 1 and not self.keys,
                f"parts={self.parts} needs keys=: rows with the same key must share a part",
                "name the key's columns, or set parts=1",
            ),
            (self.statement_rows < 1, "statement_rows is below 1", "set it to 1 or more"),
            (
                not 0 < len(self.id) <= _MAX_ID_CHARS or self.id != self.id.strip(),
                f"id={self.id!r} is empty, padded or longer than {_MAX_ID_CHARS} characters",
                "give a short id=",
            ),
        )
