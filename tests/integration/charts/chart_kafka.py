"""A node of the chart kafka, with the image's scripts, the chart's settings and the Job's script.

The image is not used: the jars of this machine run, with other folders, hosts and ports. Clients show a
certificate in addition to the login of the chart, for brokers that require one as Strimzi's do.
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from infra.local_services.process import Server, accepts, free_ports
from infra.toolchain import maven
from infra.workspace import CHECKOUT
from tests.integration.charts.rendering import Document, only_of_kind

IMAGE_SCRIPTS = CHECKOUT / "infra" / "images" / "files"
_MOUNTS = {
    "/etc/kafka/tls": "tls",
    "/etc/kafka/scripts": "scripts",
    "/etc/kafka/scram": "scram",
    "/var/lib/kafka": "data",
}


def data_of(documents: list[Document], name: str) -> dict[str, str]:
    """Return the data of a Secret as a pod sees it."""
    secret = only_of_kind(documents, "Secret", name)
    decoded = {key: base64.b64decode(text).decode() for key, text in secret.get("data", {}).items()}
    return {**decoded, **secret.get("stringData", {})}


class ChartKafka(Server):
    """The only node of a rendered chart `kafka`, release `sluicegate`, started as the image does."""

    NAME = "Kafka of the chart"
    LOG = "kafka.log"
    START_TIMEOUT_S = 120.0

    def __init__(self, folder: Path, documents: list[Document]) -> None:
        super().__init__(folder)
        self._ports = dict(zip(("9092", "9093", "9094", "9404"), free_ports(4), strict=True))
        self.servers = f"127.0.0.1:{self._ports['9092']}"
        self.metrics_url = f"http://127.0.0.1:{self._ports['9404']}/metrics"
        self.tools_log = folder / "tools.log"
        for name in (*_MOUNTS.values(), "client"):
            (folder / name).mkdir()
        for name in ("kafka-server", "kafka-tool"):
            self._script(name, (IMAGE_SCRIPTS / name).read_text(encoding="utf-8"))
        self.mount(documents)

    def mount(self, documents: list[Document]) -> None:
        """Write what the chart's Secrets and ConfigMaps contain, as the kubelet does at an upgrade."""
        self._documents = documents
        self.passwords = data_of(documents, "sluicegate-kafka-scram")
        scripts = only_of_kind(documents, "ConfigMap", "sluicegate-kafka-scripts")["data"]
        client = data_of(documents, "sluicegate-kafka-client")
        files = {
            "scram": self.passwords,
            "tls": data_of(documents, "sluicegate-kafka-tls"),
            "scripts": {name: self._localize(text) for name, text in scripts.items()},
            "client": client,
        }
        for mount, texts in files.items():
            for name, text in texts.items():
                (self._folder / mount / name).write_text(text, encoding="utf-8")
        tls = self._folder / "tls"
        (tls / "tool.pem").write_text(files["tls"]["tls.key"] + files["tls"]["tls.crt"])
        with (self._folder / "scripts" / "client.properties").open("a") as tools:
            tools.write(f"ssl.keystore.type=PEM\nssl.keystore.location={tls / 'tool.pem'}\n")
        shown = f"ssl.certificate.location={tls / 'tls.crt'}\nssl.key.location={tls / 'tls.key'}\n"
        properties = client["kafka.properties"] + shown
        self._write_properties(properties.replace("/etc/kafka-client", f"{self._folder}/client"))

    def run_script(self, name: str, timeout_s: float = 240.0) -> subprocess.CompletedProcess[str]:
        """Run a script of the chart as its pod does."""
        return subprocess.run(
            ["/bin/sh", "-eu", str(self._folder / "scripts" / name)],
            env={**os.environ, "BROKERS": self.servers, "KAFKA_TOOL_HEAP_OPTS": "-Xmx128m"},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )

    def client_file(self, user: str, password: str) -> Path:
        """Write the kafka.properties of another login; return the file."""
        mine = self.properties.read_text(encoding="utf-8")
        text = re.sub(r"sasl\.username=.*", f"sasl.username={user}", mine)
        file = self._folder / "client" / f"{user}.properties"
        file.write_text(re.sub(r"sasl\.password=.*", f"sasl.password={password}", text))
        return file

    def settings(self, file: Path | None = None) -> dict[str, str]:
        """Return a client's settings in librdkafka's words; default: those of a driver."""
        lines = (file or self.properties).read_text(encoding="utf-8").splitlines()
        pairs = dict(line.split("=", 1) for line in lines if line)
        return {**pairs, "bootstrap.servers": self.servers}

    def _write_properties(self, text: str) -> None:
        self.properties = self._folder / "client" / "kafka.properties"
        self.properties.write_text(text, encoding="utf-8")

    def _script(self, name: str, text: str) -> None:
        record = ""
        if name == "kafka-tool":
            record = f'{{ echo "$@"; env; }} >>"{self.tools_log}"\n'
        first, _, rest = self._localize(text).partition("\n")
        path = self._folder / name
        path.write_text(f"{first}\n{record}{rest}", encoding="utf-8")
        path.chmod(0o755)

    def _localize(self, text: str) -> str:
        """Replace the image's folders and the chart's hosts and ports by those of this machine."""
        # first, because the folders below are in /tmp too
        text = text.replace("/tmp/", f"{self._folder}/")
        host = r"(@POD_NAME@|sluicegate-kafka-0)\.sluicegate-kafka-headless\.sluicegate\.svc"
        text = re.sub(host, "127.0.0.1", text).replace("@NODE_ID@", "0")
        for port, local_port in self._ports.items():
            text = re.sub(rf"([:=]){port}\b", rf"\g<1>{local_port}", text)
        for path, folder in _MOUNTS.items():
            text = text.replace(path, str(self._folder / folder))
        text = text.replace("/opt/kafka/libs", str(maven.folder("kafka")))
        text = text.replace("/opt/kafka/agents", str(maven.folder("kafka-metrics")))
        return text.replace("/opt/sluicegate", str(self._folder))

    def _environment(self) -> Mapping[str, str]:
        (container,) = only_of_kind(self._documents, "StatefulSet")["spec"]["template"]["spec"][
            "containers"
        ]
        given = {e["name"]: self._localize(e["value"]) for e in container["env"] if "value" in e}
        own = {"KAFKA_CONFIG": str(self._folder / "given.properties"), "HOSTNAME": "node-0"}
        return {**os.environ, **given, **own, "KAFKA_LOG_LEVEL": "warn"}

    def _prepare(self) -> list[str]:
        maven.fetch("kafka")
        maven.fetch("kafka-metrics")
        data = only_of_kind(self._documents, "ConfigMap", "sluicegate-kafka-1-nodes")["data"]
        (self._folder / "given.properties").write_text(self._localize(data["server.properties"]))
        return ["/bin/sh", str(self._folder / "kafka-server")]

    def _ready(self) -> bool:
        return accepts(self._ports["9092"])
