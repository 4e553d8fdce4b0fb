"""Verification of orders_stream: sums the source by window in plain Python and compares both sinks.

Only the run itself knows which orders were late, so a dead letter that says so is accepted if the
order is older than the newest one by more than the lateness.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sluicegate.packaged_job import Verification
from sluicegate.sinks.kafka.reader import Record
from sluicegate_jobs.access_log import interval_ms
from sluicegate_jobs.orders.expected import Order, Totals, check_rows, read_order
from sluicegate_jobs.orders.schema import LATENESS, WINDOW
from sluicegate_jobs.verification.check import Check
from sluicegate_jobs.verification.dead_letters import LATE, DeadLetters
from sluicegate_jobs.verification.epoch_log import CoveredRecords
from sluicegate_jobs.verification.findings import DUPLICATED, WRONG, Findings

if TYPE_CHECKING:
    from sluicegate_jobs.orders.stream import OrdersStreamSettings

Key = tuple[datetime, str]
Values = tuple[object, ...]


def verify(settings: OrdersStreamSettings) -> Verification:
    """Sum the orders again and compare them with both sinks and the dead letters.

    Raises:
        SluicegateError: something cannot be read, nothing was ever decided, or the job ran during the
            check.
    """
    check = Check(settings, settings.source)
    compared = compare(
        (settings.source, check.source_records(), check.decided.covered),
        check.topic_values(settings.topic),
        check.table_rows(settings.table, "window_start, user, orders, largest, smallest"),
        check.topic_values(settings.dead_letters),
    )
    return check.conclude(compared, settings.table)


def compare(
    source: tuple[str, Iterable[Record], Mapping[int, int]],
    kafka: Iterable[bytes | None],
    mysql: Iterable[tuple[Any, ...]],
    letters: Iterable[bytes | None],
) -> Verification:
    """Compare the sinks with the sums of the source. Pure.

    Args:
        source: its topic, its records, and how far epochs have read: partition -> offset.
        kafka: values of the topic of windows; those of one key in order.
        mysql: rows of the table: window_start, user, orders, largest, smallest.
        letters: the values of the dead letters.
    """
    findings = Findings()
    dead_letters = DeadLetters(letters, findings)
    totals, checked = _totals(source, dead_letters, findings)
    expected = {key: (t.orders, t.largest, t.smallest) for key, t in totals.items()}
    last = _last(kafka, findings)
    rows = [((time.replace(tzinfo=UTC), user), tuple(rest)) for time, user, *rest in mysql]
    check_rows("the topic", expected, last.items(), findings)
    check_rows("the table", expected, rows, findings)
    counts = {"windows of users": len(expected), "rows in MySQL": len(rows)}
    return Verification(checked | counts | {"dead letters": dead_letters.count}, findings.result())


def _totals(
    source: tuple[str, Iterable[Record], Mapping[int, int]],
    dead_letters: DeadLetters,
    findings: Findings,
) -> tuple[dict[Key, Totals], dict[str, int]]:
    """Sum the orders that are not late; check each dead letter against its record."""
    topic, records, covered = source
    totals: dict[Key, Totals] = {}
    late: list[datetime] = []
    newest = datetime.min.replace(tzinfo=UTC)
    source_records = CoveredRecords(records, covered)
    for record in source_records:
        order = read_order(record.value)
        is_late = isinstance(order, Order) and dead_letters.is_late(topic, record)
        dead_letters.check(
            topic, record, order if isinstance(order, str) else LATE if is_late else None
        )
        if isinstance(order, Order):
            newest = max(newest, order.time)
            start = _start(order.time)
            if is_late:
                late.append(start)
            else:
                totals.setdefault((start, order.user), Totals()).add(order.amount)
    dead_letters.check_none_left()
    length, lateness = (timedelta(milliseconds=interval_ms(t)) for t in (WINDOW, LATENESS))
    for start in late:
        if start + length > newest - lateness:
            findings.add(
                WRONG, f"an order of window {start} has a dead letter as late, but was not late"
            )
    return totals, {
        "source records": source_records.read,
        "source records not read yet": source_records.unread,
        "late orders": len(late),
    }


def _start(time: datetime) -> datetime:
    time_ms = int(time.timestamp() * 1000)
    return datetime.fromtimestamp((time_ms - time_ms % interval_ms(WINDOW)) / 1000, tz=UTC)


def _last(values: Iterable[bytes | None], findings: Findings) -> dict[Key, Values]:
    """Return the last record of each window and user; a record that occurs twice is a finding."""
    last: dict[Key, Values] = {}
    seen: set[tuple[Key, Values]] = set()
    for key, row in _windows(values, findings):
        if (key, row) in seen:
            findings.add(DUPLICATED, f"the topic: {key} is {row} twice")
        seen.add((key, row))
        last[key] = row
    return last


def _windows(values: Iterable[bytes | None], findings: Findings) -> Iterator[tuple[Key, Values]]:
    for value in values:
        try:
            row = json.loads(value or b"", parse_float=Decimal, parse_int=Decimal)
            time = datetime.fromisoformat(row["window_start"])
            time = time if time.tzinfo else time.replace(tzinfo=UTC)
            yield (time, row["user"]), (int(row["orders"]), row["largest"], row["smallest"])
        except (ValueError, KeyError, TypeError):
            findings.add(WRONG, f"a record of the topic is not a window: {value!r:.120}")
