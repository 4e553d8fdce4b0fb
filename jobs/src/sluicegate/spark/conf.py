"""Spark's settings that come from outside: which are refused, how they join ours, what Kubernetes needs.

Pure. Not here: our own settings and the session (`session`). Called by `session`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate.settings.schema import NOTHING_STARTED
from sluicegate.settings.told import CONF_VARIABLE
from sluicegate.tracing.progress import NAME_VARIABLE, NAMESPACE_VARIABLE

KUBERNETES = "k8s://"
"""Begin of a master URL: executors are pods."""

IP_VARIABLE = "SLUICEGATE_POD_IP"

DRIVER_PORT, BLOCKS_PORT = 7078, 7079
"""Where executors reach the driver's pod: the ports that Spark itself takes in cluster mode."""

_ROLE = "spark.kubernetes.executor.label.sluicegate.dev/role"

_CHECKSUM = "spark.sql.shuffle.orderIndependentChecksum"
_STATE = "spark.sql.streaming.stateStore"

_NEEDED: Mapping[str, tuple[str, str]] = {
    "spark.speculation": ("false", "two copies of a task would stage side by side (rule 6)"),
    f"{_CHECKSUM}.enabled": ("true", "a task that is run again may answer otherwise (rule 6)"),
    f"{_CHECKSUM}.enableFullRetryOnMismatch": ("true", "the same (rule 6)"),
    f"{_STATE}.commitValidation.enabled": ("false", "a replayed epoch skips its plan (rule 16)"),
    f"{_STATE}.checkpointFormatVersion": ("1", "a replayed epoch skips its plan (rule 16)"),
    "spark.sql.streaming.triggerAvailableNowWrapper.enabled": (
        "true",
        "what follows a replayed epoch would be left unread",
    ),
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": (
        "false",
        "what a driver leaves that died at its first offsets would be refused for ever",
    ),
    "spark.sql.session.timeZone": ("UTC", "event times are written to sinks as UTC"),
    "spark.submit.deployMode": ("client", "the driver is the pod that the operator made"),
    _ROLE: ("executor", "the operator knows its pods by it"),
}
"""What a setting must be, and why."""

_NOT_HERE: Mapping[str, str] = {
    "spark.master": "the resource says it by executor.instances",
    f"{_STATE}.providerClass": "set epochs.stateBackend",
    "spark.sql.streaming.checkpointFileManagerClass": "the checkpoint's store decides it (rule 1)",
}
"""What is said elsewhere, and where."""

_JOINED: Mapping[str, str] = {
    "spark.jars": ",",
    "spark.driver.extraClassPath": os.pathsep,
    "spark.executor.extraClassPath": os.pathsep,
    "spark.driver.extraJavaOptions": " ",
}
"""Lists, by what separates them: a user's items come behind ours and replace none."""


def check_conf(given: Mapping[str, str]) -> None:
    """Refuse settings with which exactly-once does not hold.

    Args:
        given: those of the environment.

    Raises:
        SettingsInvalid: one breaks a rule of jobs/DESIGN.md, or is said elsewhere.
    """
    for key, value in given.items():
        if key in _NOT_HERE:
            raise _refused(f"{key} is set", f"leave it out: {_NOT_HERE[key]}")
        needed, why = _NEEDED.get(key, (value, ""))
        if value.strip().lower() != needed.strip().lower():
            raise _refused(f"{key} is {value}; it must be {needed}", f"leave it out: {why}")


def joined(ours: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return our settings with the given ones, which win; lists are put together."""
    found = {**ours, **given}
    for key, separator in _JOINED.items():
        if ours.get(key) and given.get(key):
            found[key] = f"{ours[key]}{separator}{given[key]}"
    return found


def on_kubernetes(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what a driver in a pod needs so that its executors are pods too (Spark's client mode).

    How many, of which image and size is said by whoever makes the driver's pod. The API server is
    reached as from any pod: Spark's client reads the service account's files by itself, and again
    when the token has changed, which it does not where it is told of a file
    (spark.kubernetes.authenticate.oauthTokenFile).

    Args:
        environment: of the driver's pod.

    Raises:
        SettingsInvalid: the pod is not named, or its address is not known.
    """
    missing = [
        name
        for name in (IP_VARIABLE, NAME_VARIABLE, NAMESPACE_VARIABLE)
        if not environment.get(name)
    ]
    if missing:
        raise SettingsInvalid(
            f"executors are to be pods, and {' and '.join(missing)} is not set",
            data=NOTHING_STARTED,
            do="give the driver's container its pod's name, namespace and address (downward API)",
        )
    address = environment[IP_VARIABLE]
    return {
        "spark.driver.host": f"[{address}]" if ":" in address else address,
        "spark.driver.bindAddress": "0.0.0.0",  # noqa: S104 - executors come from other nodes
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCKS_PORT),
        # executors belong to the pod: they go when it goes
        "spark.kubernetes.driver.pod.name": environment[NAME_VARIABLE],
        "spark.kubernetes.namespace": environment[NAMESPACE_VARIABLE],
        _ROLE: "executor",
    }


def _refused(what: str, do: str) -> SettingsInvalid:
    return SettingsInvalid(f"{CONF_VARIABLE}: {what}", data=NOTHING_STARTED, do=do)
