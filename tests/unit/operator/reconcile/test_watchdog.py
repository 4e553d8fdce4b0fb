"""Deadlines of a driver, and lost nodes: one row for each rule."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sluicegate_operator.api.streaming_job_settings import NodeLostSettings, StartupSettings
from sluicegate_operator.reconcile.observed import Node, Progress
from tests.unit.operator.builders import (
    BACKOFF,
    NOW,
    alive,
    dead,
    failures,
    job,
    observed,
    pod,
    requested,
    spec,
    with_restart,
)
from tests.unit.operator.rule_cases import RuleCase, check

STATELESS = spec(stateful=False)
STATEFUL_RESTART = spec(node_lost=NodeLostSettings(stateful_policy="Restart"))
UNRESPONSIVE = Node(unresponsive_since=NOW - 61)

NO_IMAGE: dict[str, Any] = {
    "phase": "Pending",
    "running_at": None,
    "progress": None,
    "waiting": "ImagePullBackOff",
    "node": Node(),
}
NO_NODE: dict[str, Any] = {"phase": "Pending", "running_at": None, "progress": None}
WITH_DEADLINES = spec(
    startup=StartupSettings(scheduling_timeout_s=100, scheduling_attempts=1, image_pull_attempts=1)
)

DEADLINES = (
    RuleCase(
        "a driver without progress is stuck and is stopped",
        job(status=alive()),
        observed(pod(seen_at=NOW - 999, running_at=NOW - 900, progress=Progress(NOW - 601, 7))),
        "Stopping",
        ["StopDriver"],
        driver={"stop_reason": "Stuck"},
        events=["Stuck"],
    ),
    RuleCase(
        "a driver that never made an epoch can be stuck too",
        job(status=alive()),
        observed(pod(running_at=NOW - 601, progress=None)),
        "Stopping",
        ["StopDriver"],
        driver={"stop_reason": "Stuck"},
        events=["Stuck"],
    ),
    RuleCase(
        "a stuck driver counts as a failure whatever its exit code",
        job(with_restart(restart="none"), alive(with_restart(), stop_reason="Stuck")),
        observed(dead(0, terminating=True)),
        "Failed",
        ["RemovePodFinalizer"],
        {"failure_reason": "Stuck"},
        events=["Stuck"],
    ),
    RuleCase(
        "the deadline counts from the progress that a driver may have made after its last report",
        job(status=alive()),
        observed(
            pod(running_at=NOW - 900, progress=Progress(NOW - 659, 7), progress_interval_s=60)
        ),
        "Running",
    ),
    RuleCase(
        "a deadline shortened below three reports of a running driver does not stop it",
        job(spec(progress_deadline_s=30), alive()),
        observed(
            pod(running_at=NOW - 900, progress=Progress(NOW - 179, 7), progress_interval_s=60)
        ),
        "Running",
    ),
    RuleCase(
        "three missed reports of a running driver are enough for a shortened deadline",
        job(spec(progress_deadline_s=30), alive()),
        observed(
            pod(running_at=NOW - 900, progress=Progress(NOW - 181, 7), progress_interval_s=60)
        ),
        "Stopping",
        ["StopDriver"],
        driver={"stop_reason": "Stuck"},
        events=["Stuck"],
    ),
    RuleCase(
        "a progress deadline of 0 means none",
        job(spec(progress_deadline_s=0), alive()),
        observed(pod(running_at=NOW - 99999, progress=None)),
        "Running",
    ),
    RuleCase(
        "a stop that was not observed is requested again",
        job(status=alive(stop_reason="Stuck")),
        observed(pod()),
        "Stopping",
        ["StopDriver"],
    ),
    RuleCase(
        "a stop that was observed is waited for",
        job(status=alive(stop_reason="Stuck")),
        observed(pod(terminating=True)),
        "Stopping",
    ),
    RuleCase(
        "a missing image is waited for until its deadline",
        job(status=requested()),
        observed(pod(**NO_IMAGE, seen_at=NOW - 299)),
        "Starting",
        events=["ImagePullBackOff"],
        requeue_in=1,
    ),
    RuleCase(
        "a pod whose image is missing too long is stopped",
        job(status=requested()),
        observed(pod(**NO_IMAGE, seen_at=NOW - 300)),
        "Stopping",
        ["StopDriver"],
        driver={"stop_reason": "Image"},
        events=["ImageNotPulled", "ImagePullBackOff"],
    ),
    RuleCase(
        "a missing image uses its own budget",
        job(with_restart(restart="none"), alive(stop_reason="Image")),
        observed(dead(None, running_at=None)),
        "Restarting",
        ["RemovePodFinalizer"],
        BACKOFF,
        events=["ImageNotPulled"],
    ),
    RuleCase(
        "the budget for missing images can be used up",
        job(
            WITH_DEADLINES,
            alive(WITH_DEADLINES, stop_reason="Image", failures=failures("Image", 1)),
        ),
        observed(dead(None, WITH_DEADLINES, running_at=None)),
        "Failed",
        ["RemovePodFinalizer"],
        {"failure_reason": "ImageNotPulled"},
        events=["ImageNotPulled"],
    ),
    RuleCase(
        "an unscheduled pod waits forever by default",
        job(status=requested()),
        observed(pod(**NO_NODE, seen_at=NOW - 99999)),
        "Starting",
    ),
    RuleCase(
        "an unscheduled pod is stopped after the deadline in the spec",
        job(WITH_DEADLINES, requested(WITH_DEADLINES)),
        observed(pod(WITH_DEADLINES, **NO_NODE, seen_at=NOW - 100)),
        "Stopping",
        ["StopDriver"],
        driver={"stop_reason": "Scheduling"},
        events=["NotScheduled"],
    ),
    RuleCase(
        "a pod that is deleted before it was scheduled will never run",
        job(WITH_DEADLINES, alive(WITH_DEADLINES, stop_reason="Scheduling")),
        observed(pod(WITH_DEADLINES, **NO_NODE, terminating=True)),
        "Restarting",
        ["RemovePodFinalizer"],
        BACKOFF,
        events=["NotScheduled"],
    ),
    RuleCase(
        "scheduling uses its own budget",
        job(
            WITH_DEADLINES,
            alive(WITH_DEADLINES, stop_reason="Scheduling", failures=failures("Image", 1)),
        ),
        observed(dead(None, WITH_DEADLINES, running_at=None)),
        "Restarting",
        ["RemovePodFinalizer"],
        BACKOFF,
        events=["NotScheduled"],
    ),
)

LOST_NODES = (
    RuleCase(
        "a stateless job waits for a lost node until the deadline",
        job(STATELESS, alive(STATELESS)),
        observed(pod(STATELESS, node=Node(unresponsive_since=NOW - 10))),
        "Running",
        requeue_in=50,
        conditions={"NodeLost": ("True", "NodeLost"), "Ready": ("False", "NodeLost")},
    ),
    RuleCase(
        "after the deadline it is replaced and its attempt is recorded as unconfirmed",
        job(STATELESS, alive(STATELESS)),
        observed(pod(STATELESS, node=UNRESPONSIVE)),
        "Starting",
        ["CreateDriver", "StopDriver"],
        {"attempt": 2, "unconfirmed_attempts": (1,)},
        events=["NodeLost"],
        conditions={"NodeLost": ("True", "NodeLost")},
    ),
    RuleCase(
        "a stateful job waits for confirmation without a deadline",
        job(status=alive()),
        observed(pod(node=Node(unresponsive_since=NOW - 99999))),
        "Running",
        status={"attempt": 1},
        conditions={"NodeLost": ("True", "NodeLost")},
    ),
    RuleCase(
        "a stateful job with statefulPolicy Restart is replaced",
        job(STATEFUL_RESTART, alive(STATEFUL_RESTART)),
        observed(pod(STATEFUL_RESTART, node=UNRESPONSIVE)),
        "Starting",
        ["CreateDriver", "StopDriver"],
        {"attempt": 2},
        events=["NodeLost"],
    ),
    RuleCase(
        "a deleted node confirms that the driver is dead",
        job(status=alive()),
        observed(pod(node=Node(unresponsive_since=NOW - 9, gone=True))),
        "Restarting",
        ["RemovePodFinalizer"],
        BACKOFF,
        events=["Disrupted"],
    ),
    RuleCase(
        "the out-of-service taint confirms that the driver is dead",
        job(status=alive()),
        observed(pod(node=Node(unresponsive_since=NOW - 9, out_of_service=True))),
        "Restarting",
        ["RemovePodFinalizer"],
        BACKOFF,
        events=["Disrupted"],
    ),
    RuleCase(
        "an unconfirmed attempt is dropped when its pod is observed dead",
        job(STATELESS, dataclasses.replace(alive(STATELESS), attempt=2, unconfirmed_attempts=(1,))),
        observed(pod(STATELESS, attempt=2), dead(65, STATELESS, attempt=1)),
        "Running",
        ["DeletePod"],
        {"unconfirmed_attempts": ()},
    ),
    RuleCase(
        "an unconfirmed attempt is not dropped because a stale cache lacks its pod",
        job(STATELESS, dataclasses.replace(alive(STATELESS), attempt=2, unconfirmed_attempts=(1,))),
        observed(pod(STATELESS, attempt=2), as_of=NOW - 90),
        "Running",
        status={"unconfirmed_attempts": (1,)},
    ),
)


@pytest.mark.parametrize("case", [*DEADLINES, *LOST_NODES], ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)
