"""CheckpointVolume: a place on an object store where checkpoints live.

Not here: what is done about it (`volumes`). Called by `kinds` and `volumes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sluicegate_operator.resources.conditions import Condition
from sluicegate_operator.resources.declaring import Instant, Rule, described

RETAIN, DELETE = "Retain", "Delete"


@dataclass(frozen=True)
class Retention:
    """What is kept of what jobs leave behind."""

    savepoints: int = described("newest ones kept of each job; 0: all", default=0, at_least=0)
    epochs: int = described(
        "decided records kept behind the newest, which always stays", default=100, at_least=1
    )


@dataclass(frozen=True)
class CheckpointVolumeSpec:
    """What the user writes below `spec`."""

    endpoint: str = described(
        "of the store; default: Amazon's, by region", default="", pattern="^https?://.+$"
    )
    region: str = described("of the bucket", default="us-east-1")
    bucket: str = described(
        "made if it is not there", pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$"
    )
    prefix: str = described("below the bucket; no '/' in front", default="", pattern="^[^/].*$")
    credentials_secret: str = described(
        "a Secret with accessKeyId and secretAccessKey; none: the pod's own identity", default=""
    )
    authority_secret: str = described(
        "a Secret with ca.crt: all authorities that the pods trust, instead of those of the image",
        default="",
    )
    retention: Retention = described("what is kept", default=Retention())
    reclaim_policy: str = described(
        "what becomes of the data when the volume is deleted",
        default=RETAIN,
        choices=(RETAIN, DELETE),
    )
    quota_bytes: int = described(
        "more than this is warned about; 0: nothing is", default=0, at_least=0
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.bucket == oldSelf.bucket && has(self.prefix) == has(oldSelf.prefix) && "
            "(!has(self.prefix) || self.prefix == oldSelf.prefix)",
            "bucket and prefix cannot change: checkpoints would be left behind; make another volume",
        ),
        Rule(
            "self.reclaimPolicy != 'Delete' || has(self.prefix)",
            "reclaimPolicy Delete needs a prefix: a whole bucket is never emptied",
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
    """What the operator writes below `status`."""

    observed_generation: int = described("of the spec that was last acted on", default=0)
    phase: str = described(
        "in one word",
        default="Pending",
        choices=("Pending", "Ready", "Failed", "Deleting"),
        shown=True,
    )
    conditions: tuple[Condition, ...] = described("in detail", default=())
    bytes: int = described("below the prefix", default=0)
    objects: int = described("below the prefix", default=0)
    measured_time: Instant | None = described("when they were counted", default=None)
    last_epoch_time: Instant | None = described("of the newest epoch of any job", default=None)
    checked_time: Instant | None = described("when it was last found fit", default=None)
    checked_access: str = described(
        "endpoint and keys that were found fit, as a digest", default=""
    )
    failures: int = described("checks in a row that failed", default=0)
    failed: str = described("why it is not fit, in one word", default="")
    last_error: str = described("of the last check, or deletion, that failed", default="")
    tried_time: Instant | None = described("when that failed", default=None)
    tried_access: str = described("endpoint and keys that failed, as a digest", default="")
    next_try_time: Instant | None = described("when it is tried again", default=None)
    pruned_time: Instant | None = described("when retention was last applied", default=None)
    upkeep_failed_time: Instant | None = described(
        "when measuring or pruning last failed", default=None
    )
    emptied: bool = described("whether all below the prefix was deleted", default=False)
