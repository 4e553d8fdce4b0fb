"""Verification of orders_stream: sums the source by window in plain Python and compares both sinks.

Only the run itself knows which orders were late, so a dead letter that says so is accepted if the
order is older than the newest one by more than the lateness.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from sluicegate.packaged_job import Verification
from sluicegate_jobs.access_log import interval_ms
from sluicegate_jobs.orders.expected import Order, check_rows, read_order
from sluicegate_jobs.orders.schema import LATENESS, WINDOW
from sluicegate_jobs.orders.stream import OrdersStreamSettings
from sluicegate_jobs.verification.check import Check
from sluicegate_jobs.verification.dead_letters import DeadLetters, utc_time
from sluicegate_jobs.verification.epoch_log import SourceRecords
from sluicegate_jobs.verification.findings import DUPLICATED, WRONG, Findings

Key = tuple[datetime, str]
Values = tuple[object, ...]


def verify(settings: OrdersStreamSettings) -> Verification:
    """Sum the orders again and compare them with both sinks and the dead letters."""
    check = Check(settings, settings.source)
    compared = compare(
        check.source(),
        check.topic_values(settings.topic),
        check.table_rows(settings.table, "window_start, user, orders, largest, smallest"),
        check.topic_values(settings.dead_letters),
    )
    return check.conclude(compared, settings.table)


def compare(
    source: SourceRecords,
    kafka: Iterable[bytes | None],
    mysql: Iterable[tuple[Any, ...]],
    letters: Iterable[bytes | None],
) -> Verification:
    """Compare the values of both topics and the rows of the table with the sums of the source. Pure."""
    findings = Findings()
    dead_letters = DeadLetters(letters, source.topic, findings)
    amounts, checked = _amounts(source, dead_letters, findings)
    expected = {key: (len(a), max(a), min(a)) for key, a in amounts.items()}
    last = _last(kafka, findings)
    rows = [((time.replace(tzinfo=UTC), user), tuple(rest)) for time, user, *rest in mysql]
    check_rows("the topic", expected, last.items(), findings)
    check_rows("the table", expected, rows, findings)
    counts = {"windows of users": len(expected), "rows in MySQL": len(rows)}
    return Verification(checked | counts | {"dead letters": dead_letters.count}, findings.result())


def _amounts(
    source: SourceRecords, dead_letters: DeadLetters, findings: Findings
) -> tuple[dict[Key, list[Decimal]], dict[str, int]]:
    """Collect the orders that are not late; check each dead letter against its record."""
    amounts: dict[Key, list[Decimal]] = defaultdict(list)
    late: list[datetime] = []
    newest = datetime.min.replace(tzinfo=UTC)
    for record in source:
        order = read_order(record.value)
        reason = order if isinstance(order, str) else None
        is_late = dead_letters.check(record, reason, may_be_late=True)
        if isinstance(order, Order):
            newest = max(newest, order.time)
            start = _start(order.time)
            if is_late:
                late.append(start)
            else:
                amounts[start, order.user].append(order.amount)
    dead_letters.check_none_left()
    length, lateness = (timedelta(milliseconds=interval_ms(t)) for t in (WINDOW, LATENESS))
    for start in late:
        if start + length > newest - lateness:
            findings.add(
                WRONG, f"an order of window {start} has a dead letter as late, but was not late"
            )
    return amounts, source.counts() | {"late orders": len(late)}


def _start(time: datetime) -> datetime:
    time_ms = int(time.timestamp() * 1000)
    return datetime.fromtimestamp((time_ms - time_ms % interval_ms(WINDOW)) / 1000, tz=UTC)


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
