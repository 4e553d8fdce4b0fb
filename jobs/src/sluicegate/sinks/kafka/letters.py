"""Dead letters as they lie in a topic: what they say, and how one becomes its record again.

Not here: sending anything (`replay`). `restored` is pure. Called by `replay` and the CLI.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from confluent_kafka import Message

from sluicegate.sinks.kafka.clients import Connection
from sluicegate.sinks.kafka.reading import CommittedReader, Position

STAGED_ROW = "staged row"
"""`payload_of` of a refused row: the payload and its hash are not those of the source's record."""

UNREADABLE = "unreadable: no letter of Sluicegate"

Headers = list[tuple[str, bytes | None]]

_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True)
class Letter:
    """A dead letter.

    Args:
        at: where the letter stands.
        time_ms: its timestamp, ms since 1970.
        value: its bytes.
        reason: why the row is dead.
        payload: its text, cut; None for a record without a value.
        sha256: of the whole payload.
        of_record: the payload is the source's record, not a row that was made of it.
        source: where that record stands; None where the letter names no topic.
        source_ms: its timestamp, None if not told.
    """

    at: Position
    time_ms: int
    value: bytes
    reason: str
    payload: str | None = None
    sha256: str | None = None
    of_record: bool = True
    source: Position | None = None
    source_ms: int | None = None

    @property
    def kind(self) -> str:
        """The first word of the reason: 'late', 'unparsed', 'refused', ..."""
        return self.reason.partition(":")[0].split(" ", 1)[0].lower()

    @property
    def group(self) -> str:
        """The reason without its numbers, so that equal causes fall together."""
        return _DIGITS.sub("#", self.reason)


@dataclass(frozen=True)
class Restored:
    """A record to be sent again.

    Args:
        key: as it was; None too where only the value is known.
        value: as it was.
        headers: as they were.
        timestamp_ms: as it was; 0 for now.
        partition: where it was; None where not known.
        whole: key, headers and timestamp are known.
    """

    value: bytes | None
    key: bytes | None = None
    headers: Headers | None = None
    timestamp_ms: int = 0
    partition: int | None = None
    whole: bool = False


def read_letters(
    connection: Connection, topic: str, since_ms: int | None = None
) -> Iterator[Letter]:
    """Yield the dead letters of a topic, read_committed.

    Raises:
        TargetMissing: there is no such topic.
        SinkUnavailable: the brokers do not answer.
    """
    reader = CommittedReader(connection)
    try:
        for message in reader.all_of(topic, since_ms):
            yield parsed(message)
    finally:
        reader.close()


def parsed(message: Message) -> Letter:
    """Return a record of a dead-letter topic as a letter; one that is none says so as its reason."""
    value = message.value() or b""
    at = Position(message.topic() or "", message.partition() or 0, message.offset() or 0)
    time_ms = message.timestamp()[1]
    try:
        said = json.loads(value)
    except ValueError:
        return Letter(at, time_ms, value, UNREADABLE)
    if not isinstance(said, dict) or not isinstance(said.get("reason"), str):
        return Letter(at, time_ms, value, UNREADABLE)
    source = said.get("source")
    of_record = said.get("payload_of") != STAGED_ROW and not said["reason"].startswith("refused by")
    return Letter(
        at,
        time_ms,
        value,
        said["reason"],
        said.get("payload"),
        said.get("payload_sha256"),
        of_record,
        *_source(source if isinstance(source, dict) else {}),
    )


def _source(said: dict[str, object]) -> tuple[Position | None, int | None]:
    topic, partition, offset = (said.get(name) for name in ("topic", "partition", "offset"))
    if not (isinstance(topic, str) and isinstance(partition, int) and isinstance(offset, int)):
        return None, None
    try:
        at = datetime.fromisoformat(str(said.get("timestamp")))
    except ValueError:
        return Position(topic, partition, offset), None
    return Position(topic, partition, offset), round(at.timestamp() * 1000)


def restored(letter: Letter, original: Message | None) -> Restored | str:
    """Return the record that a letter is about, or why it cannot be sent again.

    Args:
        letter: a dead letter.
        original: the record at its source, None if it is not there any more.
    """
    if original is not None and _same(letter, original):
        return Restored(
            value=original.value(),
            key=original.key(),
            headers=_headers(original),
            timestamp_ms=max(0, original.timestamp()[1]),
            partition=original.partition(),
            whole=True,
        )
    if not letter.of_record:
        where = (
            "names no record of a topic" if letter.source is None else "names a record that is gone"
        )
        return f"the letter holds a row that was made from its record, and {where}"
    if letter.payload is not None:
        payload = letter.payload.encode(errors="surrogatepass")
        if hashlib.sha256(payload).hexdigest() == letter.sha256:
            return Restored(payload)
    gone = "the record at its source is another one" if original else "its record is gone"
    if letter.source is None:
        gone = "it names no record of a topic"
    return f"{gone}, and the letter has not all of it, byte for byte"


def _same(letter: Letter, original: Message) -> bool:
    """Say whether the record at the source is still the one that the letter is about.

    A topic that was made anew has other records at the same offsets.
    """
    value = original.value()
    if letter.of_record:
        found = None if value is None else hashlib.sha256(value).hexdigest()
        return found == letter.sha256
    return letter.source_ms is not None and original.timestamp()[1] == letter.source_ms


def _headers(message: Message) -> Headers:
    found: Any = message.headers() or []  # a list of pairs; its type says what `produce` takes
    return [(name, value) for name, value in found]
