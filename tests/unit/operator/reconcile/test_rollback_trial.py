"""What proves a new spec, and what ends its trial: one row for each rule."""

from __future__ import annotations

import dataclasses
import json

import pytest

from sluicegate_operator.api.streaming_job import StreamingJobSpec, digest, seen_by_driver
from sluicegate_operator.api.streaming_job_settings import PodSettings
from sluicegate_operator.api.streaming_job_status import (
    APPLY_ONLY,
    AcceptedSpecStatus,
    UpgradeStatus,
)
from sluicegate_operator.reconcile.observed import Node, Progress
from tests.unit.operator.builders import NOW, alive, dead, job, observed, pod, spec
from tests.unit.operator.rollback_builders import (
    LATE,
    NEW,
    NO_PROGRESS,
    NO_RESTART,
    ON,
    RESTARTED,
    STABLE,
    rolled_back,
    stable,
    terminated,
    trial,
)
from tests.unit.operator.rule_cases import RuleCase, check, decide

OVERDUE = {"trial_start_time": NOW - 300}
"""The deadline of the trial is now."""

RECORDING = (
    RuleCase(
        "an epoch that comes after its rollback has begun does not prove a spec",
        job(NEW, trial(rollback=rolled_back(completed=False), stop_reason="Rollback")),
        observed(pod(NEW, attempt=2, terminating=True)),
        "Upgrading",
        status={"last_stable_spec": stable(), "rollback": rolled_back(completed=False)},
    ),
    RuleCase(
        "a driver that only applies proves no spec",
        job(STABLE, alive(STABLE, mode=APPLY_ONLY, upgrade=UpgradeStatus(mode="LastState"))),
        observed(pod(STABLE, mode=APPLY_ONLY)),
        "Upgrading",
        status={"last_stable_spec": None},
    ),
    RuleCase(
        "later epochs of the last stable spec do not change the status",
        job(STABLE, alive(STABLE, last_stable_spec=stable())),
        observed(pod(STABLE, progress=Progress(NOW - 5, 8))),
        "Running",
        status={"last_stable_spec": stable()},
    ),
    RuleCase(
        "the first epoch of a restored checkpoint is recorded: its Savepoint is no longer needed",
        job(
            STABLE,
            alive(
                STABLE,
                number=2,
                restored_from=LATE,
                last_stable_spec=stable(number=2, restored_from=LATE, last_epoch=None),
            ),
        ),
        observed(pod(STABLE, checkpoint_number=2)),
        "Running",
        status={"last_stable_spec": stable(number=2, restored_from=LATE, last_epoch=7)},
    ),
)

TRIALS = (
    RuleCase(
        "a spec without an epoch is rolled back if its node responds",
        job(NEW, trial(**OVERDUE)),
        observed(pod(NEW, node=Node(), **NO_PROGRESS)),
        "Upgrading",
        ["StopDriver"],
        {"rollback": rolled_back(completed=False)},
        events=["RolledBack", "Stopping"],
    ),
    RuleCase(
        "the node of a driver that has ended does not delay the rollback",
        job(NEW, terminated(trial(**OVERDUE, next_start_time=NOW + 30))),
        observed(dead(1, NEW, node=Node(unresponsive_since=NOW - 9), **NO_PROGRESS)),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"attempt": 3, "rollback": rolled_back()},
        {"spec_hash": STABLE.running_hash()},
        ["RolledBack"],
    ),
    RuleCase(
        "a spec that an upgrade starts again is not rolled back before that",
        job(NEW, trial(**OVERDUE, stop_reason="Upgrade", upgrade=UpgradeStatus(mode="LastState"))),
        observed(pod(NEW, terminating=True, **NO_PROGRESS)),
        "Upgrading",
        status={"rollback": None},
        driver={"stop_reason": "Upgrade"},
    ),
    RuleCase(
        "a changed restartNonce prevents the rollback that is due, and begins another trial",
        job(RESTARTED, trial(**OVERDUE)),
        observed(dead(1, NEW, **NO_PROGRESS)),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"rollback": None, "trial_start_time": NOW},
        {"spec_hash": NEW.running_hash()},
        ["DriverFailed"],
    ),
    RuleCase(
        "the failure of a driver of the last stable spec is none of the new spec",
        job(NO_RESTART, alive(STABLE, last_stable_spec=stable())),
        observed(dead(1, STABLE)),
        "Starting",
        ["CreateDriver", "DeletePod"],
        {"rollback": None, "failure_reason": "", "trial_start_time": NOW},
        {"spec_hash": NO_RESTART.running_hash()},
        ["DriverFailed"],
    ),
)


@pytest.mark.parametrize("case", [*RECORDING, *TRIALS], ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


def test_a_job_returns_to_the_text_of_a_spec_that_an_older_release_accepted() -> None:
    """That release did not know a field, so its digest is another one than this release computes."""
    old = json.loads(json.dumps(STABLE.complete()))
    old["driver"].pop("cores")
    old_hash = digest(seen_by_driver(old))
    accepted = AcceptedSpecStatus(generation=1, spec_hash=old_hash, spec=old)
    driver = dataclasses.replace(pod(STABLE), spec_hash=old_hash)
    kept = decide(job(STABLE, alive(STABLE, accepted=accepted)), observed(driver)).status

    status = trial(last_stable_spec=kept.last_stable_spec)
    outcome = decide(job(NO_RESTART, status, generation=2), observed(dead(1, NEW, **NO_PROGRESS)))
    assert outcome.status.rollback == dataclasses.replace(rolled_back(), reason="DriverFailed")
    assert outcome.status.driver.spec_hash == old_hash


@pytest.mark.parametrize(("size", "kept"), [(8192, True), (8193, False)])
def test_a_last_stable_spec_of_at_most_8_kib_is_kept(size: int, *, kept: bool) -> None:
    padding = size - len(json.dumps(_padded(0).seen_by_driver()))
    wanted = _padded(padding)
    recorded = decide(job(wanted, alive(wanted)), observed(pod(wanted))).status.last_stable_spec
    assert recorded.spec == (wanted.seen_by_driver() if kept else {})


def _padded(size: int) -> StreamingJobSpec:
    return spec(rollback=ON, driver=PodSettings(template={"x": "y" * size}))
