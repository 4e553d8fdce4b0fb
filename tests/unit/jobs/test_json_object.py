"""What verification reads of JSON objects; `tests/integration/test_parsing.py` compares it with the jobs."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate_jobs.verification.json_object import (
    MAX_DEPTH,
    MAX_NAME_BYTES,
    Written,
    field_text,
    read_object,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(
    row=st.dictionaries(st.text(), VALUES),
    indent=st.none() | st.integers(0, 2),
    ensure_ascii=st.booleans(),
)
def test_every_object_is_read(
    row: dict[str, object], indent: int | None, *, ensure_ascii: bool
) -> None:
    text = json.dumps(row, indent=indent, ensure_ascii=ensure_ascii)
    read = read_object(text.encode())
    assert read is not None
    values = {k: json.loads(v) if isinstance(v, Written) else v for k, v in read.items()}
    assert values == row


@given(text=st.text(st.sampled_from('{}[]",:a1 \\')))
def test_what_is_no_object_is_none(text: str) -> None:
    try:
        is_object = isinstance(json.loads(text), dict)
    except ValueError:
        is_object = False
    assert (read_object(text.encode()) is not None) == is_object


def test_a_value_that_is_no_string_is_returned_as_it_is_written() -> None:
    row = read_object(b'{"a":1.50,"b":[1, {"c" :2}],"c":true,"d":null,"e":"x"}')
    assert row is not None
    texts = [field_text(row, name) for name in "abcdef"]
    assert texts == ["1.50", '[1, {"c" :2}]', "true", None, "x", None]


@pytest.mark.parametrize(("depth", "is_read"), [(MAX_DEPTH, True), (MAX_DEPTH + 1, False)])
def test_the_depth_is_limited(depth: int, *, is_read: bool) -> None:
    arrays = depth - 1  # and the object
    row = read_object(b'{"brackets":"[[","a":' + b"[" * arrays + b"]" * arrays + b"}")
    assert (row is not None) == is_read


@pytest.mark.parametrize("text", ['{"%s":1}', '{"a":{"%s":1}}'])
def test_the_length_of_a_name_is_limited(text: str) -> None:
    name = "é" * (MAX_NAME_BYTES // 2)
    assert read_object((text % name).encode()) is not None
    assert read_object((text % f"{name}n").encode()) is None
