"""The platform that `helm install` creates, with a user's actions: feed, verify, inspect.

Commands run in a pod of the jobs' image, `client`, as a user without Kafka or MySQL on a laptop does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from prometheus_client.parser import text_string_to_metric_families

from sluicegate_jobs.generators import indicators
from tests.e2e.cluster import Cluster, CommandFailed, Object, eventually
from tests.e2e.ladder import Decided, Ladder
from tests.e2e.sent import SentRecords

RELEASE = "sluicegate"
NAMESPACE = "sluicegate"
OPERATOR_NAMESPACE = f"{NAMESPACE}-operator"
"""The operator's own, which the chart creates: drivers may create pods in NAMESPACE."""

IMAGE = "localhost/sluicegate/jobs:0.1.0"
VOLUME = "checkpoints"
STORE = f"{RELEASE}-object-store"
STORE_USER = f"{STORE}-user-{VOLUME}"
"""Secret of the store's user whose prefix is the volume's."""

TENANT = f"{NAMESPACE}-tenant"
"""A namespace of somebody else, whose jobs the operator runs too."""

TENANT_USER = f"{STORE}-user-tenant"
"""Secret of the tenant's user of the store."""

CONSOLE_URL = "https://console.example.com"
"""Where people would reach the console. Events link to it."""

CLIENT_POD = "client"

START_TIMEOUT_S = 240.0
"""A driver, from its creation to its first epoch, on two cores that also run everything else."""

_FED_TOGETHER = 100
"""Lines after which `feed` waits, so that a job reads all partitions about equally far."""

_FEED = """
import os, sys
from confluent_kafka import Producer
from sluicegate.sinks.kafka.connection import client_settings
topic, together = sys.argv[1], int(sys.argv[2])
lines = sys.stdin.buffer.read().splitlines()
producer = Producer({**client_settings(), "acks": "all", "enable.idempotence": True})
for number, line in enumerate(lines):
    producer.produce(topic, line, partition=number % 4)
    producer.poll(0)
    last_of_many = (number + 1) % together == 0 or number + 1 == len(lines)
    if last_of_many and producer.flush(240):  # a broker may be restarted meanwhile
        sys.exit(1)
"""

_OBJECTS = """
import json, sys
from sluicegate.storage.object_store import open_store
print(json.dumps(sorted(open_store(sys.argv[1]).names(""))))
"""


_KAFKA_CONFIG = "/etc/kafka-client/kafka.properties"
_SECRETS = {
    "kafka-client": f"{RELEASE}-kafka-client",
    "mysql-tls": f"{RELEASE}-mysql-tls",
    "store-tls": f"{STORE}-tls",
}
"""Secrets that clients of a secured platform mount, by folder below /etc."""


_DECIDED = """
import json, os, sys
from sluicegate.cli.epochs import describe_apply, marker_readers
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import open_store
log = StoredEpochLog(open_store(sys.argv[1]))
record = log.read(log.decided()[-1])
readers = marker_readers(os.environ["SLUICEGATE_KAFKA"], os.environ["SLUICEGATE_MYSQL"])
sinks = {
    sink: [describe_apply(record, sink, part, readers) for part in record.parts_with_rows(sink)]
    for sink in record.sinks
}
print(json.dumps({"epoch": record.epoch, "sinks": sinks}))
"""

_REFRESHED_S = 30.0
"""Several refreshes of the console, on cores that also run everything else."""


