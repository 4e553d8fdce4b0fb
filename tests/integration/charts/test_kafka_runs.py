"""The bundled Kafka with SCRAM and TLS: a job runs with the rights that the chart grants, and no others.

One broker with the chart's settings, prepared by the script of the chart's Job.
"""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from infra.toolchain import maven
from sluicegate.errors import AccessDenied
from tests.integration.charts.chart_kafka import ChartKafka
from tests.integration.charts.hook_jobs import with_secrets
from tests.integration.charts.promql import scraped, server_queries, unknown
from tests.integration.charts.rendering import Charts, Document
from tests.integration.operator.api import Api

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

RECORDS = 300
PASSWORD = "OldUsersPassword"


def values(*users: str, topics: tuple[str, ...] = ("kafka_to_kafka_*",)) -> dict[str, Any]:
    return {
        "scram": {"enabled": True, "users": list(users), "topics": list(topics)},
        "tls": {"enabled": True},
        "topics": [{"name": "kafka_to_kafka_source", "partitions": 2}],
        "metrics": {"enabled": True},
        # as Strimzi's listener: Python's and Spark's clients must show a certificate
        "config": {"listener.name.client.ssl.client.auth": "required"},
    }


@pytest.fixture(scope="module")
def documents(charts: Charts, cluster: Api) -> list[Document]:
    rendered = charts.render("kafka", values("sluicegate", "leaver"))
    return with_secrets(cluster, rendered, "sluicegate")


@pytest.fixture(scope="module")
def kafka(
    documents: list[Document], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ChartKafka]:
    """Start the broker and run the Job's script, which creates users, rights and topics."""
    server = ChartKafka(tmp_path_factory.mktemp("chart-kafka"), documents)
    server.start()
    try:
        done = server.run_script("setup.sh")
        assert done.returncode == 0, (done.stdout, done.stderr)
        yield server
    finally:
        server.stop()


