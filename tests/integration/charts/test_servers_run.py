"""What the charts configure is run: Kafka with SCRAM and TLS, and the store with TLS, by their own settings.

Not the images: the servers are those of this machine, and folders, hosts and ports are replaced.
"""

import base64
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from infra.local_services.process import Server, accepts, free_ports
from infra.preflight import java_command
from infra.toolchain import go_programs, maven
from tests.integration.charts.rendering import Charts, Document, of_kind, the

ON = {
    "scram": {"enabled": True, "users": ["sluicegate"]},
    "tls": {"enabled": True},
    "topics": [{"name": "clicks", "partitions": 2, "config": {"retention.ms": 86400000}}],
}


def data_of(documents: list[Document], name: str) -> dict[str, str]:
    """Return what is in a Secret, as a pod sees it."""
    found = the(documents, "Secret", name)
    coded = {key: base64.b64decode(text).decode() for key, text in found.get("data", {}).items()}
    return {**coded, **found.get("stringData", {})}


class ChartKafka(Server):
    """The one node of a rendered chart, as the image's entry point would start it."""

    NAME = "Kafka of the chart"
    LOG = "kafka.log"
    START_TIMEOUT_S = 120.0

    def __init__(self, folder: Path, documents: list[Document]) -> None:
        super().__init__(folder)
        self.documents = documents
        self.client, self.controller, self.internal = free_ports(3)
        for name in ("tls", "scripts", "data"):
            (folder / name).mkdir()
        self.passwords = data_of(documents, "sluicegate-kafka-scram")
        for name, text in data_of(documents, "sluicegate-kafka-tls").items():
            (folder / "tls" / name).write_text(text)
        scripts = the(documents, "ConfigMap", "sluicegate-kafka-scripts")["data"]
        for name, text in scripts.items():
            (folder / "scripts" / name).write_text(self._here(text))
        tool = folder / "kafka-tool"
        tool.write_text(f'#!/bin/sh\nexec {" ".join(self._java())} "$@"\n')
        tool.chmod(0o755)

    def set_up(self) -> None:
        """Make the user and the topic, as the brokers' own user: what the chart's Job does by Kafka's tools."""
        mine = {"sasl.username": "broker", "sasl.password": self.passwords["broker"]}
        config: dict[str, str | int | float | bool] = {**self.settings(), **mine}
        admin = AdminClient(config)
        word = self.passwords["sluicegate"].encode()
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        user = UserScramCredentialUpsertion("sluicegate", info, word)
        for done in admin.alter_user_scram_credentials([user]).values():
            done.result(60)
        for done in admin.create_topics([NewTopic("clicks", 2)]).values():
            done.result(60)

    def _here(self, text: str) -> str:
        """Return a text of the chart with this machine's folders, host and ports."""
        # first: the folders below are in /tmp too
        text = text.replace("/tmp/", f"{self._folder}/")
        host = r"(@POD_NAME@|sluicegate-kafka-0)\.sluicegate-kafka-headless\.sluicegate\.svc"
        text = re.sub(host, "127.0.0.1", text).replace("@NODE_ID@", "0")
        ports = {"9092": self.client, "9093": self.controller, "9094": self.internal}
        for port, mine in ports.items():
            text = text.replace(f":{port}", f":{mine}")
        folders = {
            "/etc/kafka/tls": "tls",
            "/etc/kafka/scripts": "scripts",
            "/var/lib/kafka": "data",
        }
        for theirs, folder in folders.items():
            text = text.replace(theirs, str(self._folder / folder))
        return text.replace("/opt/sluicegate/kafka-tool", str(self._folder / "kafka-tool"))

    def _java(self) -> list[str]:
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        fast = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"]
        return [java_command(), *fast, quiet, "-cp", f"'{maven.fetch('kafka')}/*'"]

    def _environment(self) -> Mapping[str, str]:
        return os.environ | {"BROKER_PASSWORD": self.passwords["broker"]}

    def _prepare(self) -> list[str]:
        config = self._folder / "server.properties"
        settings = the(self.documents, "ConfigMap", "sluicegate-kafka")["data"]["server.properties"]
        config.write_text(self._here(settings))
        (container,) = the(self.documents, "StatefulSet")["spec"]["template"]["spec"]["containers"]
        given = {one["name"]: one.get("value", "") for one in container["env"]}
        user = given["KAFKA_FORMAT_ARGS"].replace("$(BROKER_PASSWORD)", self.passwords["broker"])
        tool = [str(self._folder / "kafka-tool"), "kafka.tools.StorageTool", "format"]
        named = ["--ignore-formatted", "-t", given["KAFKA_CLUSTER_ID"], "-c", str(config)]
        environment = dict(self._environment())
        subprocess.run(
            [*tool, *named, *user.split()], env=environment, check=True, capture_output=True
        )
        return [str(self._folder / "kafka-tool"), "kafka.Kafka", str(config)]

    def _ready(self) -> bool:
        return accepts(self.client)

    def settings(self) -> dict[str, str]:
        """Return what a job's driver is given, in librdkafka's words."""
        found = data_of(self.documents, "sluicegate-kafka-client")
        (self._folder / "ca.crt").write_text(found["ca.crt"])
        lines = found["kafka.properties"].replace("/etc/kafka-client", str(self._folder))
        said = dict(line.split("=", 1) for line in lines.splitlines() if line)
        return {**said, "bootstrap.servers": f"127.0.0.1:{self.client}"}


