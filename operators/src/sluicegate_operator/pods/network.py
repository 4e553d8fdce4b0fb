"""The NetworkPolicy of a job: who reaches the ports of its driver and executors."""

from __future__ import annotations

from typing import Any

from sluicegate_operator.api import labels
from sluicegate_operator.api.crds import STREAMING_JOB
from sluicegate_operator.kube.resource import NETWORK_POLICIES
from sluicegate_operator.pods.spark_conf import BLOCK_PORT, DRIVER_PORT
from sluicegate_operator.reconcile.observed import Job


def network_policy(job: Job) -> dict[str, Any]:
    """Return the manifest of a job's NetworkPolicy, which is deleted with the job.

    It admits the job's own pods to Spark's ports, and nobody else to any port. Policies add up, so another
    one can admit more. It says nothing about outgoing connections.
    """
    own = {"matchLabels": {labels.JOB_UID: job.uid}}
    owner = {**STREAMING_JOB.resource.type_meta, "name": job.name, "uid": job.uid}
    return {
        **NETWORK_POLICIES.type_meta,
        "metadata": {
            # a job made again under the same name has another uid, and a policy of its own
            "name": f"{job.name}-{job.uid[:8]}",
            "namespace": job.namespace,
            "labels": {labels.JOB: job.name},
            "ownerReferences": [owner],
        },
        "spec": {
            "podSelector": own,
            "policyTypes": ["Ingress"],
            "ingress": [
                {
                    "ports": [{"port": int(DRIVER_PORT)}, {"port": int(BLOCK_PORT)}],
                    "from": [{"podSelector": own}],
                }
            ],
        },
    }
