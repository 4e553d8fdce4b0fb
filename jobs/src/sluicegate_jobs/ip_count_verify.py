"""The check of ip_count: reads source and sinks as they are, without Spark, and compares them.

What should be there is `ip_count_answer`'s business; what the epoch log decided is `decided`'s.
Nothing is written anywhere. Called by `sluicegate verify` and the demo, while the job is stopped
or idle.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sluicegate.cli.job import Verification
from sluicegate.protocol.errors import SettingsInvalid
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
from sluicegate_jobs.ip_count_answer import Rules, SourceLine, TableRow, compare

if TYPE_CHECKING:
    from sluicegate_jobs.ip_count import IpCountSettings


def verify(settings: IpCountSettings) -> Verification:
    """Recompute the counts from the source topic and compare both sinks and the dead letters.

    Raises:
        SluicegateError: something could not be read, nothing was ever decided, or the job went on
            meanwhile.
    """
    rules = _rules(settings)
    decided = read_decided(open_objects(settings.checkpoint), settings.source)
    servers, database = servers_of(settings.kafka), Address.parse(settings.mysql or None)
    seen: dict[str, int] = {}
    columns = ", ".join(TableRow._fields)
    compared = compare(
        (SourceLine(r.partition, r.offset, r.value) for r in whole(servers, settings.source)),
        ((r.key, r.value) for r in counted(servers, settings.topic, seen)),
        (TableRow(*row) for row in table_rows(database, settings.table, columns)),
        letters_of(settings, servers, database, seen),
        dataclasses.replace(rules, covered=decided.covered),
    )
    held = held_by(decided, seen, servers, settings.table, database)
    return concluded(settings.checkpoint, decided, compared, held)


def _rules(settings: IpCountSettings) -> Rules:
    try:
        window_ms, lateness_ms = interval_ms(settings.window), interval_ms(settings.lateness)
    except ValueError as error:
        raise SettingsInvalid(str(error), do="give the window and lateness of the job") from error
    return Rules(settings.source, {}, window_ms, lateness_ms)


def letters_of(
    settings: IpCountSettings, servers: str, database: Address, seen: dict[str, int]
) -> Iterator[bytes | None]:
    """Yield the dead letters as JSON, from their table or their topic."""
    table = settings.dead_letter_table
    if not table:
        yield from (record.value for record in counted(servers, settings.dead_letters, seen))
        return
    columns = "reason, payload, payload_sha256, source"
    for reason, payload, digest, source in table_rows(database, table, columns):
        letter = {"reason": reason, "payload": payload, "payload_sha256": digest}
        said = {} if source is None else {"source": json.loads(source)}
        yield json.dumps(letter | said).encode()
