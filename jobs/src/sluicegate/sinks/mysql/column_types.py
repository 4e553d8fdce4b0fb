"""The type and limits of a table's column, from its row of information_schema. Pure."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class Family(enum.Enum):
    """Column types that accept the same values."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    TEXT = "text"
    JSON = "json"
    ENUM = "enum"
    BINARY = "binary"
    DATE = "date"
    DATETIME = "datetime"
    TIME = "time"


_FAMILIES: Mapping[str, Family] = {
    **dict.fromkeys(
        ("tinyint", "smallint", "mediumint", "int", "bigint", "year", "bit"), Family.INTEGER
    ),
    "decimal": Family.DECIMAL,
    **dict.fromkeys(("float", "double"), Family.FLOAT),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), Family.TEXT),
    "json": Family.JSON,
    "enum": Family.ENUM,
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), Family.BINARY
    ),
    "date": Family.DATE,
    **dict.fromkeys(("datetime", "timestamp"), Family.DATETIME),
    "time": Family.TIME,
}
_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
FLOAT_MAX = 3.4028234663852886e38
"""The largest single-precision number."""


@dataclass(frozen=True)
class Column:
    """One column of the table.

    Args:
        name: as the table spells it.
        declared: the type as declared, for messages: 'varchar(20)'.
        family: None for a type that this sink does not write (geometry, set, uuid).
        kind: the bare type: 'varchar'.
        nullable: whether NULL may be written.
        optional: whether an INSERT may omit it (it has a default, NULL or AUTO_INCREMENT).
        generated: the server computes it; an INSERT may not name it.
        auto_increment: the server numbers it if it is omitted.
        unsigned: numbers below zero are refused.
        chars: most characters of a char or varchar, otherwise None.
        octets: most bytes of a text or binary column, otherwise None.
        precision: digits of a decimal, bits of a bit.
        scale: digits after the decimal point; for a float only if declared.
        fraction: stored digits of a second's fraction.
        charset: 'utf8mb4', ...; None without one.
        collation: how strings compare.
        members: of an enum.
    """

    name: str
    declared: str
    family: Family | None
    kind: str
    nullable: bool = True
    optional: bool = True
    generated: bool = False
    auto_increment: bool = False
    unsigned: bool = False
    chars: int | None = None
    octets: int | None = None
    precision: int | None = None
    scale: int | None = None
    fraction: int = 0
    charset: str | None = None
    collation: str | None = None
    members: tuple[str, ...] = ()

    def integer_range(self) -> tuple[int, int]:
        """Return the smallest and the largest integer of the column."""
        if self.kind == "bit":
            return 0, 2 ** (self.precision or 1) - 1
        if self.kind == "year":
            return 1901, 2155
        bits = _BITS[self.kind]
        return (0, 2**bits - 1) if self.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    def max_float(self) -> float:
        """Return the largest number of a float column."""
        if self.scale is not None and self.precision is not None:
            return float(10 ** (self.precision - self.scale))
        return FLOAT_MAX if self.kind == "float" else 1.7976931348623157e308

    def step_us(self) -> int:
        """Return the column's resolution in microseconds."""
        return int(10 ** (6 - self.fraction))

    def as_json(self) -> Column:
        """Return the column as a JSON column (MariaDB declares JSON by a CHECK)."""
        return Column(**{**self.__dict__, "family": Family.JSON})


def describe(row: Mapping[str, Any]) -> Column:
    """Return a column from its row of information_schema.columns (lower-case names)."""
    kind, declared = str(row["data_type"]).lower(), str(row["column_type"])
    family = _FAMILIES.get(kind)
    extra = str(row["extra"] or "").lower()
    generated = bool(row["generation_expression"])
    nullable = row["is_nullable"] == "YES"
    auto_increment = "auto_increment" in extra
    is_text = family in (Family.TEXT, Family.ENUM)
    members = _members(declared) if family is Family.ENUM else ()
    return Column(
        name=row["column_name"],
        declared=declared,
        family=family,
        kind=kind,
        nullable=nullable,
        optional=nullable or generated or auto_increment or row["column_default"] is not None,
        generated=generated,
        auto_increment=auto_increment,
        unsigned="unsigned" in declared.lower(),
        chars=row["character_maximum_length"] if kind in ("char", "varchar") else None,
        octets=row["character_octet_length"] if is_text or family is Family.BINARY else None,
        precision=row["numeric_precision"],
        scale=row["numeric_scale"],
        fraction=row["datetime_precision"] or 0,
        charset=(row["character_set_name"] or None) if is_text else None,
        collation=(row["collation_name"] or None) if is_text else None,
        members=members,
    )


def _members(declared: str) -> tuple[str, ...]:
    """Return an enum's members from "enum('a','it''s')"."""
    members = re.findall(r"'((?:[^']|'')*)'", declared)
    return tuple(member.replace("''", "'") for member in members)
