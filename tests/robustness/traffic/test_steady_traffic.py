"""The traffic of a long run, to a real broker."""

from __future__ import annotations

import itertools
import time
import uuid
from unittest.mock import MagicMock

import pytest
from confluent_kafka.admin import NewPartitions

from infra.local_services import Services
from tests.robustness.traffic import steady_traffic
from tests.robustness.traffic.steady_traffic import SteadyTraffic

pytestmark = pytest.mark.integration

RATE = 200.0


@pytest.fixture
def topic(services: Services) -> str:
    name = f"traffic-{uuid.uuid4().hex[:8]}"
    services.kafka.create_topic(name, 1)
    return name


def test_records_reach_a_partition_that_is_added_meanwhile(services: Services, topic: str) -> None:
    """The producer gets to know it only when it asks for it."""
    traffic = SteadyTraffic(services.kafka.bootstrap, topic, itertools.repeat(b"row"), RATE)
    traffic.start()
    time.sleep(0.5)
    admin = services.kafka.admin()
    asked = admin.create_partitions([NewPartitions(topic, 2)], operation_timeout=30.0)
    asked[topic].result(timeout=60.0)
    traffic.grow(2)
    before = traffic.confirmed
    time.sleep(1.0)
    traffic.check()
    assert traffic.stop() - before > RATE / 4


def test_paused_traffic_sends_afterwards_what_was_due(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = MagicMock()
    producer.flush.return_value = 0
    producer.list_topics().topics.__getitem__().partitions = [0]
    monkeypatch.setattr(steady_traffic, "Producer", lambda _settings: producer)
    traffic = SteadyTraffic("no broker", "rows", itertools.repeat(b"row"), RATE)
    with traffic.paused():
        traffic.start()
        time.sleep(0.3)
        assert producer.produce.call_count == 0
    time.sleep(0.3)
    traffic.stop()
    assert producer.produce.call_count >= RATE * 0.5


def test_traffic_that_has_ended_early_is_an_error(services: Services, topic: str) -> None:
    """Otherwise a job without input looks like one that is stuck."""
    traffic = SteadyTraffic(services.kafka.bootstrap, topic, iter([b"the only one"]), RATE)
    traffic.start()
    time.sleep(0.5)
    with pytest.raises(RuntimeError, match="StopIteration"):
        traffic.check()
