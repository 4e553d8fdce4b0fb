"""What a Savepoint waits for, and drivers that it leaves alone: one row for each rule."""

from __future__ import annotations

import dataclasses

import pytest

from sluicegate_operator.reconcile.observed import Job, Savepoint, SavepointObserved
from tests.unit.operator.builders import NOW, alive
from tests.unit.operator.rule_cases import AnyOutcome, RuleCase, check, decide, started_tasks
from tests.unit.operator.savepoint_builders import (
    OF_AN_UPGRADE,
    STOP,
    UPGRADING,
    job,
    observed,
    savepoint,
    spec,
    store,
    taking,
)

COLD = spec(volume="cold")
NOT_STARTED = dataclasses.replace(
    alive(), driver=dataclasses.replace(alive().driver, start_time=None)
)
"""The pod of the driver exists, and its container does not run yet."""

WAITING = (
    RuleCase(
        "a job that was deleted during an attempt is waited for with the chosen volume",
        savepoint(status=taking(volume="store")),
        SavepointObserved(volumes={"store": store()}),
        "Pending",
        conditions={"Ready": ("False", "JobMissing")},
    ),
    RuleCase(
        "the Savepoint of an earlier job does not copy a later job of the same name",
        savepoint(job_uid="u-old"),
        observed(),
        "Pending",
        conditions={"Ready": ("False", "JobMissing")},
    ),
    RuleCase(
        "the volume of the job is waited for although that of the savepoint exists",
        savepoint(COLD),
        observed(None, store("cold")),
        "Pending",
        conditions={"Ready": ("False", "VolumeMissing")},
    ),
    RuleCase(
        "a volume that was deleted during an attempt is waited for",
        savepoint(COLD, taking(volume="cold")),
        observed(),
        "Pending",
        conditions={"Ready": ("False", "VolumeMissing")},
    ),
    RuleCase(
        "a job whose volume does not exist yet is not reported as missing",
        savepoint(),
        SavepointObserved(job=job()),
        "Pending",
        conditions={"Ready": ("False", "VolumeMissing")},
    ),
    RuleCase(
        "stop: a driver whose container does not run yet is waited for",
        savepoint(STOP),
        observed(job(NOT_STARTED)),
        "Pending",
        conditions={"Ready": ("False", "JobUnsettled")},
    ),
)


@pytest.mark.parametrize("case", WAITING, ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


@pytest.mark.parametrize(
    ("waiting", "missing"),
    [(savepoint(COLD), "cold"), (savepoint(status=taking(volume="old")), "old")],
    ids=["spec", "status"],
)
def test_the_condition_names_the_volume_that_does_not_exist(
    waiting: Savepoint, missing: str
) -> None:
    message = _ready_message(decide(waiting, observed()))
    assert message == f"there is no CheckpointVolume {missing}"


@pytest.mark.parametrize(
    "found",
    [None, job(UPGRADING, deleted=True), job(alive())],
    ids=["no job", "deleted job", "no upgrade"],
)
def test_the_savepoint_of_an_upgrade_seals_nothing_once_the_upgrade_is_gone(
    found: Job | None,
) -> None:
    known = SavepointObserved(job=found, volumes={"store": store()})
    outcome = decide(savepoint(STOP, taking(volume="store"), **OF_AN_UPGRADE), known)
    assert not started_tasks(outcome)


def test_a_savepoint_that_nobody_waits_for_does_not_give_an_earlier_error_as_the_reason() -> None:
    before = taking(attempts=1, next_retry_time=NOW - 1, last_error="no; mend it")
    outcome = decide(savepoint(STOP, before, **OF_AN_UPGRADE), observed())
    assert "no; mend it" not in _ready_message(outcome)


def _ready_message(outcome: AnyOutcome) -> str:
    (message,) = [one.message for one in outcome.status.conditions if one.type == "Ready"]
    return str(message)
