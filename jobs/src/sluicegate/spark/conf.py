"""Spark settings from outside: which are rejected, how they merge with ours, what Kubernetes needs."""

from __future__ import annotations

import os
from collections.abc import Mapping

from sluicegate.deployment.environment import DriverVariable
from sluicegate.errors import SettingsInvalid
from sluicegate.settings.schema import NOTHING_STARTED

JARS_VARIABLE = "SLUICEGATE_JARS"
"""A directory of jars that the session loads: Spark's Kafka connector and its dependencies."""

KUBERNETES = "k8s://"
"""Prefix of a master URL whose executors are pods."""

DRIVER_PORT, BLOCKS_PORT = 7078, 7079
"""The ports on which executors reach the driver's pod, as in Spark's own cluster mode."""

_ROLE = "spark.kubernetes.executor.label.sluicegate.dev/role"

_CHECKSUM = "spark.sql.shuffle.orderIndependentChecksum"
_STATE = "spark.sql.streaming.stateStore"

_OTHER_ROWS = "a rerun task may produce other rows (rule 6)"
_SKIPPED_PLAN = "a replayed epoch skips its plan (rule 16)"

REQUIRED: Mapping[str, tuple[str, str]] = {
    "spark.speculation": ("false", "two copies of a task would stage at the same time (rule 6)"),
    # Spark does not know that a rerun Python map may return other rows
    f"{_CHECKSUM}.enabled": ("true", _OTHER_ROWS),
    f"{_CHECKSUM}.enableFullRetryOnMismatch": ("true", _OTHER_ROWS),
    # the earlier attempt has committed the state of a replayed epoch
    f"{_STATE}.commitValidation.enabled": ("false", _SKIPPED_PLAN),
    f"{_STATE}.checkpointFormatVersion": ("1", _SKIPPED_PLAN),
    # SPARK-45178: otherwise a source without support for available-now gets a single epoch, and if
    # that epoch is a replay, the input after it is not read
    "spark.sql.streaming.triggerAvailableNowWrapper.enabled": (
        "true",
        "input after a replayed epoch would not be read",
    ),
    # SPARK-53103: otherwise the temporary file of a driver that dies while it writes its first
    # offsets makes every later start fail; our own log knows whether an epoch was decided
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": (
        "false",
        "after a driver that died at its first offsets, every start would fail",
    ),
    # otherwise the plan is split at its shuffles, and Spark runs all but its last stage before the
    # callback that skips it
    "spark.sql.adaptive.streaming.stateless.enabled": (
        "false",
        "a replayed epoch would run part of its plan (rule 16)",
    ),
    "spark.sql.session.timeZone": ("UTC", "event times are written to sinks as UTC"),
    "spark.submit.deployMode": ("client", "the driver is the pod that the operator created"),
    _ROLE: ("executor", "the operator identifies its pods by it"),
}
"""The only allowed value of a setting, and the reason."""

_SET_ELSEWHERE: Mapping[str, str] = {
    "spark.master": "executor.instances of the resource decides it",
    f"{_STATE}.providerClass": "set epochs.stateBackend",
    "spark.sql.streaming.checkpointFileManagerClass": "the checkpoint's store decides it (rule 1)",
}
"""Settings that are not allowed, and what to use instead."""

_LISTS: Mapping[str, str] = {
    "spark.jars": ",",
    "spark.driver.extraClassPath": os.pathsep,
    "spark.executor.extraClassPath": os.pathsep,
    "spark.driver.extraJavaOptions": " ",
    "spark.executor.extraJavaOptions": " ",
}
"""List settings and their separators: a user's items follow ours and replace none."""


def check_conf(given: Mapping[str, str]) -> None:
    """Reject settings that break a rule of docs/concepts/protocol.md or are set elsewhere."""
    for key, value in given.items():
        if key in _SET_ELSEWHERE:
            raise _invalid(f"{key} is set", f"remove it: {_SET_ELSEWHERE[key]}")
        required, why = REQUIRED.get(key, (value, ""))
        if value.strip().lower() != required.strip().lower():
            raise _invalid(f"{key} is {value}; it must be {required}", f"remove it: {why}")


def merge(ours: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return our settings overridden by the given ones; lists are concatenated."""
    merged = {**ours, **given}
    for key, separator in _LISTS.items():
        if ours.get(key) and given.get(key):
            merged[key] = f"{ours[key]}{separator}{given[key]}"
    return merged


def kubernetes_conf(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a driver in a pod whose executors are pods (Spark's client mode).

    The creator of the driver's pod sets number, image and size of the executors. The API server is
    reached as from any pod: Spark's client reads the files of the service account itself, and again
    after the token has changed. It would not do so if
    spark.kubernetes.authenticate.oauthTokenFile named the file.

    Raises:
        SettingsInvalid: name, namespace or address of the pod is missing.
    """
    needed = DriverVariable.POD_IP, DriverVariable.POD_NAME, DriverVariable.POD_NAMESPACE
    missing = [name for name in needed if not environment.get(name)]
    if missing:
        raise SettingsInvalid(
            f"executors should run in pods, but {' and '.join(missing)} is not set",
            data=NOTHING_STARTED,
            do="give the driver's container its pod's name, namespace and address (downward API)",
        )
    address = environment[DriverVariable.POD_IP]
    return {
        "spark.driver.host": f"[{address}]" if ":" in address else address,
        "spark.driver.bindAddress": "0.0.0.0",  # noqa: S104 - executors connect from other nodes
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCKS_PORT),
        # the pod owns its executors: they are deleted with it
        "spark.kubernetes.driver.pod.name": environment[DriverVariable.POD_NAME],
        "spark.kubernetes.namespace": environment[DriverVariable.POD_NAMESPACE],
        _ROLE: "executor",
    }


def _invalid(what: str, do: str) -> SettingsInvalid:
    return SettingsInvalid(f"{DriverVariable.SPARK_CONF}: {what}", data=NOTHING_STARTED, do=do)
