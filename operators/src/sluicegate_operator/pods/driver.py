"""The driver's pod: validation of its job, and its manifest."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from sluicegate.errors import SettingsInvalid
from sluicegate_operator.api import labels as api_labels
from sluicegate_operator.api.crds import STREAMING_JOB
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.pods import names
from sluicegate_operator.pods.environment import (
    TERMINATION_FILE,
    CheckpointLocation,
    default_variables,
    driver_variables,
    is_distributed,
    literal,
    progress_interval_s,
)
from sluicegate_operator.pods.executor import executor_template
from sluicegate_operator.pods.privileges import validate_privileges
from sluicegate_operator.pods.security import (
    authority_mounts,
    authority_volumes,
    container_security,
    pod_security,
)
from sluicegate_operator.pods.spark_conf import (
    SCRATCH_FOLDER,
    TEMPLATE_FOLDER,
    TEMPLATE_NAME,
    TEMPORARY_FOLDER,
    total_mib,
    validate_conf,
)
from sluicegate_operator.pods.template import build_pod, validate_template
from sluicegate_operator.reconcile.actions import CreateDriver
from sluicegate_operator.reconcile.observed import Job

_TEMPLATE_VOLUME = "sluicegate-executor"


def validate(job: str, spec: StreamingJobSpec) -> SettingsInvalid | None:
    """Return why no driver can be created for a job of this name, by rules that no schema expresses."""
    return (
        names.validate_name(job, spec.checkpoint.path)
        or validate_conf(spec)
        or validate_template(spec.driver.template, api_labels.DRIVER)
        or validate_template(spec.executor.template, api_labels.EXECUTOR)
        or validate_privileges(spec.driver.template, api_labels.DRIVER)
        or validate_privileges(spec.executor.template, api_labels.EXECUTOR)
    )


def driver_pod(job: Job, action: CreateDriver, location: CheckpointLocation) -> dict[str, Any]:
    """Return the manifest of a driver's pod.

    Raises:
        SettingsInvalid: a template of the job does not have the shape of a pod template; `validate`
            detects that beforehand.
    """
    job = dataclasses.replace(job, spec=action.spec)
    defaults, ours = _default_fields(job, location), _reserved_fields(job, action, location)
    if action.standby:
        defaults["spec"]["affinity"] = _away_from_drivers_of(job)
    return build_pod(defaults, job.spec.driver.template, ours, api_labels.DRIVER)


def command_of(spec: StreamingJobSpec) -> list[str]:
    """Return the command of the driver's container.

    As in any container, Kubernetes replaces `$(NAME)` in `arguments` by the value of a variable.
    """
    main = ("--module", spec.main_module) if spec.main_module else ("--file", spec.main_file)
    return ["python", "-m", "sluicegate.driver", main[0], literal(main[1]), "--", *spec.arguments]


def _reserved_fields(
    job: Job, action: CreateDriver, location: CheckpointLocation
) -> dict[str, Any]:
    """Return the metadata and spec that a template cannot change."""
    spec = job.spec
    annotations = {
        api_labels.SPEC_HASH: action.spec_hash,
        api_labels.PROGRESS_INTERVAL: str(progress_interval_s(spec)),
    }
    if action.restore_from:
        annotations[api_labels.RESTORE_FROM] = action.restore_from
    container: dict[str, Any] = {
        "name": api_labels.DRIVER,
        "image": spec.image,
        "imagePullPolicy": spec.image_pull_policy,
        "command": command_of(spec),
        "args": None,
        "env": driver_variables(job, action, location),
        "volumeMounts": authority_mounts(location.volume),
        "terminationMessagePath": TERMINATION_FILE,
        # a killed driver writes nothing there; the end of its log is used instead
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": math.ceil(spec.termination_grace_period_s),
        "volumes": authority_volumes(location.volume),
        "containers": [container],
    }
    owner = {
        **STREAMING_JOB.resource.type_meta,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    if spec.service_account:
        pod["serviceAccountName"] = spec.service_account
    if spec.epochs.metrics_port:
        container["ports"] = [{"name": "metrics", "containerPort": spec.epochs.metrics_port}]
    if is_distributed(spec, action.mode):
        template = executor_template(job, action, location)
        annotations[api_labels.EXECUTOR_TEMPLATE] = json.dumps(template, sort_keys=True)
        field = f"metadata.annotations['{api_labels.EXECUTOR_TEMPLATE}']"
        item = {"path": TEMPLATE_NAME, "fieldRef": {"fieldPath": field}}
        pod["volumes"].append({"name": _TEMPLATE_VOLUME, "downwardAPI": {"items": [item]}})
        container["volumeMounts"].append(
            {"name": _TEMPLATE_VOLUME, "mountPath": TEMPLATE_FOLDER, "readOnly": True}
        )
    return {
        "metadata": {
            "name": names.driver_name(job.name, action.attempt),
            "namespace": job.namespace,
            "labels": names.labels(job, action, api_labels.DRIVER),
            "annotations": annotations,
            "finalizers": [api_labels.DRIVER_FINALIZER],
            "ownerReferences": [owner],
        },
        "spec": pod,
    }


def _away_from_drivers_of(job: Job) -> dict[str, Any]:
    """Return the affinity of a standby: a node that fails should not end both, if there is another."""
    drivers = {api_labels.JOB_UID: job.uid, api_labels.ROLE: api_labels.DRIVER}
    term = {"labelSelector": {"matchLabels": drivers}, "topologyKey": "kubernetes.io/hostname"}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def _default_fields(job: Job, location: CheckpointLocation) -> dict[str, Any]:
    """Return the metadata and spec that a template may change."""
    memory = f"{total_mib(job.spec.driver)}Mi"
    return {
        "metadata": {
            "labels": names.common_labels(job, api_labels.DRIVER),
            # a move costs an epoch and a start, so cluster autoscalers must not evict the pod
            "annotations": {api_labels.SAFE_TO_EVICT: "false"},
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
                    "name": api_labels.DRIVER,
                    "env": default_variables(location),
                    "resources": {
                        # no CPU limit: throttling would delay epochs
                        "requests": {"cpu": str(job.spec.driver.cores), "memory": memory},
                        "limits": {"memory": memory},
                    },
                    "securityContext": container_security(),
                    "volumeMounts": [
                        {"name": "tmp", "mountPath": TEMPORARY_FOLDER},
                        {"name": "work", "mountPath": SCRATCH_FOLDER},
                    ],
                }
            ],
        },
    }
