"""CheckpointVolume: a location on an object store that holds checkpoints and savepoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sluicegate.settings.schema import option
from sluicegate_operator.api.conditions import Condition
from sluicegate_operator.api.fields import Instant, Rule
from sluicegate_operator.api.paths import PREFIX_PATTERN

RETAIN, DELETE = "Retain", "Delete"

_ENDPOINT = r"^https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?/?$"
"""Without user, path, query and fragment, whose meaning differs between clients."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Retention:
    """How much is kept of what jobs write."""

    savepoints: int = option(
        0,
        "Number of savepoints to keep for each job; older ones are deleted. 0 keeps all.",
        at_least=0,
    )
    epochs: int = option(
        100,
        "Number of epoch records to keep for each checkpoint, besides the latest, which is always "
        "kept.",
        at_least=1,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointVolumeSpec:
    """Desired state of a CheckpointVolume."""

    endpoint: str = option(
        "",
        "URL of an S3-compatible object store: scheme, host and port. The platform's administrator may "
        "limit which ones are permitted. Defaults to Amazon S3 in the region.",
        pattern=_ENDPOINT,
    )
    region: str = option("us-east-1", "Region of the bucket.")
    bucket: str = option(
        ...,
        "Name of the bucket. It is created if it does not exist. Immutable.",
        pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$",
    )
    prefix: str = option(
        "",
        "Prefix of all object keys in the bucket: letters, digits and !_-.*'()=, in parts separated "
        "by '/' of which none begins with '.'. No other CheckpointVolume may have the same prefix, "
        "or one that contains it. Immutable.",
        pattern=PREFIX_PATTERN,
    )
    credentials_secret: str = option(
        "",
        "Name of a Secret with the keys accessKeyId and secretAccessKey. Without it the pods' own "
        "identity (such as an IAM role of the ServiceAccount) is used.",
    )
    authority_secret: str = option(
        "",
        "Name of a Secret with the key ca.crt: the certificate authorities that the pods trust, "
        "instead of those of the image. Needs an https endpoint.",
    )
    retention: Retention = option(Retention(), "How many savepoints and epoch records are kept.")
    reclaim_policy: str = option(
        RETAIN,
        "What happens to the data when the CheckpointVolume is deleted. Retain keeps it. Delete "
        "removes everything below the prefix.",
        choices=(RETAIN, DELETE),
    )
    quota_bytes: int = option(
        0,
        "Size in bytes above which the operator reports a warning. Writes are never blocked. "
        "0 disables the warning.",
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


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointVolumeStatus:
    """Observed state of a CheckpointVolume. Only the operator writes it."""

    observed_generation: int = option(
        0, "The metadata.generation of the spec that the operator last acted on."
    )
    phase: str = option(
        "Pending",
        "Summary of the volume's state; the conditions have the details.",
        choices=("Pending", "Ready", "Failed", "Deleting"),
        always_written=True,
    )
    conditions: tuple[Condition, ...] = option(
        (), "Accepted, Ready, Maintenance, WithinQuota and Paused."
    )
    bytes: int = option(0, "Total size in bytes of the objects below the prefix.")
    objects: int = option(0, "Number of objects below the prefix.")
    measured_time: Instant | None = option(
        None, "Time at which bytes and objects were last counted."
    )
    last_epoch_time: Instant | None = option(
        None, "Time of the latest epoch of any job on the volume."
    )
    checked_time: Instant | None = option(
        None,
        "Time of the latest check that the store is reachable and supports conditional creation of "
        "objects.",
    )
    checked_access: str = option(
        "", "Digest of the endpoint and credentials with which that check succeeded."
    )
    failures: int = option(0, "Number of consecutive checks that failed.")
    failure_reason: str = option("", "Why the volume is not usable, in one CamelCase word.")
    last_error: str = option("", "Error of the latest check or deletion of data that failed.")
    failed_time: Instant | None = option(
        None, "Time of the latest check or deletion of data that failed."
    )
    failed_access: str = option("", "Digest of the endpoint and credentials with which it failed.")
    next_retry_time: Instant | None = option(None, "Time of the next retry.")
    pruned_time: Instant | None = option(None, "Time at which spec.retention was last applied.")
    maintenance_failed_time: Instant | None = option(
        None, "Time at which counting objects or applying the retention last failed."
    )
    data_deleted: bool = option(
        default=False,
        text="Whether everything below the prefix was deleted, by reclaimPolicy Delete.",
    )
