"""Spark's settings and memory sizes: which settings a job may not set, and which the operator adds.

A driver in a pod runs in Spark's client mode: it creates its executors as pods that it owns. Settings
that every session needs are in `sluicegate.spark.session`. The memory rule is that of Spark 4.1's
`ResourceProfile.getResourcesForClusterManager`, with the factor that
`spark.kubernetes.memoryOverheadFactor` documents for jobs that do not run on the JVM alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from sluicegate.errors import SettingsInvalid
from sluicegate_operator.api.fields import SPEC_REJECTED
from sluicegate_operator.api.labels import EXECUTOR
from sluicegate_operator.api.streaming_job import PodSettings, StreamingJobSpec
from sluicegate_operator.pods.names import driver_name, executor_prefix
from sluicegate_operator.reconcile.observed import Job

_KIB = {"k": 1, "m": 1 << 10, "g": 1 << 20, "t": 1 << 30}

_OVERHEAD_FACTOR = 0.4
"""Of the heap: Python workers, off-heap buffers and RocksDB use memory outside it."""

_MIN_OVERHEAD_MIB = 384
"""`spark.executor.minMemoryOverhead`."""


def mib(size: str) -> int:
    """Return a size such as '2g' in MiB, rounded up. A size without a unit is in MiB, as in Spark."""
    unit = size[-1].lower()
    if unit.isdecimal():
        return int(size)
    return math.ceil(int(size[:-1]) * _KIB[unit] / _KIB["m"])


def heap_mib(pod: PodSettings) -> int:
    """Return the size of the JVM's heap."""
    return mib(pod.memory)


def overhead_mib(pod: PodSettings) -> int:
    """Return the memory outside the heap."""
    if pod.memory_overhead:
        return mib(pod.memory_overhead)
    return max(int(_OVERHEAD_FACTOR * heap_mib(pod)), _MIN_OVERHEAD_MIB)


def total_mib(pod: PodSettings) -> int:
    """Return the memory request of the container, which is also its limit."""
    return heap_mib(pod) + overhead_mib(pod)


IN_CLUSTER_MASTER = "k8s://https://kubernetes.default.svc"

TEMPORARY_FOLDER, SCRATCH_FOLDER = "/tmp", "/var/tmp"  # noqa: S108 - volumes of the pod
"""The second is where Spark spills and keeps its copy of the state. It exists on every system, and is not
below the first, so that either volume can be replaced alone."""

TEMPLATE_FOLDER, TEMPLATE_NAME = "/etc/sluicegate", "executor.json"
"""The executor template in the driver's container. Spark reads YAML, of which JSON is a subset."""

_OPERATOR_SETS_IT = "the operator sets it"

FORBIDDEN: Mapping[str, str] = {
    "spark.master": _OPERATOR_SETS_IT,
    "spark.submit.deployMode": _OPERATOR_SETS_IT,
    "spark.app.id": _OPERATOR_SETS_IT,
    "spark.driver.host": _OPERATOR_SETS_IT,
    "spark.driver.bindAddress": _OPERATOR_SETS_IT,
    "spark.driver.cores": "set driver.cores",
    "spark.driver.memory": "set driver.memory",
    "spark.driver.memoryOverhead": "set driver.memoryOverhead",
    "spark.driver.memoryOverheadFactor": "set driver.memoryOverhead",
    "spark.executor.instances": "set executor.instances",
    "spark.executor.cores": "set executor.cores",
    "spark.executor.memory": "set executor.memory",
    "spark.executor.memoryOverhead": "set executor.memoryOverhead",
    "spark.executor.memoryOverheadFactor": "set executor.memoryOverhead",
    "spark.local.dir": f"replace the volume at {SCRATCH_FOLDER} in the pods' templates",
    "spark.kubernetes.memoryOverheadFactor": "set memoryOverhead of driver and executor",
    "spark.kubernetes.namespace": "pods run in the job's namespace",
    "spark.kubernetes.context": _OPERATOR_SETS_IT,
    "spark.kubernetes.driver.master": _OPERATOR_SETS_IT,
    "spark.kubernetes.driver.pod.name": _OPERATOR_SETS_IT,
    "spark.kubernetes.driver.podTemplateFile": "set driver.template",
    "spark.kubernetes.driver.podTemplateContainerName": "set driver.template",
    "spark.kubernetes.executor.podTemplateFile": "set executor.template",
    "spark.kubernetes.executor.podTemplateContainerName": "set executor.template",
    "spark.kubernetes.executor.podNamePrefix": _OPERATOR_SETS_IT,
    "spark.kubernetes.container.image": "set image",
    "spark.kubernetes.driver.container.image": "set image",
    "spark.kubernetes.executor.container.image": "set image",
    "spark.kubernetes.container.image.pullPolicy": "set imagePullPolicy",
    "spark.kubernetes.container.image.pullSecrets": "set imagePullSecrets",
    "spark.kubernetes.authenticate.driver.serviceAccountName": "set serviceAccount",
    "spark.kubernetes.authenticate.executor.serviceAccountName": "set serviceAccount",
    "spark.sql.streaming.checkpointLocation": "set checkpoint",
    "spark.sql.streaming.checkpointFileManagerClass": "exactly-once needs Sluicegate's own class",
    "spark.sql.streaming.stateStore.providerClass": "set epochs.stateBackend",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "a skipped epoch needs version 1",
    "spark.sql.streaming.stateStore.commitValidation.enabled": "a skipped epoch needs it off",
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "exactly-once needs it on",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": (
        "exactly-once needs it on"
    ),
}
"""Keys of sparkConf that a job cannot set, and why or what to set instead."""

