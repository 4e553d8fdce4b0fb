"""Which Spark properties a job may not set, or only to one value, and why.

The API server evaluates `RULES`. The operator evaluates `problem`, because a stored resource may be older.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sluicegate_operator.api.fields import Rule

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
    "spark.local.dir": "replace the volume at /var/tmp in the pods' templates",
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


def forbidden(key: str) -> str:
    """Return why a job cannot set a Spark property, or what to set instead; empty: it can."""
    found = (why for prefix, why in _FORBIDDEN_PREFIXES.items() if key.startswith(prefix))
    return FORBIDDEN.get(key) or next(found, "")


def problem(key: str, value: str) -> str:
    """Return why a job cannot set a Spark property to a value; empty: it can."""
    if why_not := forbidden(key):
        return f"sparkConf[{key}] cannot be set: {why_not}"
    wanted, why = FIXED.get(key, (value, ""))
    if value.strip().lower() != wanted.strip().lower():
        return f"sparkConf[{key}] is {value!r} but must be {wanted!r}: {why}"
    return ""


def _rules() -> Iterator[Rule]:
    """Yield a rule for each property: its message names the property, and the API server limits its cost.

    They are rules of `sparkConf`. As rules of the spec they cost a tenth of the API server's CPU time: to
    evaluate `self.sparkConf` it makes a map of all fields of the spec, also for a write of the status.
    """
    for key, why in FORBIDDEN.items():
        yield Rule(f"!({key!r} in self)", f"sparkConf[{key}] cannot be set: {why}")
    for prefix, why in _FORBIDDEN_PREFIXES.items():
        yield Rule(
            f"!self.exists(key, key.startsWith({prefix!r}))",
            f"properties of sparkConf that begin with {prefix} cannot be set: {why}",
        )
    for key, (value, why) in FIXED.items():
        yield Rule(
            f"!({key!r} in self) || self[{key!r}].trim().lowerAscii() == {value!r}",
            f"sparkConf[{key}] must be {value!r}: {why}",
        )


RULES = tuple(_rules())
