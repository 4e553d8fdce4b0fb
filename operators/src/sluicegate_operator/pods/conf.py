"""Spark's own settings: which of them a job may not give, and which the operator adds.

A driver in a pod is Spark's client mode: it makes its executors itself, as pods that it owns. Not
here: settings that the library gives every session (`sluicegate.spark.session`). Called by
`checks` and `environment`.
"""

from __future__ import annotations

from collections.abc import Mapping

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate_operator.pods.memory import heap_mib, overhead_mib
from sluicegate_operator.pods.names import driver_name, executor_prefix
from sluicegate_operator.reconcile.observed import Job
from sluicegate_operator.resources.declaring import LEFT_ALONE
from sluicegate_operator.resources.job import StreamingJobSpec
from sluicegate_operator.resources.marks import EXECUTOR

IN_CLUSTER_MASTER = "k8s://https://kubernetes.default.svc"

WORK = "/var/tmp"  # noqa: S108 - a volume of the pod
"""Where Spark spills and keeps its copy of state. Not below /tmp, so that either volume can be
replaced alone; a folder that any system has."""

TEMPLATE_FOLDER = "/etc/sluicegate"
TEMPLATE_FILE = f"{TEMPLATE_FOLDER}/executor.json"
"""The template of executors, in the driver's container; JSON is YAML."""

_OPERATORS = "the operator sets it"

REFUSED: Mapping[str, str] = {
    "spark.master": _OPERATORS,
    "spark.submit.deployMode": _OPERATORS,
    "spark.app.id": _OPERATORS,
    "spark.driver.host": _OPERATORS,
    "spark.driver.bindAddress": _OPERATORS,
    "spark.driver.cores": "give driver.cores",
    "spark.driver.memory": "give driver.memory",
    "spark.driver.memoryOverhead": "give driver.memoryOverhead",
    "spark.driver.memoryOverheadFactor": "give driver.memoryOverhead",
    "spark.executor.instances": "give executor.instances",
    "spark.executor.cores": "give executor.cores",
    "spark.executor.memory": "give executor.memory",
    "spark.executor.memoryOverhead": "give executor.memoryOverhead",
    "spark.executor.memoryOverheadFactor": "give executor.memoryOverhead",
    "spark.local.dir": f"replace the volume at {WORK} in the pods' templates",
    "spark.kubernetes.memoryOverheadFactor": "give memoryOverhead of driver and executor",
    "spark.kubernetes.namespace": "pods are in the job's namespace",
    "spark.kubernetes.context": _OPERATORS,
    "spark.kubernetes.driver.master": _OPERATORS,
    "spark.kubernetes.driver.pod.name": _OPERATORS,
    "spark.kubernetes.driver.podTemplateFile": "give driver.template",
    "spark.kubernetes.driver.podTemplateContainerName": "give driver.template",
    "spark.kubernetes.executor.podTemplateFile": "give executor.template",
    "spark.kubernetes.executor.podTemplateContainerName": "give executor.template",
    "spark.kubernetes.executor.podNamePrefix": _OPERATORS,
    "spark.kubernetes.container.image": "give image",
    "spark.kubernetes.driver.container.image": "give image",
    "spark.kubernetes.executor.container.image": "give image",
    "spark.kubernetes.container.image.pullPolicy": "give imagePullPolicy",
    "spark.kubernetes.container.image.pullSecrets": "give imagePullSecrets",
    "spark.kubernetes.authenticate.driver.serviceAccountName": "give serviceAccount",
    "spark.kubernetes.authenticate.executor.serviceAccountName": "give serviceAccount",
    "spark.sql.streaming.checkpointLocation": "give checkpoint",
    "spark.sql.streaming.checkpointFileManagerClass": "exactly-once rests on Sluicegate's own",
    "spark.sql.streaming.stateStore.providerClass": "give epochs.stateBackend",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "a skipped epoch needs version 1",
    "spark.sql.streaming.stateStore.commitValidation.enabled": "a skipped epoch needs it off",
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "exactly-once needs it on",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": (
        "exactly-once needs it on"
    ),
}
"""Keys of sparkConf that cannot be given, and why or what to give instead."""

