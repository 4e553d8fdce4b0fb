"""When an upgrade begins, and when a changed spec needs none: one row for each rule."""

from __future__ import annotations

import pytest

from sluicegate_operator.api.schedule import RunSchedule
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_status import APPLY_ONLY, StreamingJobStatus
from sluicegate_operator.reconcile.actions import EmitEvent
from tests.unit.operator.builders import NOW, alive, ended, job, observed, pod, requested, spec
from tests.unit.operator.rule_cases import RuleCase, check, decide

NEW = spec(image="jobs:2")
BY_SAVEPOINT = spec(image="jobs:2", upgrade_mode="Savepoint")
STATELESS = spec(image="jobs:2", upgrade_mode="Stateless")
SCHEDULE = RunSchedule(cron="0 * * * *")
HOURLY = spec(trigger="Once", schedule=SCHEDULE)
NEW_HOURLY = spec(trigger="Once", schedule=SCHEDULE, image="jobs:2")

NO_UPGRADE = (
    RuleCase(
        "a new job has no checkpoint that upgradeMode Stateless could leave",
        job(STATELESS),
        observed(),
        "Starting",
        ["CreateDriver"],
        {"attempt": 1, "checkpoint.number": 1, "upgrade": None},
    ),
    RuleCase(
        "neither has a job whose first pod does not exist yet: it is requested with the new spec",
        job(STATELESS, requested()),
        observed(as_of=NOW + 9),
        "Starting",
        ["CreateDriver"],
        {"attempt": 1, "checkpoint.number": 1, "upgrade": None},
        {"spec_hash": STATELESS.running_hash()},
    ),
    RuleCase(
        "LastState: a later pod that does not exist yet is requested with the new spec too",
        job(NEW, requested(attempt=2, last_epoch=9)),
        observed(as_of=NOW + 9),
        "Starting",
        ["CreateDriver"],
        {"attempt": 2, "checkpoint.number": 1, "upgrade": None},
        {"spec_hash": NEW.running_hash()},
    ),
    RuleCase(
        "a run of a schedule completes with the spec that it began with",
        job(NEW_HOURLY, alive(HOURLY, last_schedule_time=NOW)),
        observed(pod(HOURLY)),
        "Running",
        status={"attempt": 1, "upgrade": None},
        driver={"stop_reason": ""},
    ),
    RuleCase(
        "a failed run of a schedule continues with the new spec",
        job(
            NEW_HOURLY,
            ended(HOURLY, last_schedule_time=NOW, failure_reason="SettingsRefused"),
        ),
        observed(),
        "Starting",
        ["CreateDriver"],
        {"attempt": 2, "last_schedule_time": NOW, "finished": False},
    ),
    RuleCase(
        "an adopted driver that applies decided epochs is not stopped for the new spec",
        job(NEW, StreamingJobStatus()),
        observed(pod(mode=APPLY_ONLY)),
        "Running",
        status={"upgrade": None},
        driver={"mode": APPLY_ONLY, "stop_reason": ""},
        events=["Adopted"],
    ),
)


@pytest.mark.parametrize("case", NO_UPGRADE, ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


@pytest.mark.parametrize(
    ("new_spec", "mode"),
    [(NEW, "LastState"), (BY_SAVEPOINT, "LastState"), (STATELESS, "Stateless")],
    ids=["LastState", "Savepoint", "Stateless"],
)
def test_the_event_says_what_becomes_of_the_checkpoint_of_a_driver_that_never_ran(
    new_spec: StreamingJobSpec, mode: str
) -> None:
    waiting = pod(phase="Pending", running_at=None, progress=None)
    outcome = decide(job(new_spec, requested()), observed(waiting))
    (event,) = [one for one in outcome.actions if isinstance(one, EmitEvent)]
    assert (event.reason, mode in event.message) == ("Upgrading", True)
