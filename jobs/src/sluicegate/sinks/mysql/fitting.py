"""How a DataFrame's columns become a table's: which goes where, and with which Spark expression.

Not here: single rows (refusals). Casts are made in the JVM while staging, and only those that
cannot fail or lose anything: what does not fit is for `refusals` to say, row by row. Pure. Called
by `preflight`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt

from sluicegate.protocol.errors import SchemaMismatch
from sluicegate.sinks.mysql.columns import Column, Family

_DO = "change the table or the DataFrame (select, cast, rename), or name the wanted columns="


@dataclass(frozen=True)
class Source:
    """A value of the DataFrame: a column, or a field of a struct column.

    Args:
        name: by which it finds its column: 'ip', or 'window_start' for window.start.
        spark: how Spark SQL says it.
        type: as Arrow.
        spared: may be without a column: the other end of a window says as much.
    """

    name: str
    spark: str
    type: pa.DataType
    spared: bool = False


@dataclass(frozen=True)
class Fitted:
    """A table's column and the value that goes into it."""

    column: Column
    source: Source
    expression: str


def sources(rows: pa.Schema, wanted: Sequence[str] | None) -> list[Source]:
    """Return the values of a DataFrame that are to be written; struct columns are spread."""
    found = [source for field in rows for source in _of_field(field)]
    if wanted is None:
        return found
    spelled = {s.name.lower(): s for s in (*found, *_whole_structs(rows))}
    missing = [name for name in wanted if name.lower() not in spelled]
    if missing:
        raise SchemaMismatch(
            f"columns= names {', '.join(missing)}, which the DataFrame does not have; it has "
            f"{', '.join(s.name for s in found)}",
            data="nothing was written",
            do="correct columns=, or select the column in the job",
        )
    return [spelled[name.lower()] for name in wanted]


def _of_field(field: pa.Field) -> Iterator[Source]:
    if not pt.is_struct(field.type):
        yield Source(field.name, _spark(field.name), field.type)
        return
    names = [field.type.field(i).name for i in range(field.type.num_fields)]
    for i, name in enumerate(names):
        yield Source(
            f"{field.name}_{name}",
            f"{_spark(field.name)}.{_spark(name)}",
            field.type.field(i).type,
            spared=names == ["start", "end"],
        )


def _whole_structs(rows: pa.Schema) -> Iterator[Source]:
    for field in rows:
        if pt.is_struct(field.type):
            yield Source(field.name, _spark(field.name), field.type)


def fit(
    rows: pa.Schema, table: Mapping[str, Column], *, wanted: Sequence[str] | None, where: str
) -> tuple[Fitted, ...]:
    """Say which value goes into which column, or everything that does not fit.

    Args:
        rows: the DataFrame.
        table: its columns by name in lower case (MySQL does not tell cases apart).
        wanted: the values to write, None for all.
        where: names the table in messages.

    Raises:
        SchemaMismatch: names every column that does not fit.
    """
    given = sources(rows, wanted)
    if wanted is None:
        # A struct whose own name is a column goes there as JSON, not spread.
        whole = [s for s in _whole_structs(rows) if s.name.lower() in table]
        spread = tuple(f"{s.spark}." for s in whole)
        given = [s for s in given if not s.spark.startswith(spread)] + whole if spread else given
    fitted: dict[str, Fitted] = {}
    problems: list[str] = []
    for source in given:
        column = table.get(source.name.lower())
        if column is None:
            if not source.spared:
                problems.append(f"the table has no column {source.name} ({source.type})")
            continue
        expression = expression_for(source, column)
        if column.generated:
            problems.append(f"{column.name} is computed by the server and cannot be written")
        elif column.name in fitted:
            problems.append(f"{column.name} would be written twice; case does not count")
        elif expression is None:
            problems.append(f"{column.name} is {column.declared} and takes no {source.type}")
        else:
            fitted[column.name] = Fitted(column, source, expression)
            problems += _charset_problems(column)
    problems += [
        f"{column.name} is NOT NULL without a default and is not supplied"
        for column in table.values()
        if not column.optional and column.name not in fitted
    ]
    if not fitted and not problems:
        problems.append("the DataFrame has no columns")
    if problems:
        raise SchemaMismatch(
            f"{where}: the rows do not fit the table: {'; '.join(problems)}",
            data="nothing was written; the job has not started",
            do=_DO,
        )
    return tuple(fitted.values())


