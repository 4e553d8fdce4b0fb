"""What a server would refuse after the decision is refused before it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sluicegate.sinks.mysql.column_mapping import Source, expression_for
from sluicegate.sinks.mysql.column_types import Column, Family
from sluicegate.sinks.mysql.row_validation import refusals

JSON = Column("c", "json", Family.JSON, "json")


def refused(*texts: str) -> list[bool]:
    batch = pa.record_batch({"c": pa.array(texts)})
    reasons = refusals(batch, (JSON,), keys=(), row_bytes=1 << 20)
    return [bool(reason) for reason in reasons.to_pylist()] if reasons is not None else []


@pytest.mark.parametrize("number", ["1" + "0" * 400, "-" + "9" * 310, "0e400", "0.0E+309", "1e999"])
def test_a_number_in_json_that_is_no_double_is_refused(number: str) -> None:
    """MySQL parses each number as one, also a zero with such an exponent (error 3140)."""
    assert refused(f'{{"a": [{number}]}}', "1e300", "0e300", "1" + "0" * 300) == [
        True,
        False,
        False,
        False,
    ]


def test_a_key_in_json_that_is_too_long_is_refused() -> None:
    long, longest = "k" * 65_536, "k" * 65_535
    assert refused(f'{{"a": {{"{long}": 1}}}}', f'{{"{longest}": 1}}') == [True, False]


@pytest.mark.parametrize(("staged", "fits"), [(pa.decimal128(20, 0), False), (pa.int64(), True)])
def test_a_decimal_does_not_fit_a_bit_column(staged: pa.DataType, fits: bool) -> None:  # noqa: FBT001
    """It is quoted, and the server takes a text for the bytes of the column: 5 would be 53."""
    bits = Column("b", "bit(8)", Family.INTEGER, "bit", precision=8)
    assert (expression_for(Source("b", "`b`", staged), bits) is not None) is fits
