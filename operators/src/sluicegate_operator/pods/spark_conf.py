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
from sluicegate_operator.api import spark_properties
from sluicegate_operator.api.fields import SPEC_REJECTED
from sluicegate_operator.api.labels import EXECUTOR
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_settings import PodSettings
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
    found = (spark_properties.problem(*item) for item in sorted(spec.spark_conf.items()))
    what = next(filter(None, found), "")
    return _rejected(what) if what else None


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
        key: spark_properties.FIXED[key][0] if key in spark_properties.FIXED else value
        for key, value in spec.spark_conf.items()
        if not spark_properties.forbidden(key)
    }


def _rejected(what: str) -> SettingsInvalid:
    return SettingsInvalid(
        what, data=SPEC_REJECTED, do="remove it from sparkConf and apply the resource again"
    )
