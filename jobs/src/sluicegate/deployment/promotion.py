"""A standby in a pod: it waits until the operator promotes its pod.

The operator promotes it with an annotation, once the driver before it has ended. A watch of one pod
reports that within milliseconds. A volume of the downward API would follow within a kubelet's sync
period, and a record in the checkpoint would have to be polled.
"""

from __future__ import annotations

import http.client
import logging
import os
import time

from sluicegate.deployment.api_server import RequestRejected
from sluicegate.deployment.environment import (
    PROMOTED_ANNOTATION,
    STANDBY_READY_ANNOTATION,
    DriverVariable,
)
from sluicegate.deployment.own_pod import OwnPod
from sluicegate.errors import SettingsInvalid
from sluicegate.settings.schema import NOTHING_STARTED

log = logging.getLogger("sluicegate.standby")

_RETRY_S = 1.0
"""Shortest time between two requests to watch the pod."""


def is_waiting() -> bool:
    """Return whether this process is a standby that has not been promoted."""
    return bool(os.environ.get(DriverVariable.STANDBY))


def await_promotion() -> None:
    """Report that this standby is ready, and wait until it is promoted; it is none afterwards.

    Raises:
        SettingsInvalid: this process does not run in a pod.
    """
    pod = OwnPod.read()
    if pod is None:
        raise SettingsInvalid(
            f"{DriverVariable.STANDBY} is set outside of a pod, where nobody could promote this driver",
            data=NOTHING_STARTED,
            do="unset it; `sluicegate run --standby` starts a standby outside of Kubernetes",
        )
    log.info("the standby is ready")
    reported, failures = False, set[str]()
    while True:
        began = time.monotonic()
        try:
            if not reported:
                pod.annotate(STANDBY_READY_ANNOTATION, "true")
                reported = True
            if any(PROMOTED_ANNOTATION in annotations for annotations in pod.watch_annotations()):
                break
            failures.clear()
        except (OSError, http.client.HTTPException, RequestRejected, ValueError) as error:
            _log_once(error, failures)
        time.sleep(max(0.0, began + _RETRY_S - time.monotonic()))
    log.info("the standby was promoted")
    os.environ.pop(DriverVariable.STANDBY)


def _log_once(error: Exception, failures: set[str]) -> None:
    kind = f"{type(error).__name__} {getattr(error, 'status', '')}"
    if kind in failures:
        return
    failures.add(kind)
    log.warning(
        "the standby cannot watch its pod (%s): %s\n"
        "  data: nothing of the job was read or written; it tries again every second\n"
        "  do: allow the driver's service account to watch and patch pods; check the API server",
        type(error).__name__,
        error,
    )
