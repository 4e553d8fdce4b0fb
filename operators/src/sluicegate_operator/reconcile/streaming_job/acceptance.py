"""Acceptance of a spec: from which edit on a driver counts as outdated, and what runs until then.

The digest of an accepted spec changes only when `metadata.generation` does, and then only if a field that
needs a new driver has changed. So a new release of the operator restarts nothing, although its defaults
differ or it has fields that the old one did not have.
"""

from __future__ import annotations

import json

from sluicegate.errors import SettingsInvalid
from sluicegate_operator.api.codec import API, parse
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_status import AcceptedSpecStatus, StreamingJobStatus
from sluicegate_operator.reconcile.streaming_job.context import JobContext

_SPEC_BYTES = 64 << 10
"""Limit of the spec that is kept: every write of the status and every watch carries it."""


def accept(context: JobContext) -> None:
    """Record the resource's spec as accepted if it is valid and newer than the accepted one."""
    known, job = context.status.accepted, context.job
    if context.observed.spec_error or (known is not None and known.generation == job.generation):
        return
    spec_hash = job.spec.running_hash()
    stable = context.status.last_stable_spec
    earlier = [(known, accepted_spec(context.status)), (stable, context.stable_spec())]
    for recorded, before in earlier:
        if recorded is not None and before is not None and before.running_hash() == spec_hash:
            spec_hash = recorded.spec_hash
            break
    spec = job.spec.complete()
    large = len(json.dumps(spec)) > _SPEC_BYTES
    context.set(
        accepted=AcceptedSpecStatus(
            generation=job.generation, spec_hash=spec_hash, spec={} if large else spec
        )
    )


def accepted_spec(status: StreamingJobStatus) -> StreamingJobSpec | None:
    """Return the accepted spec; None if there is none, or it cannot be read."""
    if status.accepted is None:
        return None
    known, _ = API.without_unknown(StreamingJobSpec, status.accepted.spec)
    try:
        return parse(StreamingJobSpec, known, "status.accepted.spec")
    except SettingsInvalid:
        return None  # it was too large to be kept, or a newer release wrote it
