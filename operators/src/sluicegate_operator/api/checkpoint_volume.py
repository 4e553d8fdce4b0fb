"""CheckpointVolume: a location on an object store that holds checkpoints and savepoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sluicegate_operator.api.conditions import Condition
from sluicegate_operator.api.fields import Instant, Rule, spec_field

RETAIN, DELETE = "Retain", "Delete"


@dataclass(frozen=True)
class Retention:
    """How much is kept of what jobs write."""

    savepoints: int = spec_field(
        "Number of savepoints to keep for each job; older ones are deleted. 0 keeps all.",
        default=0,
        at_least=0,
    )
    epochs: int = spec_field(
        "Number of epoch records to keep for each checkpoint, besides the latest, which is always "
        "kept.",
        default=100,
        at_least=1,
    )


@dataclass(frozen=True)
class CheckpointVolumeSpec:
    """Desired state of a CheckpointVolume."""

    endpoint: str = spec_field(
        "URL of an S3-compatible object store. Defaults to Amazon S3 in the region.",
        default="",
        pattern="^https?://.+$",
    )
    region: str = spec_field("Region of the bucket.", default="us-east-1")
    bucket: str = spec_field(
        "Name of the bucket. It is created if it does not exist. Immutable.",
        pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$",
    )
    prefix: str = spec_field(
        "Prefix of all object keys in the bucket, without a leading '/'. Immutable.",
        default="",
        pattern="^[^/].*$",
    )
    credentials_secret: str = spec_field(
        "Name of a Secret with the keys accessKeyId and secretAccessKey. Without it the pods' own "
        "identity (such as an IAM role of the ServiceAccount) is used.",
        default="",
    )
    authority_secret: str = spec_field(
        "Name of a Secret with the key ca.crt: the certificate authorities that the pods trust, "
        "instead of those of the image. Needs an https endpoint.",
        default="",
    )
    retention: Retention = spec_field(
        "How many savepoints and epoch records are kept.", default=Retention()
    )
    reclaim_policy: str = spec_field(
        "What happens to the data when the CheckpointVolume is deleted. Retain keeps it. Delete "
        "removes everything below the prefix.",
        default=RETAIN,
        choices=(RETAIN, DELETE),
    )
    quota_bytes: int = spec_field(
        "Size in bytes above which the operator reports a warning. Writes are never blocked. "
        "0 disables the warning.",
        default=0,
        at_least=0,
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.bucket == oldSelf.bucket && has(self.prefix) == has(oldSelf.prefix) && "
            "(!has(self.prefix) || self.prefix == oldSelf.prefix)",
            "bucket and prefix cannot change, because existing checkpoints would not be found; "
            "create another CheckpointVolume",
        ),
        Rule(
            "self.reclaimPolicy != 'Delete' || has(self.prefix)",
            "reclaimPolicy Delete needs a prefix: the operator never empties a whole bucket",
            lambda spec: spec.reclaim_policy != DELETE or bool(spec.prefix),
        ),
        Rule(
            "!has(self.authoritySecret) || !has(self.endpoint) || !self.endpoint.startsWith('http://')",
            "authoritySecret needs an https endpoint",
            lambda spec: not (spec.authority_secret and spec.endpoint.startswith("http://")),
        ),
    )


@dataclass(frozen=True)
class CheckpointVolumeStatus:
    """Observed state of a CheckpointVolume. Only the operator writes it."""

    observed_generation: int = spec_field(
        "The metadata.generation of the spec that the operator last acted on.", default=0
    )
    phase: str = spec_field(
        "Summary of the volume's state; the conditions have the details.",
        default="Pending",
        choices=("Pending", "Ready", "Failed", "Deleting"),
        always_written=True,
    )
    conditions: tuple[Condition, ...] = spec_field(
        "Accepted, Ready, Maintenance and WithinQuota.", default=()
    )
    bytes: int = spec_field("Total size in bytes of the objects below the prefix.", default=0)
    objects: int = spec_field("Number of objects below the prefix.", default=0)
    measured_time: Instant | None = spec_field(
        "Time at which bytes and objects were last counted.", default=None
    )
    last_epoch_time: Instant | None = spec_field(
        "Time of the latest epoch of any job on the volume.", default=None
    )
    checked_time: Instant | None = spec_field(
        "Time of the latest check that the store is reachable and supports conditional creation of "
        "objects.",
        default=None,
    )
    checked_access: str = spec_field(
        "Digest of the endpoint and credentials with which that check succeeded.", default=""
    )
    failures: int = spec_field("Number of consecutive checks that failed.", default=0)
    failure_reason: str = spec_field(
        "Why the volume is not usable, in one CamelCase word.", default=""
    )
    last_error: str = spec_field(
        "Error of the latest check or deletion of data that failed.", default=""
    )
    failed_time: Instant | None = spec_field(
        "Time of the latest check or deletion of data that failed.", default=None
    )
    failed_access: str = spec_field(
        "Digest of the endpoint and credentials with which it failed.", default=""
    )
    next_retry_time: Instant | None = spec_field("Time of the next retry.", default=None)
    pruned_time: Instant | None = spec_field(
        "Time at which spec.retention was last applied.", default=None
    )
    maintenance_failed_time: Instant | None = spec_field(
        "Time at which counting objects or applying the retention last failed.", default=None
    )
    data_deleted: bool = spec_field(
        "Whether everything below the prefix was deleted, by reclaimPolicy Delete.", default=False
    )
