"""The scripts of the bundled Kafka: the image's entry point and the readiness probe, without a JVM.

tests/integration/charts/test_kafka_runs.py runs both with a real broker.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from infra.workspace import CHECKOUT

ONE, THREE = "0@kafka-0:9093", "0@kafka-0:9093,1@kafka-1:9093,2@kafka-2:9093"

# what Kafka's tool prints of a partition of which the nodes 0 and 2 are in sync
BEHIND = (
    "\tTopic: clicks\tPartition: 3\tLeader: 0\tReplicas: 0,{0},2\tIsr: 0,2\tElr: \tLastKnownElr: "
)


class Node:
    """A node with its folders; kafka-tool writes down its arguments and the file that they name."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.data = folder, folder / "data"
        self.calls, self.options = folder / "calls", folder / "options"
        self.java = folder / "java"
        self.settings = folder / "tmp" / "server.properties"
        for name in ("agents", "bin", "scripts", "tmp"):
            (folder / name).mkdir()
        self._program("java", f'echo "$@" >>{self.java}; echo started')
        self._program(
            "kafka-tool",
            f"case $2 in random-uuid) echo drawn-$$; exit ;; esac\n"
            f'echo "$@" >>{self.calls}; cat {self._folder}/tmp/format-options >{self.options}\n'
            f"echo storedKey=1; mkdir -p {self.data}; touch {self.data}/meta.properties",
        )
        for name in ("client.sh", "ready.sh"):
            script = (CHECKOUT / "charts/kafka/files" / name).read_text(encoding="utf-8")
            (folder / "scripts" / name).write_text(self._localize(script), encoding="utf-8")
        (folder / "scripts" / "client.properties").write_text("security.protocol=PLAINTEXT\n")

    def start(
        self, voters: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the entry point."""
        config = self._folder / "server.properties"
        config.write_text(
            f"controller.quorum.voters={voters}\nlog.dirs={self.data}\nnode.id=@NODE_ID@\n"
            "advertised.listeners=CLIENT://@POD_NAME@:9092,INTERNAL://@POD_NAME@:9094\n"
        )
        given = {"KAFKA_CONFIG": str(config), "KAFKA_CLUSTER_ID": "c", "HOSTNAME": "kafka-1"}
        script = self._folder / "kafka-server"
        image = CHECKOUT / "infra/images/files/kafka-server"
        script.write_text(self._localize(image.read_text(encoding="utf-8")), encoding="utf-8")
        return self._run(script, {**given, **(environment or {})})

    def ready(self, printed: str) -> subprocess.CompletedProcess[str]:
        """Run the readiness probe while Kafka's tool prints this."""
        (self._folder / "printed").write_text(printed)
        self._program("kafka-tool", f'echo "$@" >>{self.calls}; cat {self._folder}/printed')
        return self._run(self._folder / "scripts" / "ready.sh", {})

    def _run(
        self, script: Path, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        path = f"{self._folder / 'bin'}:{os.environ['PATH']}"
        return subprocess.run(
            ["/bin/sh", "-eu", script],
            env={"PATH": path, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def _program(self, name: str, text: str) -> None:
        program = self._folder / "bin" / name
        program.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        program.chmod(0o755)

    def _localize(self, text: str) -> str:
        text = text.replace("/tmp/", f"{self._folder}/tmp/")
        text = text.replace("/etc/kafka/scripts", str(self._folder / "scripts"))
        text = text.replace("/opt/kafka/agents", str(self._folder / "agents"))
        return text.replace("/opt/sluicegate", str(self._folder / "bin"))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_node_starts_again_with_the_same_voters(node: Node) -> None:
    for _ in range(2):
        assert node.start(THREE).stdout == "started\n"


def test_a_node_refuses_another_number_of_nodes(node: Node) -> None:
    """The chart cannot: its rendering does not know what is installed."""
    assert node.start(ONE).returncode == 0
    refused = node.start(THREE)
    assert refused.returncode == 64
    assert refused.stdout == ""
    assert f"belongs to the quorum '{ONE}'" in refused.stderr
    assert node.start(ONE).stdout == "started\n"


def test_the_first_users_password_is_in_no_argument(node: Node, tmp_path: Path) -> None:
    password = tmp_path / "broker"
    password.write_text("a-secret")
    login = {"KAFKA_SCRAM_USER": "broker", "KAFKA_SCRAM_PASSWORD_FILE": str(password)}
    started = node.start(ONE, login)
    assert (started.returncode, started.stdout) == (0, "started\n"), "the log has the user's keys"
    assert "a-secret" not in node.calls.read_text()
    assert node.options.read_text().splitlines() == [
        *("--cluster-id", "c"),
        "--add-scram",
        'SCRAM-SHA-512=[name="broker",password="a-secret"]',
    ]
    assert not (tmp_path / "tmp" / "format-options").exists()


def test_the_file_of_options_is_never_empty(node: Node) -> None:
    """Kafka's tool ends with an ArrayIndexOutOfBoundsException at an empty one."""
    assert node.start(ONE).returncode == 0
    assert node.options.read_text().splitlines() == ["--cluster-id", "c"]


def test_an_only_node_draws_its_cluster_id_with_its_first_data(node: Node) -> None:
    """A job takes a marker that is gone for an expired one if the cluster has the id that it knows."""
    drawn = set()
    for _ in range(2):
        for _ in range(2):
            assert node.start(ONE, {"KAFKA_CLUSTER_ID": ""}).returncode == 0
            drawn.add(node.options.read_text())
        (node.data / "meta.properties").unlink()  # the volume is lost
    assert [len(text.split()) for text in drawn] == [2, 2], "one id for each volume"


def test_several_nodes_need_the_id_that_all_have(node: Node) -> None:
    refused = node.start(THREE, {"KAFKA_CLUSTER_ID": ""})
    assert refused.returncode == 64
    assert "all nodes need the same one" in refused.stderr


def test_scram_is_not_switched_on_over_data_that_have_no_user(node: Node, tmp_path: Path) -> None:
    """Nobody could log in, not even the Job that would add the users."""
    password = tmp_path / "broker"
    password.write_text("a-secret")
    login = {"KAFKA_SCRAM_USER": "broker", "KAFKA_SCRAM_PASSWORD_FILE": str(password)}
    assert node.start(ONE).returncode == 0
    refused = node.start(ONE, login)
    assert refused.returncode == 64
    assert "so nobody could log in" in refused.stderr
    assert node.start(ONE).returncode == 0
    (node.data / "sluicegate-scram-user").write_text("broker\n")  # as the message says
    for again in (login, {}, login):
        assert node.start(ONE, again).returncode == 0


def test_a_data_folder_is_formatted_once(node: Node) -> None:
    for _ in range(2):
        assert node.start(ONE).returncode == 0
    assert len(node.calls.read_text().splitlines()) == 1


def test_metrics_are_served_only_if_their_rules_are_named(node: Node, tmp_path: Path) -> None:
    agent = tmp_path / "agents" / "jmx_prometheus_javaagent-1.0.jar"
    agent.touch()
    rules = tmp_path / "metrics.yaml"
    rules.touch()
    for named in ("", str(rules)):
        assert node.start(ONE, {"KAFKA_METRICS_CONFIG": named}).returncode == 0
    without, with_agent = node.java.read_text().splitlines()
    assert "-javaagent" not in without
    assert f"-javaagent:{agent}=9404:{rules} " in with_agent


def test_unreadable_rules_of_metrics_end_the_start_with_its_reason(node: Node) -> None:
    refused = node.start(ONE, {"KAFKA_METRICS_CONFIG": "/none.yaml"})
    assert refused.returncode == 64
    assert "KAFKA_METRICS_CONFIG names /none.yaml" in refused.stderr
    assert not node.data.exists()


def test_an_unreadable_password_ends_the_start_with_its_reason(node: Node) -> None:
    refused = node.start(ONE, {"KAFKA_SCRAM_USER": "broker"})
    assert refused.returncode == 64
    assert "KAFKA_SCRAM_PASSWORD_FILE" in refused.stderr
    assert not node.data.exists()


@pytest.mark.parametrize(("zone", "rack"), [("eu-1a", ["broker.rack=eu-1a"]), ("", [])])
def test_the_zone_of_the_pod_is_the_brokers_rack(node: Node, zone: str, rack: list[str]) -> None:
    assert node.start(ONE, {"KAFKA_RACK": zone}).returncode == 0
    lines = node.settings.read_text().splitlines()
    assert [line for line in lines if line.startswith("broker.rack")] == rack


def test_a_node_that_is_not_in_sync_is_not_ready(node: Node) -> None:
    node.start(THREE)
    behind = node.ready(BEHIND.format(1))
    assert behind.returncode == 1
    assert "not in sync" in behind.stderr


def test_a_replica_of_another_node_is_not_waited_for(node: Node) -> None:
    """Another node may be down: that this one waits for it would help nobody."""
    node.start(THREE)
    assert node.ready(BEHIND.format(11)).returncode == 0


def test_a_node_that_was_ready_is_asked_again_only_after_its_next_start(node: Node) -> None:
    node.start(THREE)
    assert node.ready("").returncode == 0
    assert node.ready(BEHIND.format(1)).returncode == 0
    node.start(THREE)
    assert node.ready(BEHIND.format(1)).returncode == 1


def test_the_readiness_probe_asks_the_node_itself(node: Node) -> None:
    node.start(THREE)
    node.ready("")
    assert "--bootstrap-server kafka-1:9092" in node.calls.read_text().splitlines()[-1]
