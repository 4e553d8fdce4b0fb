"""The pod template of a job's executors. The driver completes it, creates the pods, and owns them.

The template travels in an annotation of the driver's pod, and a downward API volume shows it to Spark as
a file. A ConfigMap would be one more write for each attempt, and one more object to clean up.
"""

from __future__ import annotations

from typing import Any

from sluicegate_operator.api import labels as api_labels
from sluicegate_operator.pods import names
from sluicegate_operator.pods.environment import CheckpointLocation, shared_variables
from sluicegate_operator.pods.security import (
    authority_mounts,
    authority_variables,
    authority_volumes,
    container_security,
    pod_security,
)
from sluicegate_operator.pods.spark_conf import TEMPORARY_FOLDER
from sluicegate_operator.pods.template import build_pod
from sluicegate_operator.reconcile.actions import CreateDriver
from sluicegate_operator.reconcile.observed import Job


def executor_template(
    job: Job, action: CreateDriver, location: CheckpointLocation
) -> dict[str, Any]:
    """Return the pod from which Spark creates each executor.

    Spark itself adds the image, the argument `executor`, requests of CPU and memory, the memory limit, its
    own labels, and a volume for its local folders unless the template has one named `spark-local-dir-1`.

    Raises:
        SettingsInvalid: the user's template does not have the shape of a pod template.
    """
    spec = job.spec
    ours: dict[str, Any] = {
        "metadata": {"labels": names.labels(job, action, api_labels.EXECUTOR)},
        "spec": {
            "restartPolicy": "Never",
            "volumes": authority_volumes(location.volume),
            "containers": [
                {
                    "name": api_labels.EXECUTOR,
                    "env": shared_variables(spec, location),
                    "volumeMounts": authority_mounts(location.volume),
                }
            ],
        },
    }
    if spec.service_account:
        ours["spec"]["serviceAccountName"] = spec.service_account
    defaults = {
        "metadata": {"labels": names.common_labels(job, api_labels.EXECUTOR)},
        "spec": {
            # the driver's account, because the store may grant access to it; but without a token
            "serviceAccountName": names.DEFAULT_SERVICE_ACCOUNT,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": pod_security(),
            "volumes": [{"name": "tmp", "emptyDir": {}}],
            "containers": [
                {
                    "name": api_labels.EXECUTOR,
                    "env": authority_variables(location.volume),
                    # Spark copies jars into its working directory
                    "workingDir": TEMPORARY_FOLDER,
                    "securityContext": container_security(),
                    "volumeMounts": [{"name": "tmp", "mountPath": TEMPORARY_FOLDER}],
                }
            ],
        },
    }
    return build_pod(defaults, spec.executor.template, ours, api_labels.EXECUTOR)