@dataclass(frozen=True)
class Platform:
    """A release of the chart `sluicegate`, and its cluster."""

    cluster: Cluster
    secured: bool = False
    """Installed with tls-scram-values.yaml: clients need passwords and the CA certificate."""
    sent: SentRecords = field(default_factory=SentRecords, compare=False)

    @property
    def operators(self) -> Cluster:
        """The cluster, with commands in the operator's namespace."""
        return replace(self.cluster, namespace=OPERATOR_NAMESPACE)

    def operator_pods(self) -> list[Object]:
        """Return the pods of the operator."""
        return self.operators.list_objects("pods", "app.kubernetes.io/name=operator")

    # ---- input and output of jobs

    def connections(self) -> list[Object]:
        """Return the environment variables with which jobs and commands reach the servers."""
        return [
            {
                "name": "SLUICEGATE_KAFKA",
                "valueFrom": {
                    "configMapKeyRef": {"name": f"{RELEASE}-connections", "key": "SLUICEGATE_KAFKA"}
                },
            },
            {
                "name": "SLUICEGATE_MYSQL",
                "valueFrom": {"secretKeyRef": {"name": f"{RELEASE}-mysql", "key": "url"}},
            },
            *(
                [{"name": "SLUICEGATE_KAFKA_CONFIG", "value": _KAFKA_CONFIG}]
                if self.secured
                else []
            ),
        ]

    def create_client_pod(self) -> None:
        """Start the pod that runs commands."""
        secrets = _SECRETS if self.secured else {}
        store = [
            {
                "name": "AWS_ENDPOINT_URL",
                "value": f"http{'s' if self.secured else ''}://{STORE}:7070",
            },
            {"name": "AWS_ALLOW_HTTP", "value": "true"},
            *([{"name": "SSL_CERT_FILE", "value": "/etc/store-tls/ca.crt"}] if secrets else []),
            {"name": "AWS_REGION", "value": "us-east-1"},
            *(
                {"name": name, "valueFrom": {"secretKeyRef": {"name": STORE_USER, "key": key}}}
                for name, key in (
                    ("AWS_ACCESS_KEY_ID", "accessKeyId"),
                    ("AWS_SECRET_ACCESS_KEY", "secretAccessKey"),
                )
            ),
        ]
        container = {
            "name": CLIENT_POD,
            "image": IMAGE,
            "command": ["sleep", "infinity"],
            "env": [*self.connections(), *store],
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
            },
            "volumeMounts": [
                {"name": "tmp", "mountPath": "/tmp"},
                *({"name": name, "mountPath": f"/etc/{name}"} for name in secrets),
            ],
        }
        clients = {
            f"{RELEASE}-{part}-client": "true" for part in ("kafka", "mysql", "object-store")
        }
        self.cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": CLIENT_POD, "labels": clients},
                "spec": {
                    "securityContext": {
                        "runAsNonRoot": True,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "terminationGracePeriodSeconds": 0,
                    "containers": [container],
                    "volumes": [
                        {"name": "tmp", "emptyDir": {}},
                        *(
                            {"name": name, "secret": {"secretName": secret}}
                            for name, secret in secrets.items()
                        ),
                    ],
                },
            }
        )
        self.cluster.run("wait", f"pod/{CLIENT_POD}", "--for=condition=Ready", "--timeout=120s")

    def command(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run `sluicegate WORDS…` in the client pod and return its output."""
        return self.cluster.execute(CLIENT_POD, "sluicegate", *arguments, stdin=stdin)

    def feed(self, lines: Sequence[bytes]) -> None:
        """Send lines to ip_count."""
        assert lines, "no lines are left to feed"
        command = ("python", "-c", _FEED, "ip_count_source", str(_FED_TOGETHER))
        self.cluster.execute(CLIENT_POD, *command, stdin=b"\n".join(lines) + b"\n")
        for first in range(0, len(lines), _FED_TOGETHER):
            self.sent.add("ip_count", lines[first : first + _FED_TOGETHER])

    def generate(self, records: int, seed: int) -> None:
        """Send records to two_sinks."""
        options = ("--records", str(records), "--seed", str(seed))
        self.command("generate", "two_sinks", *options)
        self.sent.add("two_sinks", [message.value or b"" for message in indicators(records, seed)])

    def objects(self, address: str) -> list[str]:
        """Return the names of all objects below a URL of the store."""
        names: list[str] = json.loads(
            self.cluster.execute(CLIENT_POD, "python", "-c", _OBJECTS, address)
        )
        return names

    def metric(self, name: str, **labels: str) -> float | None:
        """Return a metric of the leading operator by its name and some of its labels."""
        operators = self.operators
        for pod in self.operator_pods():
            server = f"{pod['metadata']['name']}:8080"
            path = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods/{server}/proxy/metrics"
            for family in text_string_to_metric_families(operators.run("get", "--raw", path)):
                for sample in family.samples:
                    if sample.name == name and labels.items() <= sample.labels.items():
                        return sample.value
        return None

    # ---- the console

    def page(self, path: str) -> str:
        """Return a page of the console, as a browser gets it through the API server."""
        service = f"/api/v1/namespaces/{NAMESPACE}/services/http:{RELEASE}-console:http/proxy"
        return self.cluster.run("get", "--raw", f"{service}/{path}")

    def ladder(self, name: str) -> Ladder:
        """Return who has which epoch of a job, by the console."""
        path = self.checkpoint(name).removeprefix("s3://sluicegate/")
        return Ladder.of(self.page(f"job/{path}"))

    def decided(self, name: str) -> Decided:
        """Return the newest decided epoch of a job, by its epoch log and by the markers in its sinks."""
        answer = self.cluster.execute(CLIENT_POD, "python", "-c", _DECIDED, self.checkpoint(name))
        return Decided(**json.loads(answer))

    def wait_ladder(
        self, name: str, decided: Decided | None = None, *, in_doubt: bool = False
    ) -> Ladder:
        """Wait until the console's ladder of a job that decides nothing agrees with log and sinks.

        Args:
            name: name of the StreamingJob.
            decided: its newest decided epoch; None: what log and sinks say now.
            in_doubt: whether an epoch is decided that nothing shows in every sink.

        Raises:
            AssertionError: it does not within a few refreshes of the console.
        """
        expected, seen = decided or self.decided(name), [Ladder()]

        def poll() -> Ladder | None:
            seen[0] = self.ladder(name)
            return seen[0] if not seen[0].contradictions(expected, in_doubt=in_doubt) else None

        try:
            return eventually(poll, f"ladder of {name}", within_s=_REFRESHED_S, every_s=1.0)
        except AssertionError:
            found = seen[0].contradictions(expected, in_doubt=in_doubt)
            raise AssertionError(f"ladder of {name}: {found}; {expected}; {seen[0]}") from None

    # ---- jobs

    def job_when(
        self,
        name: str,
        condition: Callable[[Object], object],
        what: str,
        *,
        within_s: float = START_TIMEOUT_S,
    ) -> Object:
        """Wait until a job's status satisfies a condition; return the status."""
        seen: Object = {}

        def poll() -> Object | None:
            job = self.cluster.get("streamingjob", name)
            assert job is not None, f"there is no StreamingJob {name}"
            seen.clear()
            seen.update(job.get("status", {}))
            return seen if condition(seen) else None

        try:
            return eventually(poll, f"{name}: {what}", within_s=within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; status: {json.dumps(seen)}") from None

    def checkpoint(self, name: str) -> str:
        """Return the URL of a job's checkpoint."""
        job = self.cluster.get("streamingjob", name)
        assert job is not None
        return f"s3://sluicegate/{name}/{job['status']['checkpoint']['number']}"

    def driver(self, name: str) -> str:
        """Return the name of a job's newest driver."""
        job = self.cluster.get("streamingjob", name)
        assert job is not None
        return f"{name}-{job['status']['attempt']}-driver"

    def wait_exact(self, job: str, name: str, *, within_s: float = START_TIMEOUT_S) -> None:
        """Wait until a job is exact, as `wait_verified`; assert that it has what the tests sent."""
        output = self.wait_verified(job, name, within_s=within_s)
        contradiction = self.sent.contradiction(job, output)
        assert contradiction is None, f"{contradiction}: {output}"

    def wait_verified(self, job: str, name: str, *, within_s: float) -> str:
        """Wait until a job has read all input and `sluicegate verify` finds its sinks exact.

        Fails at once when a row is repeated, because that cannot go away.

        Args:
            job: the packaged job.
            name: name of its StreamingJob.
            within_s: seconds in which it must read all input.

        Returns:
            What it printed, for the caller to judge how many dead letters there are.

        Raises:
            AssertionError: the sinks are wrong, or the job did not read all input in time.
        """
        arguments = ["verify", job, "--checkpoint", self.checkpoint(name)]
        output = [""]

        def poll() -> str | None:
            try:
                output[0] = self.command(*arguments)
            except CommandFailed as error:
                output[0] = str(error)
                if proves_wrong(output[0]):
                    raise
                return None  # the job is in the middle of an epoch
            return output[0] if _all_read(output[0]) else None

        try:
            return eventually(poll, f"{name} exact", within_s=within_s, every_s=3.0)
        except AssertionError as error:
            raise AssertionError(f"{error}: {output[0]}") from None


def proves_wrong(output: str) -> bool:
    """Return whether what a failed `sluicegate verify` printed proves that a job's sinks are wrong.

    A duplicate never goes away. What looks lost or wrong may be in an epoch that is decided, and that the
    next driver applies when it has started.
    """
    return "NOT EXACT" in output and "DUPLICATED: " in output


def _all_read(output: str) -> bool:
    unread = [line for line in output.splitlines() if "not read yet" in line]
    return bool(unread) and all(line.split()[0] == "0" for line in unread)
