"""Verification of ip_count: reads source and sinks without Spark; `expected` compares them."""

from __future__ import annotations

import json
from collections.abc import Iterator

from sluicegate.errors import SettingsInvalid
from sluicegate.packaged_job import Verification
from sluicegate_jobs.access_log import interval_ms
from sluicegate_jobs.ip_count.expected import Rules, TableRow, compare
from sluicegate_jobs.ip_count.job import IpCountSettings
from sluicegate_jobs.verification.check import Check


def verify(settings: IpCountSettings) -> Verification:
    """Recompute the counts from the source topic; compare both sinks and the dead letters."""
    try:
        rules = Rules(interval_ms(settings.window), interval_ms(settings.lateness))
    except ValueError as error:
        raise SettingsInvalid(str(error), do="give the window and lateness of the job") from error
    check = Check(settings, settings.source)
    columns = ", ".join(TableRow._fields)
    compared = compare(
        check.source(late_rows=True),
        ((r.key, r.value) for r in check.topic_records(settings.topic)),
        (TableRow(*row) for row in check.table_rows(settings.table, columns)),
        _dead_letters(settings, check),
        rules,
        check.limits(topic=settings.topic, table=settings.table),
    )
    return check.conclude(compared, settings.table)


def _dead_letters(settings: IpCountSettings, check: Check) -> Iterator[bytes | None]:
    """Yield the dead letters as JSON, from their table or their topic."""
    table = settings.dead_letter_table
    if not table:
        yield from check.topic_values(settings.dead_letters)
        return
    columns = "reason, payload, payload_sha256, source"
    for reason, payload, digest, source in check.table_rows(table, columns):
        letter = {"reason": reason, "payload": payload, "payload_sha256": digest}
        origin = {} if source is None else {"source": json.loads(source)}
        yield json.dumps(letter | origin).encode()
