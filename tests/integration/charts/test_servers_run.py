"""Servers with the charts' settings: Kafka with SCRAM and TLS, and the object store with TLS.

The images are not used: the servers of this machine run, with other folders, hosts and ports.
"""

import base64
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import urllib3
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from minio import Minio
from minio.error import S3Error

from infra.local_services.process import Server, accepts, free_ports
from infra.preflight import java_command
from infra.toolchain import go_programs, maven
from tests.integration.charts.rendering import Charts, Document, of_kind, only_of_kind

ALL_ENABLED = {
    "scram": {"enabled": True, "users": ["sluicegate"]},
    "tls": {"enabled": True},
    "topics": [{"name": "clicks", "partitions": 2, "config": {"retention.ms": 86400000}}],
}


def data_of(documents: list[Document], name: str) -> dict[str, str]:
    """Return the data of a Secret as a pod sees it."""
    secret = only_of_kind(documents, "Secret", name)
    decoded = {key: base64.b64decode(text).decode() for key, text in secret.get("data", {}).items()}
    return {**decoded, **secret.get("stringData", {})}


class ChartKafka(Server):
    """The only node of a rendered chart, started as the image's entry point does."""

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
        secret = data_of(self.documents, "sluicegate-kafka-client")
        (self._folder / "ca.crt").write_text(secret["ca.crt"])
        lines = secret["kafka.properties"].replace("/etc/kafka-client", str(self._folder))
        properties = dict(line.split("=", 1) for line in lines.splitlines() if line)
        return {**properties, "bootstrap.servers": f"127.0.0.1:{self.client}"}


@pytest.fixture(scope="module")
def kafka(charts: Charts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChartKafka]:
    documents = charts.render("kafka", ALL_ENABLED)
    server = ChartKafka(tmp_path_factory.mktemp("kafka"), documents)
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
    """The store of a rendered chart: its arguments, init container and Job, in other folders."""

    NAME = "the chart's store"
    LOG = "store.log"
    START_TIMEOUT_S = 30.0

    def __init__(self, folder: Path, documents: list[Document]) -> None:
        super().__init__(folder)
        self.documents = documents
        (self.port,) = free_ports(1)
        # as the kubelet creates the folders of subPath and of volumes
        for name in ("objects", "metadata", "tls", "iam", "access", "keys"):
            (folder / name).mkdir()
        for name, text in data_of(documents, "sluicegate-object-store-tls").items():
            (folder / "tls" / name).write_text(text)
        script = only_of_kind(documents, "ConfigMap", "sluicegate-object-store-access")["data"]
        (folder / "access" / "access.py").write_text(script["access.py"])
        for volume in self.pod()["volumes"]:
            for source in volume.get("projected", {}).get("sources", ()):
                keys = data_of(documents, source["secret"]["name"])
                for item in source["secret"]["items"]:
                    file = folder / "keys" / item["path"]
                    file.parent.mkdir(exist_ok=True)
                    file.write_text(keys[item["key"]])

    def _environment(self) -> Mapping[str, str]:
        (container,) = self.pod()["containers"]
        return self._variables(container)

    def _variables(self, container: Document) -> Mapping[str, str]:
        """Return a container's environment, with values of Secrets."""
        variables = {}
        for variable in container["env"]:
            reference = variable.get("valueFrom", {}).get("secretKeyRef")
            keys = data_of(self.documents, reference["name"]) if reference else {}
            text = keys[reference["key"]] if reference else variable["value"]
            variables[variable["name"]] = self._moved(text)
        return os.environ | variables

    def _moved(self, text: str) -> str:
        text = text.replace("/var/lib/store", str(self._folder))
        text = text.replace("/etc/store", str(self._folder))
        return text.replace("https://sluicegate-object-store:7070", self.url)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def pod(self) -> Document:
        """Return the pod of the server."""
        spec: Document = only_of_kind(self.documents, "StatefulSet")["spec"]["template"]["spec"]
        return spec

    def _prepare(self) -> list[str]:
        (users,) = self.pod()["initContainers"]
        assert self.run_container(users).returncode == 0
        (container,) = self.pod()["containers"]
        text = self._moved("\n".join(container["args"])).replace(":7070", f"127.0.0.1:{self.port}")
        return [str(go_programs.VERSITYGW.build()), *text.split("\n")]

    def _ready(self) -> bool:
        return accepts(self.port)

    def run_container(self, container: Document) -> subprocess.CompletedProcess[str]:
        """Run a container that has Python, as its pod would."""
        command: list[str] = [*container["command"], *container.get("args", ())]
        return subprocess.run(
            [sys.executable, *map(self._moved, command[1:])],
            env=self._variables(container),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def user(self, name: str) -> Minio:
        """Return a client with the keys in the Secret of a user."""
        keys = data_of(self.documents, f"sluicegate-object-store-user-{name}")
        trust = urllib3.PoolManager(ca_certs=str(self._folder / "tls" / "ca.crt"))
        login = (keys["accessKeyId"], keys["secretAccessKey"])
        return Minio(self.url[8:], *login, region="us-east-1", http_client=trust)


@pytest.fixture
def store(charts: Charts, tmp_path: Path) -> Iterator[ChartStore]:
    if reason := go_programs.VERSITYGW.missing_reason():
        pytest.skip(reason)
    users = [
        {"name": "shop", "bucket": "shared", "prefix": "shop"},
        {"name": "bank", "bucket": "shared", "prefix": "bank"},
    ]
    values = {"tls": {"enabled": True}, "users": users}
    server = ChartStore(tmp_path, charts.render("object-store", values))
    server.start()
    yield server
    server.stop()


@pytest.mark.integration
def test_the_store_with_tls_and_the_charts_settings_accepts_signed_requests(
    store: ChartStore,
) -> None:
    (pod,) = of_kind(store.documents, "Pod")
    (container,) = pod["spec"]["containers"]
    result = store.run_container(container)
    assert result.returncode == 0, result.stderr
    assert "returns what was put" in result.stdout


@pytest.mark.integration
def test_the_chart_gives_each_user_its_prefix(store: ChartStore) -> None:
    (job,) = of_kind(store.documents, "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    result = store.run_container(container)
    assert result.returncode == 0, result.stderr
    for name, other in (("shop", "bank"), ("bank", "shop")):
        store.user(name).put_object("shared", f"{name}/1", io.BytesIO(b"1"), 1)
        with pytest.raises(S3Error, match="AccessDenied"):
            store.user(name).put_object("shared", f"{other}/1", io.BytesIO(b"1"), 1)


@pytest.mark.integration
def test_two_users_with_one_key_stop_the_store_with_the_remedy(
    store: ChartStore, tmp_path: Path
) -> None:
    (users,) = store.pod()["initContainers"]
    shutil.copy(tmp_path / "keys/shop/accessKeyId", tmp_path / "keys/bank/accessKeyId")
    result = store.run_container(users)
    assert result.returncode == 1
    assert "Give each user an accessKeyId of its own" in result.stderr
