"""Parses and sums orders in plain Python, for the verification of the order jobs. Pure.

Equivalent to the jobs' expressions, but shares no code with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple, TypeVar

from sluicegate_jobs.verification.dead_letters import EMPTY, UNPARSED
from sluicegate_jobs.verification.findings import DUPLICATED, LOST, WRONG, Findings
from sluicegate_jobs.verification.json_object import field_text, read_object

_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_TIME = re.compile(r"(19|20)[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,3})?Z")
_AMOUNT = re.compile(r"-?[0-9]{1,10}([.][0-9]{1,2})?")

K = TypeVar("K")


class Order(NamedTuple):
    """An order as parsed from a line."""

    user: str
    time: datetime
    amount: Decimal


def read_order(line: bytes | None) -> Order | str:
    """Return an order, or the first word of the reason why the line is not one."""
    if line is None:
        return EMPTY
    row = read_object(line) or {}
    texts = [field_text(row, name) or "" for name in ("id", "user", "time", "amount")]
    patterns = (_NAME, _NAME, _TIME, _AMOUNT)
    if not all(p.fullmatch(text) for p, text in zip(patterns, texts, strict=True)):
        return UNPARSED
    _, user, time, amount = texts
    try:
        return Order(user, datetime.fromisoformat(time), Decimal(amount))
    except ValueError:
        return UNPARSED  # no such date


def check_rows(
    where: str,
    expected: Mapping[K, tuple[object, ...]],
    rows: Iterable[tuple[K, tuple[object, ...]]],
    findings: Findings,
) -> None:
    """Add findings where rows differ from the expected ones."""
    actual: dict[K, tuple[object, ...]] = {}
    for key, values in rows:
        if key in actual:
            findings.add(DUPLICATED, f"{where}: {key} occurs twice")
        actual[key] = values
    for key in expected.keys() - actual.keys():
        findings.add(LOST, f"{where}: {key} is missing; expected {expected[key]}")
    for key, values in actual.items():
        if expected.get(key) != values:
            findings.add(WRONG, f"{where}: {key} is {values}; expected {expected.get(key)}")
