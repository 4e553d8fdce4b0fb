"""Real Kafka brokers, run from their jars. Each is a KRaft controller too; partitions are on all of them."""

import base64
import subprocess
import uuid
from dataclasses import dataclass
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
node.id={number}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{client}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=1000
auto.create.topics.enable=false
default.replication.factor={replicas}
min.insync.replicas={in_sync}
num.partitions=1
offsets.topic.replication.factor={replicas}
offsets.topic.num.partitions=4
offsets.retention.minutes=2147483647
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={in_sync}
transaction.state.log.num.partitions=8
transaction.max.timeout.ms=900000
share.coordinator.state.topic.replication.factor={replicas}
share.coordinator.state.topic.min.isr={in_sync}
group.initial.rebalance.delay.ms=0
log.retention.hours=24
log.segment.bytes=67108864
log.cleaner.dedupe.buffer.size=16777216
"""


@dataclass(frozen=True)
class _Cluster:
    """What all nodes of a cluster know.

    Args:
        ports: the ports for clients and for controllers, by the number of the node minus 1.
        identity: the id with which their data folders are formatted.
    """

    ports: tuple[tuple[int, int], ...]
    identity: str

    @classmethod
    def of(cls, nodes: int) -> "_Cluster":
        """Return a new one with free ports."""
        ports = free_ports(2 * nodes)
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        identity = "A" + identity[1:]  # a leading dash would be parsed as an option
        return cls(tuple(zip(ports[::2], ports[1::2], strict=True)), identity)

    def settings(self, number: int, data: Path) -> str:
        """Return the settings of a node."""
        client, controller = self.ports[number - 1]
        nodes = len(self.ports)
        voters = (f"{n}@127.0.0.1:{ports[1]}" for n, ports in enumerate(self.ports, 1))
        return _SETTINGS.format(
            number=number,
            voters=",".join(voters),
            client=client,
            controller=controller,
            data=data,
            replicas=nodes,
            in_sync=nodes // 2 + 1,
        )


class KafkaBroker(Server):
    """A Kafka broker with its data in one folder; `broker_cluster` makes several that are one cluster."""

    NAME = "The Kafka broker"
    LOG = "kafka.log"
    START_TIMEOUT_S = 90.0

    def __init__(self, folder: Path, number: int = 1, cluster: _Cluster | None = None) -> None:
        super().__init__(folder)
        self.number: Final = number
        """Its id in the cluster, from 1."""
        self._cluster = cluster or _Cluster.of(1)
        self._client_port, _ = self._cluster.ports[number - 1]
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
            self._cluster.settings(self.number, data) + self._more_settings(), encoding="utf-8"
        )
        quiet = [
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
        ]
        run = [java, "-Xmx768m", "-XX:+UseSerialGC", *quiet, "-cp", classpath]
        if not (data / "meta.properties").is_file():
            fast = [java, "-XX:TieredStopAtLevel=1", *run[1:]]
            identity = self._cluster.identity
            tool = ["kafka.tools.StorageTool", "format", "-t", identity, "-c", str(settings)]
            tool += self._format_options()
            done = subprocess.run([*fast, *tool], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise ServiceError(f"Kafka could not format {data}:\n{done.stdout}{done.stderr}")
        return [*run, "kafka.Kafka", str(settings)]


def broker_cluster(folder: Path, nodes: int) -> tuple[KafkaBroker, ...]:
    """Return the brokers of a cluster. Start all at the same time: none is ready without a majority."""
    cluster = _Cluster.of(nodes)
    return tuple(
        KafkaBroker(folder / f"kafka-{number}", number, cluster) for number in range(1, nodes + 1)
    )
