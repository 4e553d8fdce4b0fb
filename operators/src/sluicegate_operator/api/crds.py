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
from sluicegate_operator.api.openapi import schema_of, validations
from sluicegate_operator.api.paths import RESERVED_CEL
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
    path: str
    type: str = "string"
    priority: int = 0

    def definition(self) -> dict[str, Any]:
        """Return its part of the CustomResourceDefinition."""
        shown = {"priority": self.priority} if self.priority else {}
        return {"name": self.name, "type": self.type, "jsonPath": self.path, **shown}


_PHASE = Column("Phase", ".status.phase")
_AGE = Column("Age", ".metadata.creationTimestamp", "date")


@dataclass(frozen=True)
class Kind:
    """One kind of resource; `short`: its short name for kubectl."""

    name: str
    short: str
    description: str
    spec: type[object]
    status: type[object]
    columns: tuple[Column, ...]
    rules: tuple[Rule, ...] = ()

    @property
    def plural(self) -> str:
        """The name in paths."""
        return f"{self.name.lower()}s"

    @property
    def resource(self) -> ResourceType:
        """The resource type, for requests to the API server."""
        return ResourceType(GROUP, VERSION, self.plural, self.name)

    def definition(self) -> dict[str, Any]:
        """Return the CustomResourceDefinition."""
        names = {
            "kind": self.name,
            "listKind": f"{self.name}List",
            "plural": self.plural,
            "singular": self.name.lower(),
            "shortNames": [self.short],
            "categories": ["sluicegate"],
        }
        version = {
            "name": VERSION,
            "served": True,
            "storage": True,
            "subresources": {"status": {}},
            "additionalPrinterColumns": [column.definition() for column in self.columns],
            "schema": {"openAPIV3Schema": self._schema()},
        }
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{self.plural}.{GROUP}"},
            "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
        }

    def _schema(self) -> dict[str, Any]:
        spec, status = f"Desired state of the {self.name}.", f"Observed state of the {self.name}."
        return {
            "type": "object",
            "description": self.description,
            "required": ["spec"],
            **validations(self.rules),
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {"type": "object"},
                "spec": {"description": spec, **schema_of(self.spec)},
                "status": {
                    "description": f"{status} Only the operator writes it.",
                    **schema_of(self.status, defaults=False),
                },
            },
        }


STREAMING_JOB = Kind(
    "StreamingJob",
    "sjob",
    "A Spark Structured Streaming or batch job with exactly-once delivery to all of its sinks. The "
    "operator runs its driver, restarts it after failures and upgrades it when the spec changes.",
    StreamingJobSpec,
    StreamingJobStatus,
    (
        _PHASE,
        Column("Attempt", ".status.attempt", "integer"),
        Column("Epoch", ".status.checkpoint.lastEpoch", "integer"),
        Column("Epoch Age", ".status.checkpoint.lastEpochTime", "date"),
        Column("Restarts", ".status.restarts", "integer"),
        _AGE,
        Column("Verdict", ".status.verdict.reason", priority=1),
        Column("Executors", ".status.executors.running", "integer", priority=1),
        Column("Wanted", ".status.executors.wanted", "integer", priority=1),
        Column("Standby", ".status.standby.state", priority=1),
        Column("Error", ".status.lastError", priority=1),
    ),
    (
        Rule(
            f"size(self.metadata.name) <= {MAX_NAME_LENGTH}",
            f"the name must have at most {MAX_NAME_LENGTH} characters, because the names and labels of "
            "pods contain it",
        ),
        Rule(
            f"has(self.spec.checkpoint.path) || !self.metadata.name.matches('{RESERVED_CEL}')",
            "a job with this name needs spec.checkpoint.path: the operator uses the folder of this name "
            "on each volume",
        ),
    ),
)

CHECKPOINT_VOLUME = Kind(
    "CheckpointVolume",
    "cpvol",
    "A location on an S3-compatible object store that holds the checkpoints and savepoints of "
    "StreamingJobs.",
    CheckpointVolumeSpec,
    CheckpointVolumeStatus,
    (
        _PHASE,
        Column("Bucket", ".spec.bucket"),
        Column("Bytes", ".status.bytes", "integer"),
        Column("Objects", ".status.objects", "integer"),
        Column("Epoch Age", ".status.lastEpochTime", "date"),
        _AGE,
    ),
)

SAVEPOINT = Kind(
    "Savepoint",
    "sp",
    "A copy of a StreamingJob's checkpoint, taken once or on a schedule. Another StreamingJob can be "
    "restored from it.",
    SavepointSpec,
    SavepointStatus,
    (
        Column("Job", ".spec.job"),
        _PHASE,
        Column("Epoch", ".status.taken[0].epoch", "integer"),
        _AGE,
        Column("Location", ".status.taken[0].location", priority=1),
    ),
)

KINDS = (STREAMING_JOB, CHECKPOINT_VOLUME, SAVEPOINT)

_LIST = "Kustomization"
"""Name of the list; without a suffix, so that `kubectl apply -f operators/crds` skips it."""

_HEADER = (
    "# Generated by `python -m sluicegate_operator.api.crds` from the dataclasses of "
    "sluicegate_operator.api; do not edit.\n"
)


def files() -> dict[str, str]:
    """Return the contents of the generated files by name."""
    definitions = {f"{kind.plural}.yaml": kind.definition() for kind in KINDS}
    listed = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": _LIST,
        "resources": list(definitions),
    }
    return {
        name: _HEADER + yaml.safe_dump(content, sort_keys=False, width=100)
        for name, content in {**definitions, _LIST: listed}.items()
    }


def main(arguments: list[str] | None = None) -> int:
    """Print all definitions as one YAML stream, or write them into a folder."""
    parser = argparse.ArgumentParser("python -m sluicegate_operator.api.crds", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="folder to write one file per kind to")
    folder: Path | None = parser.parse_args(arguments).folder
    if folder is None:
        sys.stdout.write("---\n".join(text for name, text in files().items() if name != _LIST))
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
