"""The Savepoint that an upgrade makes (`reconcile.actions.TakeSavepoint`), as the API takes it. Pure.

Called by whoever performs that action.
"""

from __future__ import annotations

from typing import Any

from sluicegate_operator.reconcile.actions import TakeSavepoint
from sluicegate_operator.reconcile.observed import Job
from sluicegate_operator.resources import marks
from sluicegate_operator.resources.declaring import GROUP, VERSION
from sluicegate_operator.resources.parsing import render
from sluicegate_operator.resources.savepoint import SavepointSpec


def savepoint_of_upgrade(job: Job, action: TakeSavepoint) -> dict[str, Any]:
    """Return the Savepoint to create; one of its name that has another `job-uid` is not this one.

    Args:
        job: that is upgraded.
        action: of its pass.
    """
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Savepoint",
        "metadata": {
            "namespace": job.namespace,
            "name": action.name,
            "labels": {marks.JOB: job.name},
            "annotations": {marks.ATTEMPT: str(action.attempt), marks.JOB_UID: job.uid},
        },
        "spec": render(SavepointSpec(job=job.name, stop=True)),
    }