def run_sluicegate(
    kafka: ChartKafka, *arguments: str, config: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command as a user who knows only the broker's address and a login."""
    environment = {
        "SLUICEGATE_KAFKA": kafka.servers,
        "SLUICEGATE_KAFKA_CONFIG": str(config or kafka.properties),
        "SLUICEGATE_JARS": str(maven.folder("spark")),
    }
    return subprocess.run(
        [sys.executable, "-m", "sluicegate.cli", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def committed_offsets(kafka: ChartKafka, group: str, topic: str) -> int:
    """Return the sum of a consumer group's offsets on a topic of two partitions."""
    settings: dict[str, Any] = {**kafka.settings(), "group.id": group}
    with closing(Consumer(settings)) as consumer:
        asked = [TopicPartition(topic, partition) for partition in (0, 1)]
        return sum(found.offset for found in consumer.committed(asked, timeout=30))


def test_a_job_is_exact_with_the_rights_that_the_chart_grants(
    kafka: ChartKafka, tmp_path: Path
) -> None:
    """Targets, generator, Spark's source and its offsets for tools, sink, markers and verification.

    With SCRAM, TLS and a client certificate.
    """
    checkpoint = ["--checkpoint", str(tmp_path / "checkpoint")]
    for arguments in (
        ["targets", "kafka_to_kafka"],
        ["generate", "kafka_to_kafka", "--records", str(RECORDS)],
        ["run", "kafka_to_kafka", "--interval", "available-now", "--once", *checkpoint],
    ):
        result = run_sluicegate(kafka, *arguments)
        assert result.returncode == 0, (arguments, result.stdout, result.stderr)
    result = run_sluicegate(kafka, "verify", "kafka_to_kafka", *checkpoint)
    assert result.returncode == 0, (result.stdout, result.stderr)
    assert "EXACT" in result.stdout.upper()
    source = "kafka_to_kafka_source"
    assert committed_offsets(kafka, "sluicegate.kafka_to_kafka", source) == RECORDS


def test_the_agent_serves_what_the_page_queries(kafka: ChartKafka) -> None:
    topic = "kafka_to_kafka_metrics"
    settings: dict[str, Any] = kafka.settings()
    # bound to a name: a client that is garbage-collected cancels its requests
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
    producer = Producer(settings)
    producer.produce(topic, b"a record")
    assert producer.flush(30) == 0
    with urllib.request.urlopen(kafka.metrics_url, timeout=30) as answer:  # noqa: S310 - of our broker
        text = answer.read().decode()
    series = scraped(text)
    queries = server_queries("kafka_")
    assert len(queries) > 1
    assert [found for query in queries for found in unknown(query, series)] == []
    assert f'kafka_server_brokertopicmetrics_messagesin_total{{topic="{topic}"}} 1.0\n' in text
    assert "jmx_scrape_error 0.0" in text


def denial(kafka: ChartKafka, doing: str) -> str:
    """Return the name of the error with which the broker refuses what no job does."""
    settings: dict[str, Any] = kafka.settings()
    admin = AdminClient(settings)
    futures: dict[Any, Any] = (
        admin.create_topics([NewTopic("payroll", 1)])
        if doing == "create"
        else admin.delete_topics(["kafka_to_kafka_source"])
    )
    (future,) = futures.values()
    with pytest.raises(KafkaException) as raised:
        future.result(30)
    error = raised.value.args[0]
    assert isinstance(error, KafkaError)
    return error.name()


def test_a_job_may_neither_use_other_topics_nor_delete_its_own(kafka: ChartKafka) -> None:
    assert denial(kafka, "create") == "TOPIC_AUTHORIZATION_FAILED"
    assert denial(kafka, "delete") == "TOPIC_AUTHORIZATION_FAILED"


def test_a_wrong_password_is_reported_at_the_start(kafka: ChartKafka) -> None:
    config = kafka.client_file("sluicegate", "wrong")
    result = run_sluicegate(kafka, "targets", "kafka_to_kafka", config=config)
    assert result.returncode == AccessDenied.exit_code, (result.stdout, result.stderr)
    assert "AccessDenied" in result.stderr
    assert "wrong" not in result.stdout + result.stderr.replace("wrong password", "")


def test_a_client_without_tls_is_rejected(kafka: ChartKafka) -> None:
    settings: dict[str, Any] = {**kafka.settings(), "security.protocol": "PLAINTEXT"}
    with pytest.raises(KafkaException):
        AdminClient(settings).list_topics(timeout=5)


def test_no_argument_and_no_variable_of_a_process_has_a_password(kafka: ChartKafka) -> None:
    """Of the server and of every tool that it, and the Job's script, have run."""
    process = Path(f"/proc/{kafka.pid}")
    seen = [
        kafka.tools_log.read_bytes(),
        *((process / f).read_bytes() for f in ("cmdline", "environ")),
    ]
    assert b"StorageTool" in seen[0]
    assert b"AclCommand" in seen[0]
    for password in kafka.passwords.values():
        assert not [text for text in seen if password.encode() in text]


def test_the_pods_script_reports_a_node_in_sync(kafka: ChartKafka) -> None:
    done = kafka.run_script("ready.sh")
    assert done.returncode == 0, (done.stdout, done.stderr)


def test_a_user_that_the_values_do_not_name_any_more_cannot_log_in(
    charts: Charts, kafka: ChartKafka, documents: list[Document]
) -> None:
    """Nor keeps the user that stays a right that was taken from the values."""
    login: dict[str, Any] = kafka.settings(kafka.client_file("leaver", kafka.passwords["leaver"]))
    connected = AdminClient(login)
    assert "kafka_to_kafka_source" in connected.list_topics(timeout=30).topics
    upgraded = charts.render("kafka", values("sluicegate", topics=("kafka_to_kafka_source",)))
    kafka.mount([*upgraded, *(d for d in documents if d["kind"] == "Secret")])
    done = kafka.run_script("setup.sh")
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "remove the user leaver" in done.stdout
    with pytest.raises(KafkaException):
        AdminClient(login).list_topics(timeout=5)
    assert "kafka_to_kafka_source" not in connected.list_topics(timeout=30).topics
    staying: dict[str, Any] = kafka.settings()
    topics = set(AdminClient(staying).list_topics(timeout=30).topics)
    assert topics - {"sluicegate.markers"} == {"kafka_to_kafka_source"}
