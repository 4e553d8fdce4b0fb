"""Checks the packaged jobs after a scenario: reads what a job has read and written, and judges it."""

from __future__ import annotations

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
from tests.robustness.validate.checker.reading import read_table, read_topic

_TABLES = {
    "ip_count": "window_start, ip, window_end, hits",
    "joined_payments": "id, pairs, cents",
    "orders_stream": "window_start, user, orders, largest, smallest",
    "word_count": "word, count",
    "two_sinks": "slot_time, key1, key2, key3, indicate",
}


def check_job(job: str, settings: object, *, skew: int, limits: Limits | None = None) -> Report:
    """Check a job that has read its whole source, and is stopped.

    Args:
        job: its name.
        settings: its settings; read are kafka, mysql, source, topic, table and dead_letters.
        skew: see `Lateness`.
        limits: of its sinks; default: those of the table that the job creates.
    """
    targets = SimpleNamespace(**vars(settings))
    topic = getattr(targets, "topic", "")
    history = History(
        targets.source,
        read_topic(targets.kafka, targets.source),
        read_topic(targets.kafka, topic) if topic else (),
        read_table(targets.mysql, targets.table, _TABLES[job]),
        tuple(record.value for record in read_topic(targets.kafka, targets.dead_letters)),
    )
    if job == "ip_count":
        return check_ip_count(history, Lateness(5000, 5000, skew), limits or Limits({"ip": 45}))
    if job == "joined_payments":
        return check_joined_payments(history)
    if job == "orders_stream":
        return check_orders(history, Lateness(5000, 2000, skew))
    if job == "word_count":
        return check_word_count(history, limits or Limits({"word": 255}))
    keys = dict.fromkeys(("key1", "key2", "key3"), 64)
    return check_two_sinks(history, limits or Limits(keys))
