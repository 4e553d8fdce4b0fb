"""Which broker of a cluster is about to fail: the one that has a role now.

librdkafka cannot ask for the active controller, nor for the coordinator of a transactional id, so Kafka's own
tools do.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from typing import Final

from infra.local_services.kafka import KafkaBroker
from infra.preflight import java_command
from infra.toolchain import maven

_TIMEOUT_S: Final = 60.0
_LEADER: Final = re.compile(r"^LeaderId:\s+(\d+)", re.MULTILINE)
_TRANSACTION: Final = re.compile(r"^\S+\s+(\d+)\s+-?\d+\s+(\w+)", re.MULTILINE)
"""Columns of the list of transactions: id, coordinator, producer, state."""
_OPEN: Final = "Ongoing"


def leader(brokers: Sequence[KafkaBroker], topic: str) -> KafkaBroker:
    """Return the leader of a topic's first partition."""
    admin = brokers[0].endpoint.admin()
    number = admin.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions[0].leader
    return _numbered(brokers, number)


def controller(brokers: Sequence[KafkaBroker]) -> KafkaBroker:
    """Return the active controller, which leads the quorum."""
    printed = _tool(brokers, "MetadataQuorumCommand", "describe", "--status")
    found = _LEADER.search(printed)
    assert found, f"no active controller in:\n{printed}"
    return _numbered(brokers, int(found[1]))


def coordinator(brokers: Sequence[KafkaBroker]) -> KafkaBroker:
    """Return the coordinator of a transactional id of the job, if possible of an open transaction."""
    printed = _tool(brokers, "TransactionsCommand", "list")
    found = sorted(_TRANSACTION.findall(printed), key=lambda one: one[1] != _OPEN)
    assert found, f"no transactional id in:\n{printed}"
    return _numbered(brokers, int(found[0][0]))


def _numbered(brokers: Sequence[KafkaBroker], number: int) -> KafkaBroker:
    (found,) = (broker for broker in brokers if broker.number == number)
    return found


def _tool(brokers: Sequence[KafkaBroker], name: str, *arguments: str) -> str:
    """Run one of Kafka's tools and return what it printed."""
    servers = ",".join(broker.endpoint.bootstrap for broker in brokers)
    java = [java_command(), "-XX:TieredStopAtLevel=1", "-cp", f"{maven.fetch('kafka')}/*"]
    tool = [f"org.apache.kafka.tools.{name}", "--bootstrap-server", servers, *arguments]
    done = subprocess.run(
        [*java, *tool], capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
    )
    assert done.returncode == 0, f"{name} failed:\n{done.stdout}{done.stderr}"
    return done.stdout
