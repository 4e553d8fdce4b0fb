"""Where a decided epoch is in: reads each sink's markers, which disturbs no living driver.

Not here: what follows from a marker when an epoch is applied; that is `protocol.markers.judge`.
Called by `sluicegate epochs show`.
"""

from __future__ import annotations

from collections.abc import Callable

from sluicegate.protocol.errors import SluicegateError
from sluicegate.protocol.markers import GENESIS, Marker
from sluicegate.protocol.record import EXACTLY_ONCE, EpochRecord
from sluicegate.sinks.kafka.clients import Connection
from sluicegate.sinks.kafka.committed import committed_marker as kafka_marker
from sluicegate.sinks.mysql.session import Address
from sluicegate.sinks.mysql.writer import committed_marker as mysql_marker

Ask = Callable[[str, str, int], Marker | None]
"""Lineage, sink, part -> the marker that the sink holds."""


def readers(kafka: str, mysql: str) -> dict[str, Ask]:
    """Return a reader of markers for each kind of sink whose server is named.

    Raises:
        SettingsInvalid: the url of MySQL cannot be read.
    """
    made: dict[str, Ask] = {}
    if kafka:
        connection = Connection.of(kafka)
        made["kafka"] = lambda lineage, sink, part: kafka_marker(connection, lineage, sink, part)
    if mysql:
        address = Address.parse(mysql)
        made["mysql"] = lambda lineage, sink, part: mysql_marker(address, lineage, sink, part)
    return made


def applied(record: EpochRecord, sink: str, part: int, asks: dict[str, Ask]) -> str:
    """Say in words whether a part of a sink holds the epoch.

    Args:
        record: the decided epoch.
        sink: one of its sinks.
        part: one of the sink's parts with rows.
        asks: of `readers`.
    """
    kind = record.sinks[sink].kind
    if record.delivery != EXACTLY_ONCE or kind not in asks:
        asked = f"not asked: give --{kind} or SLUICEGATE_{kind.upper()}"
        unmarked = f"unknown: {record.delivery} keeps no markers"
        return asked if record.delivery == EXACTLY_ONCE else unmarked
    try:
        found = asks[kind](record.lineage, sink, part)
    except SluicegateError as error:
        return f"unknown: {error.what}"
    prev = record.prev_of(sink, part)
    if found == Marker(record.epoch, record.attempt):
        return "applied"
    if found == prev or (found is None and prev == GENESIS):
        return "not applied yet"
    if found is not None and found.epoch > record.epoch:
        return f"applied; the sink has gone on to {found}"
    return f"UNEXPECTED: the marker is {found or 'absent'}"
