"""Servers with the charts' settings: Kafka with SCRAM and TLS, and the object store with TLS.

The images are not used: the servers of this machine run, with other folders, hosts and ports.
"""

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
from tests.integration.charts.hook_jobs import run_hook_jobs, secrets_in
from tests.integration.charts.rendering import Charts, Document, of_kind, only_of_kind
from tests.integration.operator.api import Api

ALL_ENABLED = {
    "scram": {"enabled": True, "users": ["sluicegate"]},
    "tls": {"enabled": True},
    "topics": [{"name": "clicks", "partitions": 2, "config": {"retention.ms": 86400000}}],
}


Secrets = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def namespace(cluster: Api) -> Api:
    """Return the API server with the namespace of the rendered releases, where Secrets are created."""
    cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": "sluicegate"}})
    return cluster


def create_secrets(api: Api, documents: list[Document]) -> Secrets:
    """Create the Secrets of a release as its Jobs do, and return their data."""
    run_hook_jobs(api, documents)
    return secrets_in(api, "sluicegate")


class ChartKafka(Server):
    """The only node of a rendered chart, started as the image's entry point does."""

    NAME = "Kafka of the chart"
    LOG = "kafka.log"
    START_TIMEOUT_S = 120.0

    def __init__(self, folder: Path, documents: list[Document], secrets: Secrets) -> None:
        super().__init__(folder)
        self.documents, self.secrets = documents, secrets
        self.client, self.controller, self.internal = free_ports(3)
        for name in ("tls", "scripts", "data"):
            (folder / name).mkdir()
        self.passwords = self.secrets["sluicegate-kafka-scram"]
        for name, text in secrets["sluicegate-kafka-tls"].items():
            (folder / "tls" / name).write_text(text)
        scripts = only_of_kind(documents, "ConfigMap", "sluicegate-kafka-scripts")["data"]
        for name, text in scripts.items():
            (folder / "scripts" / name).write_text(self._localize(text))
        tool = folder / "kafka-tool"
        tool.write_text(f'#!/bin/sh\nexec {" ".join(self._java())} "$@"\n')
        tool.chmod(0o755)

    def create_user_and_topic(self) -> None:
        """Create the user and the topic as the brokers' user; the chart's Job does this with Kafka's tools."""
        login = {"sasl.username": "broker", "sasl.password": self.passwords["broker"]}
        config: dict[str, str | int | float | bool] = {**self.settings(), **login}
        admin = AdminClient(config)
        password = self.passwords["sluicegate"].encode()
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        user = UserScramCredentialUpsertion("sluicegate", info, password)
        for future in admin.alter_user_scram_credentials([user]).values():
            future.result(60)
        for future in admin.create_topics([NewTopic("clicks", 2)]).values():
            future.result(60)

    def _localize(self, text: str) -> str:
        """Replace the chart's folders, hosts and ports in a text by those of this machine."""
        # first, because the folders below are in /tmp too
        text = text.replace("/tmp/", f"{self._folder}/")
        host = r"(@POD_NAME@|sluicegate-kafka-0)\.sluicegate-kafka-headless\.sluicegate\.svc"
        text = re.sub(host, "127.0.0.1", text).replace("@NODE_ID@", "0")
        ports = {"9092": self.client, "9093": self.controller, "9094": self.internal}
        for port, local_port in ports.items():
            text = text.replace(f":{port}", f":{local_port}")
        folders = {
            "/etc/kafka/tls": "tls",
            "/etc/kafka/scripts": "scripts",
            "/var/lib/kafka": "data",
        }
        for path, folder in folders.items():
            text = text.replace(path, str(self._folder / folder))
        return text.replace("/opt/sluicegate/kafka-tool", str(self._folder / "kafka-tool"))

    def _java(self) -> list[str]:
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"]
        return [java_command(), *options, quiet, "-cp", f"'{maven.fetch('kafka')}/*'"]

    def _environment(self) -> Mapping[str, str]:
        return os.environ | {"BROKER_PASSWORD": self.passwords["broker"]}

    def _prepare(self) -> list[str]:
        config = self._folder / "server.properties"
        settings = only_of_kind(self.documents, "ConfigMap", "sluicegate-kafka")["data"][
            "server.properties"
        ]
        config.write_text(self._localize(settings))
        (container,) = only_of_kind(self.documents, "StatefulSet")["spec"]["template"]["spec"][
            "containers"
        ]
        variables = {variable["name"]: variable.get("value", "") for variable in container["env"]}
        user = variables["KAFKA_FORMAT_ARGS"].replace(
            "$(BROKER_PASSWORD)", self.passwords["broker"]
        )
        tool = [str(self._folder / "kafka-tool"), "kafka.tools.StorageTool", "format"]
        options = ["--ignore-formatted", "-t", variables["KAFKA_CLUSTER_ID"], "-c", str(config)]
        environment = dict(self._environment())
        subprocess.run(
            [*tool, *options, *user.split()], env=environment, check=True, capture_output=True
        )
        return [str(self._folder / "kafka-tool"), "kafka.Kafka", str(config)]

    def _ready(self) -> bool:
        return accepts(self.client)

    def settings(self) -> dict[str, str]:
        """Return the settings of a job's driver as librdkafka's properties."""
        secret = self.secrets["sluicegate-kafka-client"]
        (self._folder / "ca.crt").write_text(secret["ca.crt"])
        lines = secret["kafka.properties"].replace("/etc/kafka-client", str(self._folder))
        properties = dict(line.split("=", 1) for line in lines.splitlines() if line)
        return {**properties, "bootstrap.servers": f"127.0.0.1:{self.client}"}


