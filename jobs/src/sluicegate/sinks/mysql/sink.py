"""What a user writes to send rows to a table: `MySQLSink`.

Not here: the checks against the server (preflight). Called by jobs; `bind` by the library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import pyarrow as pa

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate.sinks.mysql.bound import BoundMySQL
from sluicegate.sinks.mysql.preflight import Wish, preflight
from sluicegate.sinks.mysql.session import Address

OnConflict = Literal["replace", "add", "ignore", "error"]
_ID_CHARS = 190
"""Longest sink id that fits the marker table's key."""


@dataclass(frozen=True)
class MySQLSink:
    """Rows of a DataFrame into a table of MySQL or MariaDB, exactly once.

    Struct columns are spread: `window.start` goes into column `window_start`. Names are matched
    without regard to case.

    Args:
        table: its name, without a database.
        keys: columns of the primary or of a unique key; needed unless on_conflict is 'error'.
        on_conflict: what happens to a row whose key is there. 'replace': its other columns take
            the new values, the last row of an epoch wins. 'add': numbers are added (a null adds
            nothing). 'ignore': the row that is there stays. 'error': the epoch is stuck.
        columns: names of the values to write; None: all.
        url: mysql://user:password@host:port/database; None: the environment's SLUICEGATE_MYSQL.
        id: the sink's name in markers and records; left out: mysql.<table>. Keep it over restarts.
        of: which output of the job it takes, where there are several.
        parts: transactions that an epoch is written in, in parallel; rows are told apart by keys.
        statement_rows: rows an INSERT has, about.
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
        """Fill in the id, and refuse settings that cannot work anywhere."""
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
        """Check the table against the rows and make the marker table: see `contract.Sink`."""
        wish = Wish(
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
        return preflight(wish, Address.parse(self.url), rows)

    def _checks(self) -> tuple[tuple[bool, str, str], ...]:
        return (
            (
                not self.table or self.table != self.table.strip(),
                "the name is empty or padded",
                "name it",
            ),
            ("." in self.table, "the name has a dot", "put the database into the url, not here"),
            (
                self.on_conflict not in get_args(OnConflict),
                f"on_conflict={self.on_conflict!r} is not known",
                f"choose one of {', '.join(get_args(OnConflict))}",
            ),
            (
                self.on_conflict != "error" and not self.keys,
                f"on_conflict='{self.on_conflict}' needs keys=",
                "name the columns of the primary or of a unique key, or set on_conflict='error'",
            ),
            (self.parts < 1, f"parts={self.parts} is below 1", "set parts to 1 or more"),
            (
                self.parts > 1 and not self.keys,
                f"parts={self.parts} needs keys=: rows of one key must share a part",
                "name the key's columns, or set parts=1",
            ),
            (self.statement_rows < 1, "statement_rows is below 1", "set it to 1 or more"),
            (
                not 0 < len(self.id) <= _ID_CHARS or self.id != self.id.strip(),
                f"id={self.id!r} is empty, padded or longer than {_ID_CHARS} characters",
                "give a short id=",
            ),
        )
