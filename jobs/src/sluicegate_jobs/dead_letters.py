"""Dead letters of a job's own rows, and their sink: a topic or a table.

The library builds those of rows that a sink refuses (`sluicegate.dead_letters.letter`).
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from sluicegate import KafkaSink, MySQLSink
from sluicegate.packaged_job import JobSettings
from sluicegate.sinks.contract import Sink
from sluicegate_jobs.targets import create_table, create_topics

PAYLOAD_CHARACTERS = 65_536
"""How much of a record a dead letter contains; its hash covers the whole record."""

COLUMNS = ("reason", "payload", "payload_sha256", "payload_of", "source")
"""The columns of a dead letter in a table."""

TABLE_COLUMNS = """
  id BIGINT NOT NULL AUTO_INCREMENT,
  reason TEXT NOT NULL,
  payload MEDIUMTEXT,
  payload_sha256 CHAR(64),
  payload_of VARCHAR(20) NOT NULL DEFAULT '',
  source TEXT,
  source_topic VARCHAR(249) GENERATED ALWAYS AS (JSON_UNQUOTE(JSON_EXTRACT(source, '$.topic'))) STORED,
  source_partition INT GENERATED ALWAYS AS (JSON_EXTRACT(source, '$.partition')) STORED,
  source_offset BIGINT GENERATED ALWAYS AS (JSON_EXTRACT(source, '$.offset')) STORED,
  PRIMARY KEY (id)
"""


def letter_columns(
    reason: Column, content: Column, source: Column, sha256: Column | None = None
) -> list[Column]:
    """Return a record as a dead letter: `value` for a topic, `COLUMNS` for a table.

    Args:
        reason: starts with one word for the kind, such as 'late: …'.
        content: the record's bytes; stored as text and cut, so invalid UTF-8 is lost.
        source: a struct with the record's position.
        sha256: of the whole record, if `content` is only a part of it.
    """
    digest = F.sha2(content, 256)
    fields = {
        "reason": reason,
        "payload": F.substring(content.cast("string"), 1, PAYLOAD_CHARACTERS),
        "payload_sha256": digest if sha256 is None else F.coalesce(sha256, digest),
        "source": source,
    }
    value = F.to_json(F.struct(*(column.alias(name) for name, column in fields.items())))
    table = fields | {"payload_of": F.lit("record"), "source": F.to_json(source)}
    return [value.alias("value"), *(table[name].alias(name) for name in COLUMNS)]


def dead_letter_sink(settings: JobSettings, topic: str, table: str = "") -> Sink:
    """Return the sink of the output `dead_letters`: the table if one is named, otherwise the topic."""
    of = "dead_letters"
    if table:
        return MySQLSink(table, on_conflict="error", columns=COLUMNS, url=settings.mysql, of=of)
    return KafkaSink(topic, value="value", of=of, bootstrap=settings.kafka)


def create_dead_letter_target(settings: JobSettings, topic: str, table: str) -> list[str]:
    """Create the table or topic of dead letters if it is missing; return what was created."""
    if table:
        return create_table(settings.mysql, table, TABLE_COLUMNS)
    return create_topics(settings.kafka, (topic,))