@pytest.fixture(scope="module")
def kafka(
    charts: Charts, namespace: Api, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ChartKafka]:
    documents = charts.render("kafka", ALL_ENABLED)
    secrets = create_secrets(namespace, documents)
    server = ChartKafka(tmp_path_factory.mktemp("kafka"), documents, secrets)
    server.start()
    try:
        server.create_user_and_topic()
        yield server
    finally:
        server.stop()


@pytest.mark.integration
def test_a_client_with_the_charts_secret_writes_and_reads(kafka: ChartKafka) -> None:
    """Over TLS and with SCRAM."""
    producer = Producer(kafka.settings())
    producer.produce("clicks", b"a record")
    assert producer.flush(30) == 0
    group = {"group.id": "test", "auto.offset.reset": "earliest"}
    consumer = Consumer({**kafka.settings(), **group})
    consumer.subscribe(["clicks"])
    try:
        message = consumer.poll(60)
        assert message is not None
        assert message.value() == b"a record"
    finally:
        consumer.close()


@pytest.mark.integration
@pytest.mark.parametrize(
    "change",
    [{"sasl.password": "wrong"}, {"security.protocol": "PLAINTEXT"}],
    ids=["wrong password", "plain text"],
)
def test_a_client_that_does_not_log_in_is_rejected(
    kafka: ChartKafka, change: dict[str, str]
) -> None:
    config: dict[str, str | int | float | bool] = {**kafka.settings(), **change}
    client = AdminClient(config)
    with pytest.raises(KafkaException):
        client.list_topics(timeout=5)


class ChartStore(Server):
    """The store of a rendered chart, started with the chart's arguments."""

    NAME = "the chart's store"
    LOG = "store.log"
    START_TIMEOUT_S = 30.0

    def __init__(self, folder: Path, documents: list[Document], secrets: Secrets) -> None:
        super().__init__(folder)
        self.documents, self.secrets = documents, secrets
        (self.port,) = free_ports(1)
        # as the kubelet creates the folders of subPath
        for name in ("objects", "metadata", "tls"):
            (folder / name).mkdir()
        for name, text in secrets["sluicegate-object-store-tls"].items():
            (folder / "tls" / name).write_text(text)

    def _environment(self) -> Mapping[str, str]:
        keys = self.secrets["sluicegate-object-store"]
        (container,) = self._pod()["containers"]
        variables = {
            variable["name"]: keys[variable["valueFrom"]["secretKeyRef"]["key"]]
            for variable in container["env"]
        }
        return os.environ | variables

    def _pod(self) -> Document:
        spec: Document = only_of_kind(self.documents, "StatefulSet")["spec"]["template"]["spec"]
        return spec

    def _prepare(self) -> list[str]:
        (container,) = self._pod()["containers"]
        text = "\n".join(container["args"]).replace(":7070", f"127.0.0.1:{self.port}")
        text = text.replace("/var/lib/store", str(self._folder))
        text = text.replace("/etc/store", str(self._folder))
        return [str(go_programs.VERSITYGW.build()), *text.split("\n")]

    def _ready(self) -> bool:
        return accepts(self.port)

    def run_helm_test(self) -> subprocess.CompletedProcess[str]:
        """Run the command of the pod of `helm test`."""
        (pod,) = of_kind(self.documents, "Pod")
        (container,) = pod["spec"]["containers"]
        keys = self.secrets["sluicegate-object-store"]
        variables = {
            "ENDPOINT": f"https://127.0.0.1:{self.port}",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": keys["accessKeyId"],
            "AWS_SECRET_ACCESS_KEY": keys["secretAccessKey"],
            "SSL_CERT_FILE": str(self._folder / "tls" / "ca.crt"),
        }
        assert variables.keys() == {variable["name"] for variable in container["env"]}
        return subprocess.run(
            [sys.executable, "-c", *container["args"]],
            env=os.environ | variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


@pytest.mark.integration
def test_the_store_with_tls_and_the_charts_settings_accepts_signed_requests(
    charts: Charts, namespace: Api, tmp_path: Path
) -> None:
    if reason := go_programs.VERSITYGW.missing_reason():
        pytest.skip(reason)
    documents = charts.render("object-store", {"tls": {"enabled": True}})
    server = ChartStore(tmp_path, documents, create_secrets(namespace, documents))
    server.start()
    start = time.monotonic()
    try:
        result = server.run_helm_test()
    finally:
        server.stop()
    assert result.returncode == 0, result.stderr
    assert "returns what was put" in result.stdout
    assert time.monotonic() - start < 60
