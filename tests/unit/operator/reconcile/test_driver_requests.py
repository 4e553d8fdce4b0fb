"""Requests for a driver's pod: when one is repeated, and what the driver runs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_status import (
    APPLY_ONLY,
    StreamingJobStatus,
    UpgradeStatus,
)
from sluicegate_operator.reconcile.actions import CreateDriver
from sluicegate_operator.reconcile.observed import Job, Observed, Pod
from tests.unit.operator.builders import NOW, alive, dead, job, observed, pod, requested, spec
from tests.unit.operator.rollback_builders import NEW, STABLE, rolled_back, stable, trial
from tests.unit.operator.rule_cases import RuleCase, check, decide

STATELESS = spec(image="jobs:2", upgrade_mode="Stateless")
UPGRADE_STATELESS = UpgradeStatus(mode="Stateless")
DELETING: dict[str, Any] = {"stop_reason": "Delete", "phase": "Deleting"}


def with_driver(status: StreamingJobStatus, **changes: Any) -> StreamingJobStatus:
    """Return a status with other fields of the driver."""
    return dataclasses.replace(status, driver=dataclasses.replace(status.driver, **changes))


REQUESTS = (
    RuleCase(
        "a driver whose pod vanished is not given up within 30 s of the request for it",
        job(status=with_driver(alive(), request_time=NOW - 10)),
        observed(),
        "Starting",
        driver={"state": "Active"},
        requeue_in=20,
    ),
    RuleCase(
        "Stateless: an apply-only driver whose pod does not appear is requested again",
        job(
            STATELESS,
            with_driver(
                requested(upgrade=UPGRADE_STATELESS, all_epochs_applied=False), mode=APPLY_ONLY
            ),
        ),
        observed(as_of=NOW + 9),
        "Upgrading",
        ["CreateDriver"],
        {"attempt": 1, "checkpoint.number": 1},
        {"mode": APPLY_ONLY, "requests": 2},
    ),
    RuleCase(
        "a pod of the last stable spec that does not exist yet is requested with the new spec",
        job(NEW, requested(STABLE, attempt=2, last_stable_spec=stable())),
        observed(as_of=NOW + 9),
        "Starting",
        ["CreateDriver"],
        {"attempt": 2},
        {"spec_hash": NEW.running_hash()},
    ),
    RuleCase(
        "a request without a time in the status counts as one of now",
        job(status=with_driver(requested(), request_time=None)),
        observed(),
        "Starting",
        driver={"state": "Requested", "request_time": NOW},
        requeue_in=5,
    ),
    RuleCase(
        "a job that has requested no driver has no time of a request",
        job(spec(suspend=True)),
        observed(),
        "Suspended",
        driver={"request_time": None},
    ),
    RuleCase(
        "the status says since when a driver is being stopped",
        job(spec(suspend=True), alive()),
        observed(pod()),
        "Stopping",
        ["StopDriver"],
        driver={"stop_time": NOW},
        events=["Stopping"],
    ),
)


@pytest.mark.parametrize("case", REQUESTS, ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


def killed(wanted: StreamingJobSpec, attempt: int) -> Pod:
    """Return the pod of a stopped driver that may have left a decided epoch."""
    return dead(137, wanted, attempt=attempt, terminating=True)


def created(given: Job, seen: Observed) -> CreateDriver:
    """Return the only request for a driver."""
    (found,) = [one for one in decide(given, seen).actions if isinstance(one, CreateDriver)]
    return found


@pytest.mark.parametrize(
    ("given", "ended", "runs"),
    [
        (job(NEW, trial(**DELETING), deleted=True), killed(NEW, 2), NEW),
        (
            job(
                NEW,
                trial(
                    stop_reason="Rollback",
                    phase="Deleting",
                    rollback=rolled_back(completed=False),
                ),
                deleted=True,
            ),
            killed(NEW, 2),
            NEW,
        ),
        (
            job(
                STABLE,
                alive(STABLE, **DELETING, last_stable_spec=dataclasses.replace(stable(), spec={})),
                deleted=True,
            ),
            killed(STABLE, 1),
            STABLE,
        ),
    ],
    ids=["on trial", "being rolled back", "too large to be kept"],
)
def test_an_apply_only_driver_of_a_deleted_job_runs_the_spec_that_decided(
    given: Job, ended: Pod, runs: StreamingJobSpec
) -> None:
    """Another spec may have other sinks."""
    driver = created(given, observed(ended))
    assert (driver.mode, driver.spec, driver.spec_hash) == (APPLY_ONLY, runs, runs.running_hash())


def test_an_apply_only_driver_runs_the_new_spec_if_the_one_that_decided_is_unknown() -> None:
    status = alive(stop_reason="Upgrade", upgrade=UPGRADE_STATELESS)
    driver = created(job(STATELESS, status), observed(killed(spec(), 1)))
    assert (driver.mode, driver.spec) == (APPLY_ONLY, STATELESS)
    assert driver.spec_hash == STATELESS.running_hash()


def test_an_apply_only_driver_needs_no_savepoint() -> None:
    """A checkpoint that was not restored yet has nothing to apply."""
    status = alive(**DELETING, restored_from="moved")
    driver = created(job(status=status, deleted=True), observed(killed(spec(), 1)))
    assert (driver.mode, driver.restore_from) == (APPLY_ONLY, "")


@pytest.mark.parametrize(
    ("status", "pods", "phase"),
    [
        (requested(), (), "Starting"),
        (alive(), (pod(promoted=True),), "Running"),
    ],
    ids=["requested", "promoted"],
)
def test_a_status_without_the_time_of_the_request_can_be_reconciled(
    status: StreamingJobStatus, pods: tuple[Pod, ...], phase: str
) -> None:
    edited = with_driver(status, request_time=None)
    assert decide(job(status=edited), observed(*pods)).status.phase == phase
