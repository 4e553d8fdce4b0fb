"""Brokers of a cluster are found by their role, and the cluster goes on without one of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from infra.local_services.kafka import KafkaBroker, broker_cluster
from infra.local_services.services import start_all
from tests.robustness.failpoints import brokers

TOPIC = "clicks"


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaBroker, ...]]:
    nodes = broker_cluster(tmp_path_factory.mktemp("brokers"), 3)
    try:
        start_all(nodes)
        nodes[0].endpoint.create_topic(TOPIC)
        yield nodes
    finally:
        for node in nodes:
            node.kill()


def test_a_cluster_has_one_controller_and_takes_records_while_its_leader_is_down(
    three: tuple[KafkaBroker, ...],
) -> None:
    assert brokers.controller(three) in three
    led = brokers.leader(three, TOPIC)
    led.kill()
    rest = tuple(node for node in three if node is not led)
    write(rest)
    assert brokers.leader(rest, TOPIC) in rest
    assert brokers.controller(rest) in rest
    assert brokers.coordinator(rest) in rest
    led.start()


def write(nodes: tuple[KafkaBroker, ...]) -> None:
    """Write a record in a transaction, of which a majority of the brokers must know."""
    servers = ",".join(node.endpoint.bootstrap for node in nodes)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "job", "log_level": 0})
    producer.init_transactions(60.0)
    producer.begin_transaction()
    producer.produce(TOPIC, b"click")
    producer.commit_transaction(60.0)
