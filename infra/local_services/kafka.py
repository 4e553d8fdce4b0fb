"""A real Kafka broker: one KRaft node, run from its jars, with a replication factor of 1 everywhere."""

import base64
import subprocess
import uuid
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from infra.local_services.endpoints import KafkaEndpoint
from infra.local_services.process import Server, ServiceError, accepts, free_ports
from infra.preflight import java_command, java_gap
from infra.toolchain import maven

# The session timeout is how long the successor of a killed broker waits to register (default 9 s).
_SETTINGS: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{client}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=1000
auto.create.topics.enable=false
default.replication.factor=1
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
offsets.retention.minutes=2147483647
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=8
transaction.max.timeout.ms=900000
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.retention.hours=24
log.segment.bytes=67108864
log.cleaner.dedupe.buffer.size=16777216
"""


class KafkaBroker(Server):
    """A Kafka broker with its data in one folder."""

    NAME = "The Kafka broker"
    LOG = "kafka.log"
    START_TIMEOUT_S = 90.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._client_port, self._controller_port = free_ports(2)
        self.endpoint: Final = KafkaEndpoint(f"127.0.0.1:{self._client_port}")

    def _ready(self) -> bool:
        if not accepts(self._client_port):
            return False
        try:
            self.endpoint.topics(timeout_s=5.0)
        except KafkaException:
            return False  # it listens before it serves; the caller has a deadline
        return True

    def _more_settings(self) -> str:
        """Return more settings; they override those of this module."""
        return ""

    def _format_options(self) -> list[str]:
        """Return options of the storage tool, such as the first SCRAM users."""
        return []

    def _prepare(self) -> list[str]:
        """Write the settings, format a new data folder and return the command that runs the broker."""
        if gap := java_gap():
            raise ServiceError(f"Kafka cannot run here. Missing: {gap}.")
        java = java_command()
        classpath = f"{maven.fetch('kafka')}/*"
        data = self._folder / "kafka"
        settings = self._folder / "kafka.properties"
        settings.write_text(
            _SETTINGS.format(client=self._client_port, controller=self._controller_port, data=data)
            + self._more_settings(),
            encoding="utf-8",
        )
        quiet = [
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
        ]
        run = [java, "-Xmx768m", "-XX:+UseSerialGC", *quiet, "-cp", classpath]
        if not (data / "meta.properties").is_file():
            identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            identity = "A" + identity[1:]  # a leading dash would be parsed as an option
            fast = [java, "-XX:TieredStopAtLevel=1", *run[1:]]
            tool = ["kafka.tools.StorageTool", "format", "-t", identity, "-c", str(settings)]
            tool += self._format_options()
            done = subprocess.run([*fast, *tool], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise ServiceError(f"Kafka could not format {data}:\n{done.stdout}{done.stderr}")
        return [*run, "kafka.Kafka", str(settings)]