@pytest.fixture(scope="module")
def kafka(charts: Charts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChartKafka]:
    documents = charts.render("kafka", ON)
    server = ChartKafka(tmp_path_factory.mktemp("kafka"), documents)
    server.start()
    try:
        server.set_up()
        yield server
    finally:
        server.stop()


@pytest.mark.integration
def test_a_client_with_the_charts_secret_writes_and_reads(kafka: ChartKafka) -> None:
    """By TLS and SCRAM."""
    producer = Producer(kafka.settings())
    producer.produce("clicks", b"a record")
    assert producer.flush(30) == 0
    group = {"group.id": "test", "auto.offset.reset": "earliest"}
    consumer = Consumer({**kafka.settings(), **group})
    consumer.subscribe(["clicks"])
    try:
        found = consumer.poll(60)
        assert found is not None
        assert found.value() == b"a record"
    finally:
        consumer.close()


@pytest.mark.integration
@pytest.mark.parametrize(
    "change",
    [{"sasl.password": "wrong"}, {"security.protocol": "PLAINTEXT"}],
    ids=["wrong password", "plain text"],
)
def test_who_does_not_log_in_is_told_nothing(kafka: ChartKafka, change: dict[str, str]) -> None:
    config: dict[str, str | int | float | bool] = {**kafka.settings(), **change}
    client = AdminClient(config)
    with pytest.raises(KafkaException):
        client.list_topics(timeout=5)


class ChartStore(Server):
    """The store of a rendered chart, by its own arguments."""

    NAME = "the chart's store"
    LOG = "store.log"
    START_TIMEOUT_S = 30.0

    def __init__(self, folder: Path, documents: list[Document]) -> None:
        super().__init__(folder)
        self.documents = documents
        (self.port,) = free_ports(1)
        # as the kubelet makes the folders of subPath
        for name in ("objects", "metadata", "tls"):
            (folder / name).mkdir()
        for name, text in data_of(documents, "sluicegate-object-store-tls").items():
            (folder / "tls" / name).write_text(text)

    def _environment(self) -> Mapping[str, str]:
        keys = data_of(self.documents, "sluicegate-object-store")
        (container,) = self._pod()["containers"]
        named = {
            one["name"]: keys[one["valueFrom"]["secretKeyRef"]["key"]] for one in container["env"]
        }
        return os.environ | named

    def _pod(self) -> Document:
        found: Document = the(self.documents, "StatefulSet")["spec"]["template"]["spec"]
        return found

    def _prepare(self) -> list[str]:
        (container,) = self._pod()["containers"]
        text = "\n".join(container["args"]).replace(":7070", f"127.0.0.1:{self.port}")
        text = text.replace("/var/lib/store", str(self._folder))
        text = text.replace("/etc/store", str(self._folder))
        return [str(go_programs.VERSITYGW.build()), *text.split("\n")]

    def _ready(self) -> bool:
        return accepts(self.port)

    def ask(self) -> subprocess.CompletedProcess[str]:
        """Run what `helm test` runs."""
        (pod,) = of_kind(self.documents, "Pod")
        (container,) = pod["spec"]["containers"]
        keys = data_of(self.documents, "sluicegate-object-store")
        named = {
            "ENDPOINT": f"https://127.0.0.1:{self.port}",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": keys["accessKeyId"],
            "AWS_SECRET_ACCESS_KEY": keys["secretAccessKey"],
            "SSL_CERT_FILE": str(self._folder / "tls" / "ca.crt"),
        }
        assert named.keys() == {one["name"] for one in container["env"]}
        return subprocess.run(
            [sys.executable, "-c", *container["args"]],
            env=os.environ | named,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


@pytest.mark.integration
def test_the_store_with_tls_takes_signed_requests_by_its_charts_settings(
    charts: Charts, tmp_path: Path
) -> None:
    if gap := go_programs.VERSITYGW.missing_reason():
        pytest.skip(gap)
    server = ChartStore(tmp_path, charts.render("object-store", {"tls": {"enabled": True}}))
    server.start()
    began = time.monotonic()
    try:
        done = server.ask()
    finally:
        server.stop()
    assert done.returncode == 0, done.stderr
    assert "returns what was put" in done.stdout
    assert time.monotonic() - began < 60
