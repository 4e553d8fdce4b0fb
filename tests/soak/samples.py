"""What the platform uses at one moment: memory, open files, connections, objects, transactional ids."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.e2e.cluster import Cluster, CommandFailed
from tests.e2e.platform import CLIENT_POD, RELEASE, Platform

JOBS = ("ip-count", "two-sinks")
"""The StreamingJobs of a soak."""

SERVERS: Final = {"Kafka": "kafka", "MySQL": "mysql", "object store": "object-store"}
"""The servers, and the names of their StatefulSets in the release."""

Values = dict[str, float]
"""A value of each series by its name, `what of who`; without those that could not be read."""

_PROCESSES = """
cat /proc/[0-9]*/status 2>/dev/null | awk '/^VmRSS/ {kb += $2} END {print kb / 1024}'
ls /proc/[0-9]*/fd 2>/dev/null | grep -c '^[0-9]'
cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '$4 == "01"' | wc -l
"""
"""Prints resident memory (MiB), open files and established connections of a pod's first container."""

CHECKPOINT = """
import collections, json, sys
import obstore
from obstore.store import S3Store
from sluicegate.storage.epoch_report import APPLY, read_report
from sluicegate.storage.object_store import open_store
from sluicegate.storage.s3_config import split_s3
store, since = open_store(sys.argv[1]), int(sys.argv[2])
bucket, prefix = split_s3(sys.argv[1])
pages = obstore.list(S3Store(bucket, prefix=prefix))  # with sizes, which an ObjectStore does not tell
sizes = {entry["path"]: entry["size"] for page in pages for entry in page}
applied, folders, epochs_bytes = {}, collections.Counter(), 0
for name, size in sizes.items():
    folder, _, rest = name.partition("/")
    folders[folder] += 1
    epochs_bytes += size if folder == "epochs" else 0
    number = rest.removesuffix(".report")
    if folder == "epochs" and rest != number and int(number) > since:
        report = read_report(store, int(number))
        ends = [step.start_ms + step.duration_ms for step in report.steps if step.name == APPLY]
        if ends:
            applied[report.epoch] = max(ends) / 1000
print(json.dumps({"folders": folders, "epochs_bytes": epochs_bytes, "applied": applied}))
"""
"""Prints the numbers of objects of a checkpoint by folder, the size of its epoch log, and when each epoch after
one was in every sink."""

_PATIENCE_S = 30.0
"""For an answer of a pod, which may be killed meanwhile."""

_IDS = "org.apache.kafka.tools.TransactionsCommand"


@dataclass
class Sampler:
    """Reads values of all series.

    Args:
        platform: with both jobs.
        applied_s: when each epoch of a job was in every sink, in s since 1970; `sample` adds to it.
    """

    platform: Platform
    applied_s: dict[str, dict[int, float]]

    def sample(self) -> Values:
        """Return the values of now. A pod that is being replaced has none."""
        values: Values = {}
        for who, (cluster, pod) in self._pods().items():
            _into(values, partial(_of_pod, cluster, pod, who))
        for job in JOBS:
            _into(values, partial(self._of_checkpoint, job))
        return values

    def transactional_ids(self) -> Values:
        """Return how many ids Kafka's coordinators know; a JVM is started for it."""
        values: Values = {}
        _into(values, self._ids)
        return values

    def _ids(self) -> Values:
        tool = ("/opt/sluicegate/kafka-tool", _IDS, "--bootstrap-server", "localhost:9092", "list")
        lines = self.platform.cluster.execute(pod_of("Kafka"), *tool).splitlines()
        heads = 1
        return {"transactional ids of Kafka": len(list(filter(None, lines))) - heads}

    def _pods(self) -> Mapping[str, tuple[Cluster, str]]:
        cluster, operators = self.platform.cluster, self.platform.operators
        pods = {f"{job}'s driver": (cluster, self.platform.driver(job)) for job in JOBS}
        pods |= {who: (cluster, pod_of(who)) for who in SERVERS}
        pods["traffic"] = cluster, CLIENT_POD
        if found := executors(self.platform):
            pods["two-sinks's executor"] = cluster, found[0]
        for pod in self.platform.operator_pods():
            if not pod["metadata"].get("deletionTimestamp"):
                pods["operator"] = operators, pod["metadata"]["name"]
        return pods

    def _of_checkpoint(self, job: str) -> Values:
        known = self.applied_s.setdefault(job, {})
        since = str(max(known, default=-1))
        address = self.platform.checkpoint(job)
        answer = json.loads(
            self.platform.cluster.execute(CLIENT_POD, "python", "-c", CHECKPOINT, address, since)
        )
        known |= {int(epoch): at for epoch, at in answer["applied"].items()}
        folders: dict[str, int] = {"staging": 0, **answer["folders"]}
        return {
            f"objects of {job}": sum(folders.values()),
            f"bytes of epochs of {job}": answer["epochs_bytes"],
            **{f"{folder} objects of {job}": count for folder, count in folders.items()},
        }


def executors(platform: Platform) -> list[str]:
    """Return the names of the pods of two-sinks' executors that are not being deleted."""
    selector = "sluicegate.dev/job=two-sinks,sluicegate.dev/role=executor"
    pods = [pod["metadata"] for pod in platform.cluster.list_objects("pods", selector)]
    return [pod["name"] for pod in pods if not pod.get("deletionTimestamp")]


def pod_of(server: str) -> str:
    """Return the name of a server's pod."""
    return f"{RELEASE}-{SERVERS[server]}-0"


def _of_pod(cluster: Cluster, pod: str, who: str) -> Values:
    memory, files, connections = cluster.execute(
        pod, "sh", "-c", _PROCESSES, timeout_s=_PATIENCE_S
    ).split()
    return {
        f"memory (MiB) of {who}": float(memory),
        f"open files of {who}": float(files),
        f"connections of {who}": float(connections),
    }


def _into(values: Values, read: Callable[[], Values]) -> None:
    try:
        values |= read()
    except (CommandFailed, subprocess.TimeoutExpired):
        return  # its pod was killed: part of the run
