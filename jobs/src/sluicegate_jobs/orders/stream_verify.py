"""Verification of orders_stream: sums the source by window in plain Python and compares both sinks."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from sluicegate.packaged_job import Verification
from sluicegate_jobs.access_log import interval_ms
from sluicegate_jobs.orders.expected import check_rows, read_order
from sluicegate_jobs.orders.schema import LATENESS, WINDOW
from sluicegate_jobs.orders.stream import OrdersStreamSettings
from sluicegate_jobs.verification.check import Check
from sluicegate_jobs.verification.dead_letters import DeadLetters, utc_time
from sluicegate_jobs.verification.epoch_log import SourceRecords
from sluicegate_jobs.verification.findings import DUPLICATED, WRONG, Findings
from sluicegate_jobs.verification.limits import NO_LIMITS, SinkLimits

Key = tuple[datetime, str]
Values = tuple[object, ...]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def verify(settings: OrdersStreamSettings) -> Verification:
    """Sum the orders again and compare them with both sinks and the dead letters."""
    check = Check(settings, settings.source)
    compared = compare(
        check.source(late_rows=True),
        check.topic_values(settings.topic),
        check.table_rows(settings.table, "window_start, user, orders, largest, smallest"),
        check.topic_values(settings.dead_letters),
        check.limits(topic=settings.topic, table=settings.table),
    )
    return check.conclude(compared, settings.table)


def compare(
    source: SourceRecords,
    kafka: Iterable[bytes | None],
    mysql: Iterable[tuple[Any, ...]],
    letters: Iterable[bytes | None],
    limits: SinkLimits = NO_LIMITS,
) -> Verification:
    """Compare the values of both topics and the rows of the table with the sums of the source. Pure."""
    findings = Findings()
    dead_letters = DeadLetters(letters, source.topic, findings, limits)
    amounts, checked = _amounts(source, dead_letters, findings)
    expected = {key: (len(a), max(a), min(a)) for key, a in amounts.items()}
    last = _last(kafka, findings)
    rows = [((time.replace(tzinfo=UTC), user), tuple(rest)) for time, user, *rest in mysql]
    check_rows("the topic", expected, last.items(), findings)
    check_rows("the table", expected, rows, findings)
    counts = {"windows of users": len(expected), "rows in MySQL": len(rows)}
    return Verification(checked | counts | dead_letters.counts(), findings.result())


def _amounts(
    source: SourceRecords, dead_letters: DeadLetters, findings: Findings
) -> tuple[dict[Key, list[Decimal]], dict[str, int]]:
    """Collect the orders that are not late; check each dead letter against its record."""
    amounts: dict[Key, list[Decimal]] = defaultdict(list)
    length_ms = interval_ms(WINDOW)
    for record in source:
        order = read_order(record.value)
        if isinstance(order, str):
            dead_letters.check(record, order)
            continue
        at_ms = (order.time - _EPOCH) // timedelta(milliseconds=1)
        start_ms = at_ms - at_ms % length_ms
        late = source.watermarks.judge(record, at_ms, start_ms + length_ms)
        if not dead_letters.check(record, None, late=late):
            start = _EPOCH + timedelta(milliseconds=start_ms)
            amounts[start, order.user].append(order.amount)
    dead_letters.check_none_left()
    source.watermarks.check(interval_ms(LATENESS), findings)
    return amounts, source.counts() | {"late orders": dead_letters.late}


def _last(values: Iterable[bytes | None], findings: Findings) -> dict[Key, Values]:
    """Return the last record of each window and user; a record that occurs twice is a finding."""
    last: dict[Key, Values] = {}
    seen: set[tuple[Key, Values]] = set()
    for value in values:
        try:
            fields = json.loads(value or b"", parse_float=Decimal, parse_int=Decimal)
            key = (utc_time(fields["window_start"]), fields["user"])
            row = (int(fields["orders"]), fields["largest"], fields["smallest"])
        except (ValueError, KeyError, TypeError):
            findings.add(WRONG, f"a record of the topic is not a window: {value!r:.120}")
            continue
        if (key, row) in seen:
            findings.add(DUPLICATED, f"the topic: {key} is {row} twice")
        seen.add((key, row))
        last[key] = row
    return last
