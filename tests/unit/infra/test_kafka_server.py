"""The entry point of the Kafka image, with other folders and without a JVM."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from infra.workspace import CHECKOUT

ONE, THREE = "0@kafka-0:9093", "0@kafka-0:9093,1@kafka-1:9093,2@kafka-2:9093"


class Node:
    """A node with its data folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._data = folder, folder / "data"
        (folder / "bin").mkdir()
        script = (CHECKOUT / "infra/images/files/kafka-server").read_text(encoding="utf-8")
        for path, ours in (
            ("/tmp/server.properties", folder / "filled.properties"),
            ("/opt/sluicegate/kafka-tool", folder / "bin" / "kafka-tool"),
        ):
            script = script.replace(path, str(ours))
        (folder / "kafka-server").write_text(script, encoding="utf-8")
        for name, text in (("kafka-tool", f"mkdir -p {self._data}"), ("java", "echo started")):
            program = folder / "bin" / name
            program.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
            program.chmod(0o755)

    def start(self, voters: str) -> subprocess.CompletedProcess[str]:
        config = self._folder / "server.properties"
        config.write_text(f"controller.quorum.voters={voters}\nlog.dirs={self._data}\n")
        path = f"{self._folder / 'bin'}:{os.environ['PATH']}"
        environment = {"PATH": path, "KAFKA_CONFIG": str(config), "KAFKA_CLUSTER_ID": "c"}
        return subprocess.run(
            ["/bin/sh", self._folder / "kafka-server"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )


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
