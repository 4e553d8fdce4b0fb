"""The check of orders_stream: sums its source up by window in plain Python and compares both sinks.

Which orders were late only the run itself knows, so a dead letter's word is taken for it where the
order is further behind the newest than the lateness. Nothing is written anywhere. Called by
`sluicegate verify`, while the job is stopped or idle.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sluicegate.cli.job import Verification
from sluicegate.sinks.kafka.access import servers_of
from sluicegate.sinks.mysql.session import Address
from sluicegate.storage.objects import open_objects
from sluicegate_jobs.access_lines import interval_ms
from sluicegate_jobs.decided import (
    concluded,
    counted,
    held_by,
    read_decided,
    table_rows,
    whole,
)
from sluicegate_jobs.findings import DUPLICATED, WRONG, Findings
from sluicegate_jobs.kafka_reader import Record
from sluicegate_jobs.letters import LATE, Letters
from sluicegate_jobs.orders_answer import Order, Totals, check_rows, read_order

if TYPE_CHECKING:
    from sluicegate_jobs.orders_stream import OrdersStreamSettings

WINDOW, LATENESS = "5 seconds", "2 seconds"

Key = tuple[datetime, str]
Values = tuple[object, ...]


def verify(settings: OrdersStreamSettings) -> Verification:
    """Sum the orders up again and compare both sinks and the dead letters.

    Raises:
        SluicegateError: something could not be read, nothing was ever decided, or the job went on
            meanwhile.
    """
    decided = read_decided(open_objects(settings.checkpoint), settings.source)
    servers, database = servers_of(settings.kafka), Address.parse(settings.mysql or None)
    seen: dict[str, int] = {}
    columns = "window_start, user, orders, largest, smallest"
    compared = compare(
        (settings.source, whole(servers, settings.source), decided.covered),
        (r.value for r in counted(servers, settings.topic, seen)),
        table_rows(database, settings.table, columns),
        (r.value for r in counted(servers, settings.dead_letters, seen)),
    )
    held = held_by(decided, seen, servers, settings.table, database)
    return concluded(settings.checkpoint, decided, compared, held)


def compare(
    source: tuple[str, Iterable[Record], Mapping[int, int]],
    kafka: Iterable[bytes | None],
    mysql: Iterable[tuple[Any, ...]],
    letters: Iterable[bytes | None],
) -> Verification:
    """Compare the sinks with the sums of the source. Pure.

    Args:
        source: its topic, its records, and how far epochs have read: partition -> offset.
        kafka: values of the topic of windows; those of a key in their order.
        mysql: rows of the table: window_start, user, orders, largest, smallest.
        letters: the values of the dead letters.
    """
    findings = Findings()
    filed = Letters(letters, findings)
    totals, checked = _totals(source, filed, findings)
    expected = {key: (t.orders, t.largest, t.smallest) for key, t in totals.items()}
    last = _last(kafka, findings)
    rows = [((at.replace(tzinfo=UTC), user), tuple(rest)) for at, user, *rest in mysql]
    check_rows("the topic", expected, last.items(), findings)
    check_rows("the table", expected, rows, findings)
    counts = {"windows of users": len(expected), "rows in MySQL": len(rows)}
    return Verification(checked | counts | {"dead letters": filed.count}, findings.found())


def _totals(
    source: tuple[str, Iterable[Record], Mapping[int, int]], filed: Letters, findings: Findings
) -> tuple[dict[Key, Totals], dict[str, int]]:
    """Sum up what is not late; check each letter against its record."""
    topic, records, covered = source
    totals: dict[Key, Totals] = {}
    late: list[datetime] = []
    newest = datetime.min.replace(tzinfo=UTC)
    read = unread = 0
    for record in records:
        if record.offset >= covered.get(record.partition, 0):
            unread += 1
            continue
        read += 1
        order = read_order(record.value)
        is_late = isinstance(order, Order) and filed.is_late(topic, record)
        filed.check(topic, record, order if isinstance(order, str) else LATE if is_late else None)
        if isinstance(order, Order):
            newest = max(newest, order.at)
            start = _start(order.at)
            if is_late:
                late.append(start)
            else:
                totals.setdefault((start, order.user), Totals()).add(order.amount)
    filed.check_none_left()
    length, lateness = (timedelta(milliseconds=interval_ms(t)) for t in (WINDOW, LATENESS))
    for start in late:
        if start + length > newest - lateness:
            findings.add(WRONG, f"an order of window {start} has a letter as late, and was not")
    return totals, {
        "source records": read,
        "source records not read yet": unread,
        "late orders": len(late),
    }


def _start(at: datetime) -> datetime:
    length = interval_ms(WINDOW)
    at_ms = int(at.timestamp() * 1000)
    return datetime.fromtimestamp((at_ms - at_ms % length) / 1000, tz=UTC)


def _last(values: Iterable[bytes | None], findings: Findings) -> dict[Key, Values]:
    """Return the last record of each window and user; one that is there twice is noted."""
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
            at = datetime.fromisoformat(row["window_start"])
            at = at if at.tzinfo else at.replace(tzinfo=UTC)
            yield (at, row["user"]), (int(row["orders"]), row["largest"], row["smallest"])
        except (ValueError, KeyError, TypeError):
            findings.add(WRONG, f"a record of the topic is no window: {value!r:.120}")
