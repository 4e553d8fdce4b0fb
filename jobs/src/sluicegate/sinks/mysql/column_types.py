"""The type and limits of a table's column, from its row of information_schema. Pure."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class Family(enum.Enum):
    """Column types that accept the same values."""

    INTEGER = ("tinyint", "smallint", "mediumint", "int", "bigint", "year", "bit")
    DECIMAL = ("decimal",)
    FLOAT = ("float", "double")
    TEXT = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
    JSON = ("json",)
    ENUM = ("enum",)
    BINARY = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
    DATE = ("date",)
    DATETIME = ("datetime", "timestamp")
    TIME = ("time",)


_FAMILIES = {kind: family for family in Family for kind in family.value}
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
        optional: whether an INSERT may omit it (it has a default, NULL or AUTO_INCREMENT).
        generated: the server computes it; an INSERT may not name it.
        chars: most characters of a char or varchar, otherwise None.
        octets: most bytes of a text or binary column, otherwise None.
        precision: digits of a decimal, bits of a bit.
        scale: digits after the decimal point; for a float only if declared.
        fraction: stored digits of a second's fraction.
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
        """Return the largest number of a float column; with a number of decimals, a bound for all that fit.

        The server rounds to the decimals before it compares. The half of the last one, and one part in
        10**6 of it because the digits are binary, keep what rounds to more out.
        """
        if self.scale is not None and self.precision is not None:
            return 10.0 ** (self.precision - self.scale) - 0.500001 * 10.0**-self.scale
        return FLOAT_MAX if self.kind == "float" else 1.7976931348623157e308

    def step_us(self) -> int:
        """Return the column's resolution in microseconds."""
        return int(10 ** (6 - self.fraction))


def describe(row: Mapping[str, Any]) -> Column:
    """Return a column from its row of information_schema.columns (lower-case names)."""
    kind, declared = str(row["data_type"]).lower(), str(row["column_type"])
    family = _FAMILIES.get(kind)
    extra = str(row["extra"] or "").lower()
    generated = bool(row["generation_expression"])
    nullable = row["is_nullable"] == "YES"
    auto_increment = "auto_increment" in extra
    is_text = family in (Family.TEXT, Family.ENUM)
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
        members=_members(declared) if family is Family.ENUM else (),
    )


def _members(declared: str) -> tuple[str, ...]:
    """Return an enum's members from "enum('a','it''s')"."""
    members = re.findall(r"'((?:[^']|'')*)'", declared)
    return tuple(member.replace("''", "'") for member in members)
