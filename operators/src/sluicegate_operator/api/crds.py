"""The three kinds of resources, and their CustomResourceDefinitions.

`python -m sluicegate_operator.api.crds` prints the definitions. With a folder as argument it writes one
file per kind there, and a list of them for kustomize: so the files of operators/crds are generated, and
a test compares them.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec, CheckpointVolumeStatus
from sluicegate_operator.api.fields import GROUP, VERSION, Rule
from sluicegate_operator.api.openapi import schema_of
from sluicegate_operator.api.savepoint import SavepointSpec, SavepointStatus
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_status import StreamingJobStatus
from sluicegate_operator.kube.resource import ResourceType

MAX_NAME_LENGTH = 52
"""Maximum length of a StreamingJob's name. A label value and a pod's host name may have 63 characters;
the pod is named `<job>-<attempt>-driver`, which leaves three digits for the attempt before the name is
truncated."""


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`. One with a priority above 0 is shown only with `-o wide`."""

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
    description: str
    rules: tuple[Rule, ...] = ()

    @property
    def resource(self) -> ResourceType:
        """The resource type, for requests to the API server."""
        return ResourceType(GROUP, VERSION, self.plural, self.name)

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
                    "description": self.description,
                    "required": ["spec"],
                    **self._rules(),
                    "properties": {
                        "apiVersion": {"type": "string"},
                        "kind": {"type": "string"},
                        "metadata": {"type": "object"},
                        "spec": {
                            "description": f"Desired state of the {self.name}.",
                            **schema_of(self.spec),
                        },
                        "status": {
                            "description": f"Observed state of the {self.name}. Only the operator "
                            "writes it.",
                            **schema_of(self.status, defaults=False),
                        },
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
        Column("Epoch", "integer", ".status.checkpoint.lastEpoch"),
        Column("Epoch Age", "date", ".status.checkpoint.lastEpochTime"),
        Column("Restarts", "integer", ".status.restarts"),
        _AGE,
        Column("Error", "string", ".status.lastError", 1),
    ),
    "A Spark Structured Streaming or batch job with exactly-once delivery to all of its sinks. The "
    "operator runs its driver, restarts it after failures and upgrades it when the spec changes.",
    (
        Rule(
            f"size(self.metadata.name) <= {MAX_NAME_LENGTH}",
            f"the name must have at most {MAX_NAME_LENGTH} characters, because the names and labels of "
            "pods contain it",
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
    "A location on an S3-compatible object store that holds the checkpoints and savepoints of "
    "StreamingJobs.",
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
    "A copy of a StreamingJob's checkpoint, taken once or on a schedule. Another StreamingJob can be "
    "restored from it.",
)

KINDS = (STREAMING_JOB, CHECKPOINT_VOLUME, SAVEPOINT)


_HEADER = (
    "# Generated by `python -m sluicegate_operator.api.crds` from the dataclasses of "
    "sluicegate_operator.api; do not edit.\n"
)


def text_of(kind: Kind) -> str:
    """Return a kind's CustomResourceDefinition as YAML."""
    return _HEADER + yaml.safe_dump(kind.definition(), sort_keys=False, width=100)


def files() -> dict[str, str]:
    """Return the contents of the generated files by name."""
    definitions = {f"{kind.plural}.yaml": text_of(kind) for kind in KINDS}
    listed = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(definitions),
    }
    # without a suffix, so that `kubectl apply -f operators/crds` skips it
    return {**definitions, "Kustomization": _HEADER + yaml.safe_dump(listed, sort_keys=False)}


def main(arguments: list[str] | None = None) -> int:
    """Print all definitions as one YAML stream, or write them into a folder."""
    parser = argparse.ArgumentParser(
        prog="python -m sluicegate_operator.api.crds", description=__doc__
    )
    parser.add_argument("folder", nargs="?", type=Path, help="folder to write one file per kind to")
    folder: Path | None = parser.parse_args(arguments).folder
    if folder is None:
        sys.stdout.write("---\n".join(map(text_of, KINDS)))
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
