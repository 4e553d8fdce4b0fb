"""Whether a sink refuses a row, by the limits that its server names: the length of columns and records.

Written for the columns of the packaged jobs. It shares nothing with the sinks' own validation, which
made the dead letters that are judged here.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from sluicegate.sinks.mysql.column_types import Column, Family

_RECORD_OVERHEAD_BYTES = 256
"""Bounds what a record adds to its key, value and headers, the header of its trace included."""

_PACKET_OVERHEAD_BYTES = 4096
"""Bounds what a statement adds to the text of a row."""

_CODECS = {"ascii": "ascii", "latin1": "cp1252"}
_LAST_OF_UTF8MB3 = "\uffff"

Row = Mapping[str, Any]
Headers = Sequence[tuple[str, bytes | None]]


class Refused(enum.Enum):
    """Whether a sink refuses a row."""

    NO = "no"
    YES = "yes"
    UNKNOWN = "unknown"
    """A limit applies that this module does not judge."""


def worst(verdicts: Iterable[Refused]) -> Refused:
    """Return the strongest of some verdicts; without any, the sink does not refuse."""
    found = set(verdicts)
    return next((v for v in (Refused.YES, Refused.UNKNOWN) if v in found), Refused.NO)


@dataclass(frozen=True)
class TopicLimits:
    """The limits of a topic.

    Args:
        record_bytes: its `max.message.bytes`.
        compacted: whether it refuses records without a key.
    """

    record_bytes: int
    compacted: bool = False

    def refuses(self, key: bytes | None, value: bytes | None, headers: Headers = ()) -> Refused:
        """Judge a record."""
        sizes = [len(part or b"") for part in (key, value)]
        sizes += [len(name) + len(content or b"") + 10 for name, content in headers]
        too_large = sum(sizes) + _RECORD_OVERHEAD_BYTES > self.record_bytes
        return Refused.YES if too_large or (self.compacted and key is None) else Refused.NO


@dataclass(frozen=True)
class TableLimits:
    """The limits of a table: its columns by name in lower case, and the server's `max_allowed_packet`."""

    columns: Mapping[str, Column]
    packet_bytes: int

    def refuses(self, row: Row) -> Refused:
        """Judge a row; its values are those of JSON."""
        if len(str(row).encode(errors="replace")) + _PACKET_OVERHEAD_BYTES > self.packet_bytes:
            return Refused.YES
        return worst(self._judge(name, value) for name, value in row.items())

    def _judge(self, name: str, value: object) -> Refused:
        column = self.columns.get(name.lower())
        if column is None:
            return Refused.NO  # not written
        if value is None:
            return Refused.NO if column.nullable else Refused.YES
        judge = _JUDGES.get(column.family) if column.family else None
        if judge is None:
            return Refused.UNKNOWN
        return Refused.NO if judge(value, column) else Refused.YES


def _text_fits(value: object, column: Column) -> bool:
    text = str(value)
    codec = _CODECS.get(column.charset or "", "utf-8")
    if column.charset in ("utf8", "utf8mb3") and max(text, default="") > _LAST_OF_UTF8MB3:
        return False
    try:
        size = len(text.encode(codec))
    except UnicodeEncodeError:
        return False
    if "\ufffd" in text:
        return False  # stands for bytes that are not UTF-8
    if column.chars is not None:
        return len(text) <= column.chars
    return column.octets is None or size <= column.octets


def _integer_fits(value: object, column: Column) -> bool:
    low, high = column.integer_range()
    return isinstance(value, int) and low <= value <= high


def _decimal_fits(value: object, column: Column) -> bool:
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return False
    digits, scale = column.precision or 0, column.scale or 0
    in_range = abs(number) < 10 ** (digits - scale) and (number >= 0 or not column.unsigned)
    return in_range and number == round(number, scale)


def _time_fits(value: object, column: Column) -> bool:
    try:
        time = datetime.fromisoformat(str(value))
    except ValueError:
        return False  # after year 9999: the dead letter has its number
    return column.kind != "timestamp" or 1970 <= time.year <= 2037  # noqa: PLR2004 - of TIMESTAMP


_JUDGES = {
    Family.TEXT: _text_fits,
    Family.INTEGER: _integer_fits,
    Family.DECIMAL: _decimal_fits,
    Family.DATETIME: _time_fits,
}


@dataclass(frozen=True)
class SinkLimits:
    """The limits of a job's sinks, by sink id."""

    topics: Mapping[str, TopicLimits] = field(default_factory=dict)
    tables: Mapping[str, TableLimits] = field(default_factory=dict)

    def refuses(self, sink: str, row: Sequence[Row]) -> Refused:
        """Judge a row, given as the columns for each sink; a sink that is not the job's refuses nothing."""
        if sink in self.tables:
            table = self.tables[sink]
            rows = [{n: v for n, v in part.items() if not n.startswith("__")} for part in row]
            ours = [
                part for part in rows if {name.lower() for name in part} <= table.columns.keys()
            ]
            return worst(table.refuses(part) for part in ours)
        if sink in self.topics:
            records = [part for part in row if part.keys() & {"key", "value"}]
            return worst(
                self.topics[sink].refuses(_bytes(part.get("key")), _bytes(part.get("value")))
                for part in records
            )
        return Refused.NO


NO_LIMITS = SinkLimits()
"""Of a job without sinks that refuse rows."""


def _bytes(value: object) -> bytes | None:
    return None if value is None else str(value).encode(errors="replace")
