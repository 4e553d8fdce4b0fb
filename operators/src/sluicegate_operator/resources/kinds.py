"""The three kinds: names, columns of `kubectl get`, and their CustomResourceDefinitions.

Not here: schemas (`openapi`). Called by `crds`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sluicegate_operator.resources.declaring import GROUP, VERSION, Rule
from sluicegate_operator.resources.job import StreamingJobSpec
from sluicegate_operator.resources.job_status import StreamingJobStatus
from sluicegate_operator.resources.openapi import schema_of
from sluicegate_operator.resources.savepoint import SavepointSpec, SavepointStatus
from sluicegate_operator.resources.volume import CheckpointVolumeSpec, CheckpointVolumeStatus

LONGEST_NAME = 52
"""Of a StreamingJob: a label has 63 characters at most, and so has the host name of a pod
`<job>-<attempt>-driver`, whose attempt may then have three digits before it is cut."""


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`; one with a priority above 0 is shown by `-o wide` only."""

    name: str
    type: str
    path: str
    priority: int = 0


_AGE = Column("Age", "date", ".metadata.creationTimestamp")


@dataclass(frozen=True)
class Kind:
    """One kind of resource."""

    name: str
    plural: str
    short: tuple[str, ...]
    spec: type[object]
    status: type[object]
    columns: tuple[Column, ...]
    text: str
    rules: tuple[Rule, ...] = ()

    def definition(self) -> dict[str, Any]:
        """Return the CustomResourceDefinition."""
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{self.plural}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "scope": "Namespaced",
                "names": {
                    "kind": self.name,
                    "listKind": f"{self.name}List",
                    "plural": self.plural,
                    "singular": self.name.lower(),
                    "shortNames": list(self.short),
                    "categories": ["sluicegate"],
                },
                "versions": [self._version()],
            },
        }

    def _version(self) -> dict[str, Any]:
        return {
            "name": VERSION,
            "served": True,
            "storage": True,
            "subresources": {"status": {}},
            "additionalPrinterColumns": [
                {
                    "name": column.name,
                    "type": column.type,
                    "jsonPath": column.path,
                    **({"priority": column.priority} if column.priority else {}),
                }
                for column in self.columns
            ],
            "schema": {
                "openAPIV3Schema": {
                    "type": "object",
                    "description": self.text,
                    "required": ["spec"],
                    **self._rules(),
                    "properties": {
                        "apiVersion": {"type": "string"},
                        "kind": {"type": "string"},
                        "metadata": {"type": "object"},
                        "spec": schema_of(self.spec),
                        "status": schema_of(self.status, defaults=False),
                    },
                }
            },
        }

    def _rules(self) -> dict[str, Any]:
        rules = [{"rule": rule.cel, "message": rule.message} for rule in self.rules]
        return {"x-kubernetes-validations": rules} if rules else {}


STREAMING_JOB = Kind(
    "StreamingJob",
    "streamingjobs",
    ("sjob",),
    StreamingJobSpec,
    StreamingJobStatus,
    (
        Column("Phase", "string", ".status.phase"),
        Column("Attempt", "integer", ".status.attempt"),
        Column("Epoch", "integer", ".status.lastEpoch"),
        Column("Epoch Age", "date", ".status.lastEpochTime"),
        Column("Restarts", "integer", ".status.restarts"),
        _AGE,
        Column("Error", "string", ".status.lastError", 1),
    ),
    "A Spark job whose epochs reach every sink, all or nothing; its driver is replaced by policy.",
    (
        Rule(
            f"size(self.metadata.name) <= {LONGEST_NAME}",
            f"a StreamingJob's name may have {LONGEST_NAME} characters: it is in labels and names of pods",
        ),
    ),
)

CHECKPOINT_VOLUME = Kind(
    "CheckpointVolume",
    "checkpointvolumes",
    ("cpvol",),
    CheckpointVolumeSpec,
    CheckpointVolumeStatus,
    (
        Column("Phase", "string", ".status.phase"),
        Column("Bucket", "string", ".spec.bucket"),
        Column("Bytes", "integer", ".status.bytes"),
        Column("Objects", "integer", ".status.objects"),
        Column("Epoch Age", "date", ".status.lastEpochTime"),
        _AGE,
    ),
    "A place on an object store where checkpoints and savepoints live.",
)

SAVEPOINT = Kind(
    "Savepoint",
    "savepoints",
    ("sp",),
    SavepointSpec,
    SavepointStatus,
    (
        Column("Job", "string", ".spec.job"),
        Column("Phase", "string", ".status.phase"),
        Column("Epoch", "integer", ".status.taken[0].epoch"),
        _AGE,
        Column("Location", "string", ".status.taken[0].location", 1),
    ),
    "A copy of a job's checkpoint, to restore into another job.",
)

KINDS = (STREAMING_JOB, CHECKPOINT_VOLUME, SAVEPOINT)
