"""The template of a job's executors: a pod that the driver fills in and makes, and owns.

It travels in an annotation of the driver's pod and is shown to Spark as a file (a downward API
volume): a ConfigMap would be one more write an attempt, and one more thing to clean up. Not here:
what Spark puts in (image, arguments, cores, memory, owner: `conf`). Called by `driver`.
"""

from __future__ import annotations

from typing import Any

from sluicegate_operator.pods import names
from sluicegate_operator.pods.authority import (
    authority_mounts,
    authority_variables,
    authority_volumes,
)
from sluicegate_operator.pods.environment import shared_variables
from sluicegate_operator.pods.place import Place
from sluicegate_operator.pods.security import container_security, pod_security
from sluicegate_operator.pods.templates import built
from sluicegate_operator.reconcile.actions import CreateDriver
from sluicegate_operator.reconcile.observed import Job
from sluicegate_operator.resources import marks

_TMP = "/tmp"  # noqa: S108 - a volume of the pod


def executor_template(job: Job, action: CreateDriver, place: Place) -> dict[str, Any]:
    """Return the pod that Spark makes each executor of.

    Spark itself puts in the image, the argument `executor`, requests of CPU and memory, the
    memory limit, its own labels, and a volume for its local folders unless the template has one
    of the name `spark-local-dir-1`.

    Raises:
        SettingsInvalid: the user's template is not shaped like one.
    """
    spec = job.spec
    ours: dict[str, Any] = {
        "metadata": {"labels": names.labels(job, action, marks.EXECUTOR)},
        "spec": {
            "restartPolicy": "Never",
            "volumes": authority_volumes(place.volume),
            "containers": [
                {
                    "name": marks.EXECUTOR,
                    "env": shared_variables(spec, place),
                    "volumeMounts": authority_mounts(place.volume),
                }
            ],
        },
    }
    if spec.service_account:
        ours["spec"]["serviceAccountName"] = spec.service_account
    defaults = {
        "metadata": {"labels": names.common_labels(job, marks.EXECUTOR)},
        "spec": {
            # of the driver's account, because that may be what the store knows it by; no token
            "serviceAccountName": names.DEFAULT_SERVICE_ACCOUNT,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": pod_security(),
            "volumes": [{"name": "tmp", "emptyDir": {}}],
            "containers": [
                {
                    "name": marks.EXECUTOR,
                    "env": authority_variables(place.volume),
                    # Spark copies jars into the folder that it is started in
                    "workingDir": _TMP,
                    "securityContext": container_security(),
                    "volumeMounts": [{"name": "tmp", "mountPath": _TMP}],
                }
            ],
        },
    }
    made = built(defaults, spec.executor.template, ours, marks.EXECUTOR)
    return {"apiVersion": "v1", "kind": "Pod", **made}