def expression_for(  # noqa: C901, PLR0911 - one case a family, as the manual lists them
    source: Source, column: Column
) -> str | None:
    """Return the Spark SQL that stages a value for a column, None where it cannot go there."""
    staged, family, spark = source.type, column.family, source.spark
    simple = pt.is_integer(staged) or pt.is_boolean(staged) or pt.is_decimal(staged)
    nested = pt.is_struct(staged) or pt.is_list(staged) or pt.is_map(staged)
    if pt.is_null(staged):
        return None if family is None else f"CAST({spark} AS STRING)"
    if family in (Family.INTEGER, Family.DECIMAL):
        return spark if simple else None
    if family is Family.FLOAT:
        return f"CAST({spark} AS DOUBLE)" if simple or pt.is_floating(staged) else None
    if family in (Family.TEXT, Family.JSON, Family.ENUM):
        if _is_string(staged):
            return spark
        if nested and family is not Family.ENUM:
            return f"to_json({spark})"
        castable = simple or pt.is_floating(staged) or pt.is_date(staged)
        return f"CAST({spark} AS STRING)" if castable and family is Family.TEXT else None
    if family is Family.BINARY:
        return (
            spark
            if _is_binary(staged)
            else f"CAST({spark} AS BINARY)"
            if _is_string(staged)
            else None
        )
    if family is Family.DATE:
        return spark if pt.is_date(staged) else None
    if family is Family.DATETIME:
        if pt.is_date(staged):
            return f"CAST({spark} AS TIMESTAMP_NTZ)"
        return spark if pt.is_timestamp(staged) else None
    return spark if family is Family.TIME and pt.is_time(staged) else None


def hashed_for_part(fitted: Fitted) -> str | None:
    """Return Spark SQL that is equal wherever the server holds two keys equal, None if none is.

    Rows of one key must share a part. What the server takes for equal is wider than what Spark
    does: collations, trailing spaces, fractions of a second that the column does not keep.
    """
    column, spark, expression = fitted.column, fitted.source.spark, fitted.expression
    if column.family in (Family.TEXT, Family.ENUM):
        collation = column.collation or ""
        if collation.endswith("_bin") and column.family is Family.TEXT:
            return f"rtrim({expression})"
        return f"lower(rtrim({expression}))" if column.charset == "ascii" else None
    if column.family is Family.BINARY:
        return None if column.kind == "binary" else expression  # binary(n) is padded
    if (
        column.family is Family.DATETIME
        and column.step_us() > 1
        and pt.is_timestamp(fitted.source.type)
    ):
        if fitted.source.type.tz is None:
            return None
        return f"unix_micros({spark}) - pmod(unix_micros({spark}), {column.step_us()})"
    exact = (Family.INTEGER, Family.DECIMAL, Family.DATE, Family.DATETIME)
    return expression if column.family in exact else None


def _charset_problems(column: Column) -> list[str]:
    if column.charset in (None, "utf8mb4", "utf8mb3", "utf8", "latin1", "ascii"):
        return []
    known = "utf8mb4, utf8mb3, latin1 and ascii"
    return [f"{column.name} has character set {column.charset}; this sink knows {known}"]


def _is_string(staged: pa.DataType) -> bool:
    return bool(pt.is_string(staged) or pt.is_large_string(staged) or pt.is_string_view(staged))


def _is_binary(staged: pa.DataType) -> bool:
    return bool(
        pt.is_binary(staged) or pt.is_large_binary(staged) or pt.is_fixed_size_binary(staged)
    )


def _spark(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
