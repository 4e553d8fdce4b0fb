"""Reads topics and tables with the clients of Kafka and MySQL, and files, with nothing else."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pymysql
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from pymysql.connections import Connection

from tests.robustness.validate.checker.history import Record

_WAIT_S = 30.0
_BATCH_S = 0.2
"""A batch is returned when it is full or this time is over, even if every partition has ended."""


def read_topic(bootstrap: str, topic: str) -> tuple[Record, ...]:
    """Return the committed records of a topic, in the order of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checker",  # required, never joined
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    with closing(consumer):
        partitions = consumer.list_topics(topic, timeout=_WAIT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
        records: list[Record] = []
        unread = set(partitions)
        deadline = time.monotonic() + _WAIT_S
        while unread:
            messages = consumer.consume(1000, timeout=_BATCH_S)
            if messages:
                deadline = time.monotonic() + _WAIT_S
            elif time.monotonic() > deadline:
                raise TimeoutError(
                    f"no record of topic {topic} for {_WAIT_S:g} s: {sorted(unread)}"
                )
            for message in messages:
                error = message.error()
                if error is None:
                    records.append(_record(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition())
                else:
                    raise KafkaException(error)
    return tuple(sorted(records, key=lambda record: record[:2]))


def _record(message: Message) -> Record:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    time_ms = message.timestamp()[1]
    return Record(partition, offset, message.key(), message.value(), tuple(headers), time_ms)


def read_lines(folder: Path) -> tuple[Record, ...]:
    """Return the lines of the files of a folder that are not hidden, with the path of the file as key."""
    files = sorted(file for file in folder.iterdir() if not file.name.startswith("."))
    return tuple(
        Record(number, offset, bytes(file.absolute()), line)
        for number, file in enumerate(files)
        for offset, line in enumerate(file.read_bytes().splitlines())
    )


def read_table(url: str, table: str, columns: str) -> tuple[tuple[Any, ...], ...]:
    """Return the rows of a table; `url` as for `connect`."""
    with closing(connect(url)) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM `{table}`")
        return tuple(tuple(row) for row in cursor.fetchall())


def connect(url: str, **options: Any) -> Connection[Any]:  # noqa: ANN401 - of pymysql
    """Connect to MySQL; `url` is mysql://user:password@host:port/database."""
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=parts.username,
        password=parts.password or "",
        database=parts.path.lstrip("/"),
        **options,
    )