FIXED: Mapping[str, tuple[str, str]] = {
    "spark.dynamicAllocation.enabled": (
        "false",
        "executor.instances sets their number, and an executor that is removed loses its state",
    ),
    "spark.speculation": ("false", "two copies of a task would both stage rows"),
    "spark.kubernetes.allocation.pods.allocator": (
        "direct",
        "executors must end with their driver, and not be re-created by a StatefulSet",
    ),
}
"""Keys that can only have one value, and why."""

_PROTECTED = "the operator sets it: drivers and executors must authenticate and encrypt"
_FORBIDDEN_PREFIXES: Mapping[str, str] = {
    "spark.authenticate": _PROTECTED,
    "spark.network.crypto.": _PROTECTED,
    "spark.network.sasl.": _PROTECTED,
    "spark.io.encryption.": _PROTECTED,
    "spark.kubernetes.driver.volumes.": "set driver.template",
    "spark.kubernetes.executor.volumes.": "set executor.template",
    "spark.kubernetes.authenticate.": "set serviceAccount; the pod's own token is used",
}
"""Beginnings of keys that a job cannot set, and why."""

_EXECUTOR_PROTECTION: Mapping[str, str] = {
    # Without a secret anyone who reaches the driver's port could register as an executor, receive tasks
    # with the sinks' passwords, and return rows. On Kubernetes Spark creates a secret for each
    # application and passes it to the executors in a variable of their pods (Spark's page "Security").
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    # AES/GCM would also detect changed bytes, but no application with executors started with it where
    # it was tried, on Spark 4.1.2
    "spark.network.crypto.cipher": "AES/CTR/NoPadding",
    "spark.network.crypto.saslFallback": "false",
    "spark.io.encryption.enabled": "true",
}
"""Authentication and encryption between the driver and its executors, and of what they spill to disk."""

_DEFAULTS: Mapping[str, str] = {
    # the container's root is read-only, and Spark creates this folder when it analyzes its first query
    "spark.sql.warehouse.dir": f"file:{SCRATCH_FOLDER}/warehouse",
}

DRIVER_PORT, BLOCK_PORT = "7078", "7079"
"""Ports of a driver for its executors, and of driver and executors for blocks."""

_EXECUTOR_DEFAULTS: Mapping[str, str] = {
    # fixed ports, so that a NetworkPolicy can name them
    "spark.driver.port": DRIVER_PORT,
    "spark.driver.blockManager.port": BLOCK_PORT,
    "spark.blockManager.port": BLOCK_PORT,
    # the driver needs no permission for objects that it does not create
    "spark.kubernetes.executor.disableConfigMap": "true",
    "spark.kubernetes.driver.service.deleteOnTermination": "false",
    "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
    "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
    "spark.kubernetes.driver.waitToReusePersistentVolumeClaim": "false",
}


def validate_conf(spec: StreamingJobSpec) -> SettingsInvalid | None:
    """Return why a spec's sparkConf cannot be used, or None."""
    for key, value in sorted(spec.spark_conf.items()):
        if why_not := forbidden(key):
            return _rejected(f"sparkConf[{key}] cannot be set: {why_not}")
        wanted, why = FIXED.get(key, (value, ""))
        if value.strip().lower() != wanted.strip().lower():
            return _rejected(f"sparkConf[{key}] is {value!r} but must be {wanted!r}: {why}")
    return None


def forbidden(key: str) -> str:
    """Return why a job cannot set a key of sparkConf, or what to set instead; empty: it can."""
    found = (why for prefix, why in _FORBIDDEN_PREFIXES.items() if key.startswith(prefix))
    return FORBIDDEN.get(key) or next(found, "")


def local_conf(spec: StreamingJobSpec) -> dict[str, str]:
    """Return the settings of a driver without executors."""
    return {**_DEFAULTS, **_user_conf(spec)}


def distributed_conf(job: Job, attempt: int) -> dict[str, str]:
    """Return the settings of a driver with executors, except for the driver's own address."""
    spec, executor = job.spec, job.spec.executor
    ours = {
        "spark.kubernetes.namespace": job.namespace,
        "spark.kubernetes.driver.pod.name": driver_name(job.name, attempt),
        "spark.kubernetes.executor.podNamePrefix": executor_prefix(job.name, attempt),
        "spark.kubernetes.executor.podTemplateFile": f"{TEMPLATE_FOLDER}/{TEMPLATE_NAME}",
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
    return {**_DEFAULTS, **_EXECUTOR_DEFAULTS, **_user_conf(spec), **_EXECUTOR_PROTECTION, **ours}


def _user_conf(spec: StreamingJobSpec) -> dict[str, str]:
    """Return the user's settings without the forbidden ones: an invalid spec may still get a pod."""
    return {
        key: FIXED[key][0] if key in FIXED else value
        for key, value in spec.spark_conf.items()
        if not forbidden(key)
    }


def _rejected(what: str) -> SettingsInvalid:
    return SettingsInvalid(
        what, data=SPEC_REJECTED, do="remove it from sparkConf and apply the resource again"
    )
