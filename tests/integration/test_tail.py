"""`sluicegate tail` on a real topic."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from infra.local_services import Services
from sluicegate.cli.app import app

pytestmark = pytest.mark.integration


@pytest.fixture
def topic(services: Services) -> str:
    name = f"tail-{uuid.uuid4().hex[:8]}"
    services.kafka.create_topic(name, 2)
    return name


@pytest.fixture
def transactional_producer(services: Services) -> Producer:
    settings = {"bootstrap.servers": services.kafka.bootstrap, "transactional.id": uuid.uuid4().hex}
    producer = Producer(settings)
    producer.init_transactions(30)
    return producer


def run_tail(services: Services, topic: str, *options: str) -> Result:
    arguments = ["tail", topic, "--kafka", services.kafka.bootstrap, *options]
    return CliRunner().invoke(app, arguments)


def send(producer: Producer, topic: str, *values: str) -> None:
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def values(result: Result) -> list[object]:
    assert result.exit_code == 0, result.output
    return [json.loads(line)["value"] for line in result.stdout.splitlines()]


def test_records_of_aborted_and_open_transactions_are_skipped(
    services: Services, topic: str, transactional_producer: Producer
) -> None:
    """With read_uncommitted they are printed."""
    for value, end_transaction in (
        ("a", transactional_producer.commit_transaction),
        ("b", transactional_producer.abort_transaction),
    ):
        transactional_producer.begin_transaction()
        send(transactional_producer, topic, value)
        end_transaction(30)
    transactional_producer.begin_transaction()
    send(transactional_producer, topic, "c")
    options = ("--from-beginning", "--until-end", "--json")
    assert values(run_tail(services, topic, *options)) == ["a"]
    uncommitted = run_tail(services, topic, *options, "--isolation", "read_uncommitted")
    assert values(uncommitted) == ["a", "b", "c"]
    transactional_producer.abort_transaction(30)


def test_a_record_is_printed_completely(services: Services, topic: str) -> None:
    """Key, value and headers, also bytes that are not text, with position and time."""
    producer = Producer({"bootstrap.servers": services.kafka.bootstrap})
    headers: list[tuple[str, str | bytes | None]] = [("h", b"1"), ("h", b"\xff")]
    producer.produce(topic, None, b"k\xff", 1, timestamp=1_767_787_200_123, headers=headers)
    assert producer.flush(30) == 0
    options = ("--from-beginning", "--max", "1")
    assert json.loads(run_tail(services, topic, *options, "--json").stdout) == {
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": "2026-01-07T12:00:00.123+00:00",
        "key": {"base64": "a/8="},
        "value": None,
        "headers": [["h", "1"], ["h", {"base64": "/w=="}]],
    }
    line = run_tail(services, topic, *options).stdout
    assert line == "1@0        2026-01-07 12:00:00.123  k\\xff  -  {h=1 h=\\xff}\n"


def test_tail_leaves_no_group_and_a_second_run_prints_the_same(
    services: Services, topic: str
) -> None:
    send(Producer({"bootstrap.servers": services.kafka.bootstrap}), topic, "a", "b", "c")
    options = ("--from-beginning", "--json", "--max", "2")
    assert (
        values(run_tail(services, topic, *options))
        == values(run_tail(services, topic, *options))
        == ["a", "b"]
    )
    admin = (
        services.kafka.admin()
    )  # a name: when the client is collected, its pending results are lost
    groups = admin.list_consumer_groups(request_timeout=10).result(20).valid
    assert not [
        group.group_id for group in groups if group.group_id.startswith("sluicegate.reader")
    ]


def test_a_missing_topic_is_named_and_not_created(services: Services) -> None:
    result = run_tail(services, "no_such_topic_to_tail")
    assert result.exit_code == 64
    assert "topic no_such_topic_to_tail does not exist" in result.output
    assert "no_such_topic_to_tail" not in services.kafka.topics()


def test_ctrl_c_stops_it_without_a_traceback(services: Services, topic: str) -> None:
    """It starts at the end of the topic: earlier records are not printed."""
    producer = Producer({"bootstrap.servers": services.kafka.bootstrap})
    send(producer, topic, "before")
    command = [sys.executable, "-u", "-m", "sluicegate.cli", "tail", topic, "--json"]
    command += ["--kafka", services.kafka.bootstrap]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        with _feeding(producer, topic):
            line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert b"Traceback" not in process.stderr.read()
    assert json.loads(line)["value"] == "after"


@contextmanager
def _feeding(producer: Producer, topic: str) -> Iterator[None]:
    """Send records repeatedly, because the time at which the reader reaches the topic's end is unknown."""
    stop = threading.Event()

    def feed() -> None:
        while not stop.wait(0.1):
            send(producer, topic, "after")

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        yield
    finally:
        stop.set()
        feeder.join()
