"""Dead letters as a topic holds them, and the record that each of them stands for."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from sluicegate.dead_letters.letter import STAGED_ROW
from sluicegate.sinks.kafka.connection import Connection
from sluicegate.sinks.kafka.reader import CommittedReader, Position, Record

UNREADABLE = "unreadable: not a dead letter of Sluicegate"

_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True)
class DeadLetter:
    """A dead letter.

    Args:
        position: its own address.
        time_ms: its timestamp, ms since 1970.
        value: its bytes.
        reason: why the row is dead.
        payload: its text, cut; None for a record without a value.
        sha256: of the uncut payload.
        of_record: the payload is the source's record, not a row made from it.
        source: the address of that record; None if the dead letter names no topic.
        source_ms: the record's timestamp; None if unknown.
    """

    position: Position
    time_ms: int
    value: bytes
    reason: str
    payload: str | None = None
    sha256: str | None = None
    of_record: bool = True
    source: Position | None = None
    source_ms: int | None = None

    @property
    def group(self) -> str:
        """The reason without its numbers: equal causes have equal groups."""
        return _DIGITS.sub("#", self.reason)

    @property
    def record_id(self) -> str | None:
        """Identifies the source's record; None if the dead letter names no topic."""
        return None if self.source is None else f"{self.source}@{self.source_ms}"


def read_dead_letters(
    connection: Connection, topic: str, since_ms: int | None = None
) -> Iterator[DeadLetter]:
    """Yield the dead letters of committed transactions.

    Raises:
        TargetMissing: the topic does not exist.
        SinkUnavailable: the brokers do not answer.
    """
    with CommittedReader(connection, skip_gaps=True) as reader:
        for record in reader.read(topic, since_ms=since_ms):
            yield parse_dead_letter(topic, record)


def parse_dead_letter(topic: str, record: Record) -> DeadLetter:
    """Return a record as a dead letter; one that is none has the reason `UNREADABLE`."""
    value, position = record.value or b"", Position(topic, record.partition, record.offset)
    try:
        fields = json.loads(value.decode(errors="replace"))  # the digest is of the payload's bytes
    except (ValueError, RecursionError):  # the latter: deeply nested
        fields = None
    if not isinstance(fields, dict) or not _is_dead_letter(fields):
        return DeadLetter(position, record.timestamp_ms, value, UNREADABLE)
    reason, source = fields["reason"], fields.get("source")
    return DeadLetter(
        position,
        record.timestamp_ms,
        value,
        reason,
        fields.get("payload"),
        fields.get("payload_sha256"),
        fields.get("payload_of") != STAGED_ROW and not reason.startswith("refused by"),
        *_parse_source(source if isinstance(source, dict) else {}),
    )


def _is_dead_letter(fields: dict[str, object]) -> bool:
    optional = (fields.get(name) for name in ("payload", "payload_sha256"))
    return isinstance(fields.get("reason"), str) and all(
        value is None or isinstance(value, str) for value in optional
    )


def _parse_source(source: dict[str, object]) -> tuple[Position | None, int | None]:
    topic, partition, offset = (source.get(name) for name in ("topic", "partition", "offset"))
    if not (isinstance(topic, str) and isinstance(partition, int) and isinstance(offset, int)):
        return None, None
    try:
        time = datetime.fromisoformat(str(source.get("timestamp")))
    except ValueError:
        return Position(topic, partition, offset), None
    return Position(topic, partition, offset), round(time.timestamp() * 1000)


def record_to_replay(letter: DeadLetter, original: Record | None) -> Record | str:
    """Return the record that a dead letter stands for, or why it cannot be sent again. Pure.

    Args:
        letter: if it is all that is left, only the value is known: partition and offset are -1.
        original: the record at its source, None if it no longer exists.
    """
    if original is not None and _is_original(letter, original):
        return original
    if not letter.of_record:
        problem = (
            "names no record of a topic" if letter.source is None else "the record no longer exists"
        )
        return f"the dead letter has a row made from its record, not the record; {problem}"
    if letter.payload is not None:
        payload = letter.payload.encode(errors="surrogatepass")
        if hashlib.sha256(payload).hexdigest() == letter.sha256:
            return Record(partition=-1, offset=-1, key=None, value=payload)
    problem = "another record is now at its source" if original else "its record no longer exists"
    if letter.source is None:
        problem = "it names no record of a topic"
    return f"{problem}, and the dead letter does not have all of its bytes"


def _is_original(letter: DeadLetter, record: Record) -> bool:
    """Return whether the record at the source is still the one that the dead letter stands for.

    A topic that was re-created has other records at the same offsets.
    """
    if letter.of_record:
        digest = None if record.value is None else hashlib.sha256(record.value).hexdigest()
        return digest == letter.sha256
    return letter.source_ms is not None and record.timestamp_ms == letter.source_ms
