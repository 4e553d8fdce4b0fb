"""Builds multi-row INSERT statements from staged rows. Pure.

One statement writes about `statement_rows` rows, fewer if they would exceed the server's
`max_allowed_packet`. The rows' text is one Arrow buffer that is copied once into the packet: measured
1.6 times as fast as the driver's executemany.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from sluicegate.sinks.contract import quoted
from sluicegate.sinks.mysql.column_types import Column
from sluicegate.sinks.mysql.literals import row_literals

PACKET_SLACK = 1024
"""Bytes of a packet that are reserved for the protocol."""
_MAX_BATCH_BYTES = 64 << 20
"""The most rows whose text is built at once: an Arrow string array ends at 2 GiB, memory earlier."""


@dataclass(frozen=True)
class InsertForm:
    """The form of an INSERT statement.

    Args:
        keys: the columns by which rows conflict.
        on_conflict: 'replace', 'add', 'ignore' or 'error'.
        aliased: the statement aliases the new row (MySQL from 8.0.20); otherwise it uses VALUES().
    """

    table: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    on_conflict: str
    aliased: bool

    def __str__(self) -> str:
        """Return what changes the result for the same staged rows."""
        names = ", ".join(sorted(column.name for column in self.columns))
        by = f" by {', '.join(sorted(self.keys))}" if self.keys else ""
        return f"{self.on_conflict}{by}: {names}"

    def head(self) -> str:
        """Return the text before the rows."""
        names = ", ".join(quoted(c.name) for c in self.columns)
        return f"INSERT INTO {quoted(self.table)} ({names})"

    def tail(self, *, aliased: bool | None = None) -> str:
        """Return the text after the rows."""
        if self.on_conflict == "error":
            return ""
        aliased = self.aliased if aliased is None else aliased
        sets = ", ".join(self._set(name, aliased=aliased) for name in self._updated_columns())
        return f"{f' AS {self._alias}' if aliased else ''} ON DUPLICATE KEY UPDATE {sets}"

    def probe(self) -> str:
        """Return a statement that writes nothing but needs the same columns and privileges."""
        nulls = ", ".join("NULL" for _ in self.columns)
        return f"{self.head()} SELECT {nulls} FROM DUAL WHERE FALSE {self.tail(aliased=False)}"  # noqa: S608 - quoted names

    def overhead(self) -> int:
        """Return how many bytes of a packet are not rows."""
        text = self.head() + " VALUES " + self.tail()
        return len(text.encode()) + PACKET_SLACK

    @property
    def _alias(self) -> str:
        """The name of the new row, which must not be the table's."""
        return "incoming_row" if self.table.lower() == "incoming" else "incoming"

    def _updated_columns(self) -> tuple[str, ...]:
        rest = tuple(c.name for c in self.columns if c.name not in self.keys)
        # Something must be set: setting a key to itself changes nothing. INSERT IGNORE would also
        # ignore every other error.
        return self.keys[:1] if self.on_conflict == "ignore" or not rest else rest

    def _set(self, name: str, *, aliased: bool) -> str:
        column, old = quoted(name), f"{quoted(self.table)}.{quoted(name)}"
        new = f"{self._alias}.{column}" if aliased else f"VALUES({column})"
        if name in self.keys:
            return f"{column} = {old}"
        if self.on_conflict == "add":
            return f"{column} = IF({new} IS NULL, {old}, COALESCE({old}, 0) + {new})"
        return f"{column} = {new}"


@dataclass(frozen=True)
class Statement:
    """One INSERT, ready to send."""

    sql: bytes
    rows: int


def inserts(
    batches: Iterable[pa.RecordBatch], form: InsertForm, *, statement_rows: int, packet_bytes: int
) -> Iterator[Statement]:
    """Yield statements that write all rows in order.

    A key that occurs twice is written twice, in order, in one statement as in two: with 'replace' the
    last row wins.
    """
    head, tail = f"{form.head()} VALUES ".encode(), form.tail().encode()
    row_bytes = packet_bytes - form.overhead()
    for batch in _regroup(batches, statement_rows):
        rows = row_literals(batch, form.columns)
        for piece in _split(rows, row_bytes):
            sql = b"".join([head, _text(piece)[1:], tail])  # without the first row's comma
            yield Statement(sql, len(piece))


def _regroup(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of about `rows` rows and at most `_MAX_BATCH_BYTES`."""
    group: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        for piece in _slices(batch, rows):
            if group and (count + piece.num_rows > rows or size + piece.nbytes > _MAX_BATCH_BYTES):
                yield _concat(group)
                group, count, size = [], 0, 0
            group.append(piece)
            count, size = count + piece.num_rows, size + piece.nbytes
    if group:
        yield _concat(group)


def _slices(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield a batch in slices of at most `rows` rows and about `_MAX_BATCH_BYTES`."""
    if batch.num_rows and batch.nbytes > _MAX_BATCH_BYTES:
        rows = min(rows, max(1, batch.num_rows * _MAX_BATCH_BYTES // batch.nbytes))
    for begin in range(0, batch.num_rows, rows):
        yield batch.slice(begin, rows)


def _concat(group: list[pa.RecordBatch]) -> pa.RecordBatch:
    (batch,) = pa.Table.from_batches(group).combine_chunks().to_batches()
    return batch


def _split(rows: pa.Array, max_bytes: int) -> Iterator[pa.Array]:
    """Yield the rows in runs that fit a packet; a single row is yielded whatever its size."""
    if len(rows) > 1 and pc.sum(pc.binary_length(rows)).as_py() > max_bytes:
        half = len(rows) // 2
        yield from _split(rows.slice(0, half), max_bytes)
        yield from _split(rows.slice(half), max_bytes)
        return
    yield rows


def _text(rows: pa.Array) -> memoryview:
    """Return the rows' text, which is contiguous in the array's buffer."""
    _, offsets, data = rows.buffers()
    bounds = pa.Array.from_buffers(pa.int32(), rows.offset + len(rows) + 1, [None, offsets])
    start, end = bounds[rows.offset].as_py(), bounds[rows.offset + len(rows)].as_py()
    return memoryview(data)[start:end]
