"""The driver's pod.

Not here: creating it (`cluster`), what runs in it (`sluicegate.pod`). Called by whoever performs
`CreateDriver`.
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from sluicegate_operator.pods import names
from sluicegate_operator.pods.authority import authority_mounts, authority_volumes
from sluicegate_operator.pods.conf import TEMPLATE_FILE, TEMPLATE_FOLDER, WORK
from sluicegate_operator.pods.environment import (
    OUTCOME_FILE,
    default_variables,
    driver_variables,
    is_distributed,
    literal,
)
from sluicegate_operator.pods.executors import executor_template
from sluicegate_operator.pods.memory import total_mib
from sluicegate_operator.pods.place import Place
from sluicegate_operator.pods.security import container_security, pod_security
from sluicegate_operator.pods.templates import built
from sluicegate_operator.reconcile.actions import CreateDriver
from sluicegate_operator.reconcile.observed import Job
from sluicegate_operator.resources import marks
from sluicegate_operator.resources.declaring import GROUP, VERSION
from sluicegate_operator.resources.job import StreamingJobSpec

_TMP = "/tmp"  # noqa: S108 - a volume of the pod
_TEMPLATE_VOLUME = "sluicegate-executor"


def driver_pod(job: Job, action: CreateDriver, place: Place) -> dict[str, Any]:
    """Return the manifest of a driver's pod.

    Args:
        job: whose driver it is.
        action: attempt, purpose, checkpoint.
        place: where the checkpoint is.

    Raises:
        SettingsInvalid: a template of the job is not shaped like one; `checks.refused` says so
            beforehand.
    """
    job = dataclasses.replace(job, spec=action.spec)
    ours = _ours(job, action, place)
    made = built(_defaults(job, place), job.spec.driver.template, ours, marks.DRIVER)
    return {"apiVersion": "v1", "kind": "Pod", **made}


def command_of(spec: StreamingJobSpec) -> list[str]:
    """Return what the container runs.

    In `arguments`, as in any container's, Kubernetes puts variables for `$(NAME)`.
    """
    main = ("--module", spec.main_module) if spec.main_module else ("--file", spec.main_file)
    return ["python", "-m", "sluicegate.pod", main[0], literal(main[1]), "--", *spec.arguments]


def _ours(job: Job, action: CreateDriver, place: Place) -> dict[str, Any]:
    """Return what a template cannot change."""
    spec = job.spec
    annotations = {marks.SPEC_HASH: action.spec_hash}
    if action.restore_from:
        annotations[marks.RESTORE_FROM] = action.restore_from
    container: dict[str, Any] = {
        "name": marks.DRIVER,
        "image": spec.image,
        "imagePullPolicy": spec.image_pull_policy,
        "command": command_of(spec),
        "args": None,
        "env": driver_variables(job, action, place),
        "volumeMounts": authority_mounts(place.volume),
        "terminationMessagePath": OUTCOME_FILE,
        # a driver that was killed wrote nothing there: then the end of its log
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": math.ceil(spec.grace_s),
        "volumes": authority_volumes(place.volume),
        "containers": [container],
    }
    if spec.service_account:
        pod["serviceAccountName"] = spec.service_account
    if is_distributed(spec, action.purpose):
        template = executor_template(job, action, place)
        annotations[marks.EXECUTOR_TEMPLATE] = json.dumps(template, sort_keys=True)
        pod["volumes"].append(_template_volume())
        container["volumeMounts"].append(
            {"name": _TEMPLATE_VOLUME, "mountPath": TEMPLATE_FOLDER, "readOnly": True}
        )
    return {
        "metadata": {
            "name": names.driver_name(job.name, action.attempt),
            "namespace": job.namespace,
            "labels": names.labels(job, action, marks.DRIVER),
            "annotations": annotations,
            "finalizers": [marks.DRIVER_FINALIZER],
            "ownerReferences": [
                {
                    "apiVersion": f"{GROUP}/{VERSION}",
                    "kind": "StreamingJob",
                    "name": job.name,
                    "uid": job.uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": pod,
    }


def _defaults(job: Job, place: Place) -> dict[str, Any]:
    """Return what a template may change."""
    memory = f"{total_mib(job.spec.driver)}Mi"
    return {
        "metadata": {
            "labels": names.common_labels(job, marks.DRIVER),
            # to be moved costs an epoch and a start; whoever packs nodes need not do it
            "annotations": {marks.SAFE_TO_EVICT: "false"},
        },
        "spec": {
            "serviceAccountName": names.DEFAULT_SERVICE_ACCOUNT,
            "automountServiceAccountToken": True,
            "enableServiceLinks": False,
            "securityContext": pod_security(),
            "imagePullSecrets": [{"name": name} for name in job.spec.image_pull_secrets],
            "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "work", "emptyDir": {}}],
            "containers": [
                {
                    "name": marks.DRIVER,
                    "env": default_variables(place),
                    "resources": {
                        # no limit of CPU: an epoch that is throttled is late
                        "requests": {"cpu": str(job.spec.driver.cores), "memory": memory},
                        "limits": {"memory": memory},
                    },
                    "securityContext": container_security(),
                    "volumeMounts": [
                        {"name": "tmp", "mountPath": _TMP},
                        {"name": "work", "mountPath": WORK},
                    ],
                }
            ],
        },
    }


def _template_volume() -> dict[str, Any]:
    field = f"metadata.annotations['{marks.EXECUTOR_TEMPLATE}']"
    path = TEMPLATE_FILE.removeprefix(f"{TEMPLATE_FOLDER}/")
    return {
        "name": _TEMPLATE_VOLUME,
        "downwardAPI": {"items": [{"path": path, "fieldRef": {"fieldPath": field}}]},
    }
