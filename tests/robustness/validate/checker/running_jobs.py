"""Checks the packaged jobs after a scenario: reads what a job has read and written, and judges it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

from tests.robustness.validate.checker.history import History, Limits, Report
from tests.robustness.validate.checker.jobs import (
    Lateness,
    check_ip_count,
    check_joined_payments,
    check_orders,
    check_two_sinks,
    check_word_count,
)
from tests.robustness.validate.checker.kafka_to_kafka import check_kafka_to_kafka
from tests.robustness.validate.checker.orders_batch import check_orders_batch
from tests.robustness.validate.checker.reading import read_lines, read_table, read_topic

_TABLES = {
    "ip_count": "window_start, ip, window_end, hits",
    "joined_payments": "id, pairs, cents",
    "orders_batch": "user, orders, total, largest, smallest",
    "orders_stream": "window_start, user, orders, largest, smallest",
    "word_count": "word, count",
    "two_sinks": "slot_time, key1, key2, key3, indicate",
}


def check_job(job: str, settings: object, *, skew: int, limits: Limits | None = None) -> Report:
    """Check a job that has read its whole source, and is stopped.

    Args:
        job: its name.
        settings: its settings; read are kafka, mysql, source, topic, table and dead_letters. Of
            kafka_to_kafka, `transform` and `partitions` must have their defaults.
        skew: see `Lateness`; 0 for a job without late rows.
        limits: of its sinks; default: those of the table that the job creates.
    """
    targets = SimpleNamespace(**vars(settings))
    topic = getattr(targets, "topic", "")
    history = History(
        targets.source,
        read_lines(Path(targets.source))
        if job == "orders_batch"
        else read_topic(targets.kafka, targets.source),
        read_topic(targets.kafka, topic) if topic else (),
        read_table(targets.mysql, targets.table, _TABLES[job]) if job in _TABLES else (),
        tuple(record.value for record in read_topic(targets.kafka, targets.dead_letters)),
    )
    keys = dict.fromkeys(("key1", "key2", "key3"), 64)
    checks: dict[str, Callable[[], Report]] = {
        "ip_count": lambda: check_ip_count(
            history, Lateness(5000, 5000, skew), limits or Limits({"ip": 45})
        ),
        "joined_payments": lambda: check_joined_payments(history),
        "kafka_to_kafka": lambda: check_kafka_to_kafka(history),
        "orders_batch": lambda: check_orders_batch(history),
        "orders_stream": lambda: check_orders(history, Lateness(5000, 2000, skew)),
        "two_sinks": lambda: check_two_sinks(history, limits or Limits(keys)),
        "word_count": lambda: check_word_count(history, limits or Limits({"word": 255})),
    }
    return checks[job]()
