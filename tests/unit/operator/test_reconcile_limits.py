"""Limits of a driver that has not ended, and nodes that are silent: one row a rule."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sluicegate_operator.reconcile.observed import Node, Progress
from sluicegate_operator.resources.job import LostNode, StartSettings

from .made import (
    NOW,
    alive,
    asked,
    dead,
    job,
    pod,
    spec,
    view,
)
from .rows import BACKOFF, Row, check, failures, strategy

STATELESS = spec(stateful=False)
TOLD = spec(lost_node=LostNode(stateful="restart"))
SILENT = Node(silent_since=NOW - 61)

NO_IMAGE: dict[str, Any] = {
    "phase": "Pending",
    "running_at": None,
    "progress": None,
    "waiting": "ImagePullBackOff",
    "node": Node(),
}
NO_NODE: dict[str, Any] = {"phase": "Pending", "running_at": None, "progress": None}
PATIENT = spec(
    start=StartSettings(scheduling_timeout_s=100, scheduling_attempts=1, image_attempts=1)
)

LIMITS = (
    Row(
        "a driver without progress is stuck, and stopped",
        job(status=alive()),
        view(pod(created_at=NOW - 999, running_at=NOW - 900, progress=Progress(NOW - 601, 7))),
        "Stopping",
        ["StopDriver"],
        driver={"stopping": "stuck"},
        reports=["Stuck"],
    ),
    Row(
        "one that never made an epoch is stuck too",
        job(status=alive()),
        view(pod(running_at=NOW - 601, progress=None)),
        "Stopping",
        ["StopDriver"],
        driver={"stopping": "stuck"},
        reports=["Stuck"],
    ),
    Row(
        "being stuck is the application's failure, whatever the exit code",
        job(strategy(restart="none"), alive(strategy(), stopping="stuck")),
        view(dead(0, terminating=True)),
        "Failed",
        ["ReleasePod"],
        {"failed": "Stuck"},
        reports=["Stuck"],
    ),
    Row(
        "a limit of 0 is none",
        job(spec(stuck_after_s=0), alive()),
        view(pod(running_at=NOW - 99999, progress=None)),
        "Running",
    ),
    Row(
        "a stop that was not seen is asked for again",
        job(status=alive(stopping="stuck")),
        view(pod()),
        "Stopping",
        ["StopDriver"],
    ),
    Row(
        "a stop that was seen is waited for",
        job(status=alive(stopping="stuck")),
        view(pod(terminating=True)),
        "Stopping",
    ),
    Row(
        "an image is waited for, a time",
        job(status=asked()),
        view(pod(**NO_IMAGE, created_at=NOW - 299)),
        "Starting",
        wake=1,
    ),
    Row(
        "then the pod is given up",
        job(status=asked()),
        view(pod(**NO_IMAGE, created_at=NOW - 300)),
        "Stopping",
        ["StopDriver"],
        driver={"stopping": "image"},
        reports=["ImageNotPulled"],
    ),
    Row(
        "an image has its own budget",
        job(strategy(restart="none"), alive(stopping="image")),
        view(dead(None, running_at=None)),
        "Restarting",
        ["ReleasePod"],
        BACKOFF,
        reports=["ImageNotPulled"],
    ),
    Row(
        "which can be spent",
        job(PATIENT, alive(PATIENT, stopping="image", failures=failures("image", 1))),
        view(dead(None, PATIENT, running_at=None)),
        "Failed",
        ["ReleasePod"],
        {"failed": "ImageNotPulled"},
        reports=["ImageNotPulled"],
    ),
    Row(
        "a pod without a node waits for ever by default",
        job(status=asked()),
        view(pod(**NO_NODE, created_at=NOW - 99999)),
        "Starting",
    ),
    Row(
        "or a time",
        job(PATIENT, asked(PATIENT)),
        view(pod(PATIENT, **NO_NODE, created_at=NOW - 100)),
        "Stopping",
        ["StopDriver"],
        driver={"stopping": "scheduling"},
        reports=["NotScheduled"],
    ),
    Row(
        "a pod that is deleted before a node has taken it will never run",
        job(PATIENT, alive(PATIENT, stopping="scheduling")),
        view(pod(PATIENT, **NO_NODE, terminating=True)),
        "Restarting",
        ["ReleasePod"],
        BACKOFF,
        reports=["NotScheduled"],
    ),
    Row(
        "scheduling has its own budget",
        job(PATIENT, alive(PATIENT, stopping="scheduling", failures=failures("image", 1))),
        view(dead(None, PATIENT, running_at=None)),
        "Restarting",
        ["ReleasePod"],
        BACKOFF,
        reports=["NotScheduled"],
    ),
)

LOST = (
    Row(
        "a stateless job waits a while for a silent node",
        job(STATELESS, alive(STATELESS)),
        view(pod(STATELESS, node=Node(silent_since=NOW - 10))),
        "Running",
        wake=50,
        conditions={"NodeLost": ("True", "NodeLost"), "Ready": ("False", "NodeLost")},
    ),
    Row(
        "then it is replaced; the status names the attempt that may be alive",
        job(STATELESS, alive(STATELESS)),
        view(pod(STATELESS, node=SILENT)),
        "Starting",
        ["CreateDriver", "StopDriver"],
        {"attempt": 2, "may_be_alive": (1,)},
        reports=["NodeLost"],
        conditions={"NodeLost": ("True", "NodeLost")},
    ),
    Row(
        "a stateful job waits for proof, however long",
        job(status=alive()),
        view(pod(node=Node(silent_since=NOW - 99999))),
        "Running",
        status={"attempt": 1},
        conditions={"NodeLost": ("True", "NodeLost")},
    ),
    Row(
        "unless it is told",
        job(TOLD, alive(TOLD)),
        view(pod(TOLD, node=SILENT)),
        "Starting",
        ["CreateDriver", "StopDriver"],
        {"attempt": 2},
        reports=["NodeLost"],
    ),
    Row(
        "a node that was deleted is proof",
        job(status=alive()),
        view(pod(node=Node(silent_since=NOW - 9, gone=True))),
        "Restarting",
        ["ReleasePod"],
        BACKOFF,
        reports=["Disrupted"],
    ),
    Row(
        "so is the out-of-service taint",
        job(status=alive()),
        view(pod(node=Node(silent_since=NOW - 9, out_of_service=True))),
        "Restarting",
        ["ReleasePod"],
        BACKOFF,
        reports=["Disrupted"],
    ),
    Row(
        "a driver that was given up is forgotten when it is seen dead",
        job(STATELESS, dataclasses.replace(alive(STATELESS), attempt=2, may_be_alive=(1,))),
        view(pod(STATELESS, attempt=2), dead(65, STATELESS, attempt=1)),
        "Running",
        ["DropPod"],
        {"may_be_alive": ()},
    ),
    Row(
        "and not because an old view does not show it",
        job(STATELESS, dataclasses.replace(alive(STATELESS), attempt=2, may_be_alive=(1,))),
        view(pod(STATELESS, attempt=2), as_of=NOW - 90),
        "Running",
        status={"may_be_alive": (1,)},
    ),
)


@pytest.mark.parametrize("row", [*LIMITS, *LOST], ids=lambda row: row.rule)
def test_rule(row: Row) -> None:
    check(row)
