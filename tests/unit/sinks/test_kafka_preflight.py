"""What the preflight of the Kafka sink reads from the brokers, and warns of. On brokers in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import ResourceType

from sluicegate.sinks.kafka import preflight
from sluicegate.sinks.kafka.connection import Connection
from sluicegate.sinks.kafka.preflight import Preflight
from sluicegate.sinks.kafka.topic import TopicLimits

DAY_MIN = 24 * 60


def limits(
    monkeypatch: pytest.MonkeyPatch, retention_min: int, policy: str = "delete"
) -> TopicLimits:
    """Return what the preflight reads from a broker with this retention of group offsets.

    `policy` is the cleanup policy of the topic of the markers, and of the sink's.
    """
    settings = {
        ResourceType.TOPIC: {"max.message.bytes": "1000", "cleanup.policy": policy},
        ResourceType.BROKER: {
            "transaction.max.timeout.ms": "900000",
            "offsets.retention.minutes": str(retention_min),
        },
    }
    admin: Any = SimpleNamespace(
        connect=lambda: ("1", "cluster-a"),
        wait_for=lambda *_: SimpleNamespace(partitions=[0]),
        ensure=lambda *_: False,
        config=lambda kind, _name: settings[kind],
    )
    monkeypatch.setattr(preflight, "KafkaAdmin", lambda *_: admin)
    check = Preflight(Connection("localhost:1"), "orders")
    return check.run(parts=1, apply_timeout_s=60)


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_markers_that_expire_within_a_month_and_are_not_durable_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, policy: str
) -> None:
    limits(monkeypatch, 7 * DAY_MIN, policy)
    assert "offsets.retention.minutes is 10080, 7.0 days" in caplog.text
    assert "it is lost whether orders has the epoch" in caplog.text


@pytest.mark.parametrize("retention_min", [30 * DAY_MIN, 2**31 - 1])
def test_a_long_retention_is_not_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, retention_min: int
) -> None:
    limits(monkeypatch, retention_min)
    assert not caplog.text


def test_durable_markers_are_not_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limits(monkeypatch, 7 * DAY_MIN, "compact")
    assert not caplog.text


def test_the_id_of_the_cluster_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits(monkeypatch, DAY_MIN).cluster == "cluster-a"