ONLY: Mapping[str, tuple[str, str]] = {
    "spark.dynamicAllocation.enabled": (
        "false",
        "executor.instances says how many there are, and one that goes takes its state along",
    ),
    "spark.speculation": ("false", "two copies of a task would stage side by side"),
    "spark.kubernetes.allocation.pods.allocator": (
        "direct",
        "executors are to end with their driver, not to be brought back by a set",
    ),
}
"""Keys that can have one value only, and why."""

_DEFAULTS: Mapping[str, str] = {
    # the container's root is read-only; Spark makes the folder when its first query is analysed
    "spark.sql.warehouse.dir": f"file:{WORK}/warehouse",
}

_EXECUTOR_DEFAULTS: Mapping[str, str] = {
    # known ports, so that a NetworkPolicy can name them
    "spark.driver.port": "7078",
    "spark.driver.blockManager.port": "7079",
    "spark.blockManager.port": "7079",
    # what the driver does not make it needs no right to make or to delete
    "spark.kubernetes.executor.disableConfigMap": "true",
    "spark.kubernetes.driver.service.deleteOnTermination": "false",
    "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
    "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
    "spark.kubernetes.driver.waitToReusePersistentVolumeClaim": "false",
}


def refused_conf(spec: StreamingJobSpec) -> SettingsInvalid | None:
    """Return why a spec's sparkConf cannot be used, or None."""
    for key, value in sorted(spec.spark_conf.items()):
        if key in REFUSED:
            return _refusal(f"sparkConf[{key}] cannot be given: {REFUSED[key]}")
        wanted, why = ONLY.get(key, (value, ""))
        if value.strip().lower() != wanted.strip().lower():
            return _refusal(f"sparkConf[{key}] is {value!r}; it can only be {wanted!r}: {why}")
    return None


def local_conf(spec: StreamingJobSpec) -> dict[str, str]:
    """Return the settings of a driver that works alone."""
    return {**_DEFAULTS, **_users(spec)}


def distributed_conf(job: Job, attempt: int) -> dict[str, str]:
    """Return the settings of a driver that has executors, but for its own address."""
    spec, executor = job.spec, job.spec.executor
    ours = {
        "spark.kubernetes.namespace": job.namespace,
        "spark.kubernetes.driver.pod.name": driver_name(job.name, attempt),
        "spark.kubernetes.executor.podNamePrefix": executor_prefix(job.name, attempt),
        "spark.kubernetes.executor.podTemplateFile": TEMPLATE_FILE,
        "spark.kubernetes.executor.podTemplateContainerName": EXECUTOR,
        "spark.kubernetes.container.image": spec.image,
        "spark.kubernetes.container.image.pullPolicy": spec.image_pull_policy,
        "spark.executor.instances": str(executor.instances),
        "spark.executor.cores": str(executor.cores),
        "spark.executor.memory": f"{heap_mib(executor)}m",
        "spark.executor.memoryOverhead": f"{overhead_mib(executor)}m",
    }
    if spec.image_pull_secrets:
        ours["spark.kubernetes.container.image.pullSecrets"] = ",".join(spec.image_pull_secrets)
    return {**_DEFAULTS, **_EXECUTOR_DEFAULTS, **_users(spec), **ours}


def _users(spec: StreamingJobSpec) -> dict[str, str]:
    """Return the user's settings without those that are refused: a pod may be made nevertheless."""
    return {
        key: ONLY[key][0] if key in ONLY else value
        for key, value in spec.spark_conf.items()
        if key not in REFUSED
    }


def _refusal(what: str) -> SettingsInvalid:
    return SettingsInvalid(what, data=LEFT_ALONE, do="take it out of sparkConf and apply it again")
