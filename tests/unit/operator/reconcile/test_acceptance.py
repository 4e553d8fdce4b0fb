"""Which spec a job runs: the newest valid one, and the same one after an upgrade of the operator."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from sluicegate.settings.epoch import EpochSettings
from sluicegate_operator.api.codec import parse, render
from sluicegate_operator.api.streaming_job import StreamingJobSpec, digest
from sluicegate_operator.api.streaming_job_settings import CheckpointSettings
from sluicegate_operator.api.streaming_job_status import AcceptedSpecStatus, StreamingJobStatus
from sluicegate_operator.reconcile.actions import CreateDriver
from tests.unit.operator.builders import alive, dead, ended, job, observed, pod, spec
from tests.unit.operator.rollback_builders import NO_PROGRESS, STABLE, stable, trial
from tests.unit.operator.rule_cases import RuleCase, action_names, check, condition, decide

OLD_HASH = "of-an-old-release"
"""A digest that this release would not compute: some default or field was another."""

NEW = spec(image="jobs:2")


def accepted(
    its_spec: StreamingJobSpec | None = None, generation: int = 1, **changes: Any
) -> AcceptedSpecStatus:
    """Return an accepted spec whose digest an older release has computed."""
    json_spec = (its_spec or spec()).complete()
    return AcceptedSpecStatus(
        **{"generation": generation, "spec_hash": OLD_HASH, "spec": json_spec, **changes}
    )


def of_old_release(status: StreamingJobStatus, **changes: Any) -> StreamingJobStatus:
    """Return a status that an older release has written."""
    driver = dataclasses.replace(status.driver, spec_hash=OLD_HASH)
    return dataclasses.replace(status, driver=driver, **{"accepted": accepted(), **changes})


OLD_POD = dataclasses.replace(pod(), spec_hash=OLD_HASH)
OLD_DEAD_POD = dataclasses.replace(dead(), spec_hash=OLD_HASH)
WITHOUT_A_FIELD = accepted(spec=json.loads(json.dumps(spec().complete())))
WITHOUT_A_FIELD.spec["driver"].pop("cores")
STABLE_TEXT = {**STABLE.complete(), "fieldOfAnotherRelease": 1}
STABLE_OF_ANOTHER_RELEASE = dataclasses.replace(
    stable(), spec=STABLE_TEXT, spec_hash=digest(STABLE_TEXT)
)

RULES = (
    RuleCase(
        "the first valid spec is accepted",
        job(),
        observed(),
        "Starting",
        ["CreateDriver"],
        {"accepted.generation": 1, "accepted.spec_hash": spec().running_hash()},
    ),
    RuleCase(
        "a release with other defaults restarts nothing",
        job(status=of_old_release(alive())),
        observed(OLD_POD),
        "Running",
    ),
    RuleCase(
        "a driver that dies after that is restarted without an upgrade",
        job(status=of_old_release(alive())),
        observed(OLD_DEAD_POD),
        "Restarting",
        ["RemovePodFinalizer"],
        {"upgrade": None},
        {"spec_hash": OLD_HASH},
        ["DriverFailed"],
    ),
    RuleCase(
        "an edit that no driver sees restarts nothing after such an upgrade either",
        job(spec(progress_deadline_s=700), of_old_release(alive()), generation=2),
        observed(OLD_POD),
        "Running",
        status={"accepted.generation": 2, "accepted.spec_hash": OLD_HASH},
    ),
    RuleCase(
        "a field that the accepted spec does not have yet has its default in both",
        job(
            spec(suspend=False),
            of_old_release(alive(), accepted=WITHOUT_A_FIELD),
            generation=2,
        ),
        observed(OLD_POD),
        "Running",
        status={"accepted.spec_hash": OLD_HASH},
    ),
    RuleCase(
        "an edit that a driver sees is an upgrade",
        job(NEW, of_old_release(alive()), generation=2),
        observed(OLD_POD),
        "Upgrading",
        ["StopDriver"],
        {"accepted.generation": 2, "accepted.spec_hash": NEW.running_hash()},
        events=["Upgrading"],
    ),
    RuleCase(
        "a spec that is too large to be kept is still accepted",
        job(spec(arguments=("x" * (64 << 10),))),
        observed(),
        "Starting",
        ["CreateDriver"],
        {"accepted.spec": {}, "accepted.generation": 1},
    ),
    RuleCase(
        "an edit that no driver sees restarts nothing although the accepted spec was not kept",
        job(
            spec(progress_deadline_s=700),
            alive(accepted=accepted(spec={}, spec_hash=spec().running_hash())),
            generation=2,
        ),
        observed(pod()),
        "Running",
        status={"accepted.generation": 2, "accepted.spec_hash": spec().running_hash()},
    ),
    RuleCase(
        "nor if another release has recorded the last stable spec with another digest",
        job(
            dataclasses.replace(STABLE, progress_deadline_s=700.0),
            alive(
                STABLE,
                accepted=accepted(STABLE, spec_hash=STABLE.running_hash()),
                last_stable_spec=STABLE_OF_ANOTHER_RELEASE,
            ),
            generation=2,
        ),
        observed(pod(STABLE)),
        "Running",
        status={"accepted.spec_hash": STABLE.running_hash()},
    ),
    RuleCase(
        "restoreFrom can be removed without a restart",
        job(
            spec(checkpoint=CheckpointSettings(volume="store")),
            alive(
                spec(checkpoint=CheckpointSettings(volume="store", restore_from="old")),
                restored_from="old",
                last_epoch=3,
            ),
            generation=2,
        ),
        observed(pod()),
        "Running",
        status={"checkpoint.restored_from": "old"},
    ),
    RuleCase(
        "an invalid spec is not accepted, and its driver is left alone",
        job(status=of_old_release(alive(), observed_generation=1), generation=2),
        observed(OLD_POD, spec_error="image is 3"),
        "Running",
        status={"accepted.generation": 1, "observed_generation": 1},
        conditions={"Accepted": ("False", "SpecInvalid")},
    ),
    RuleCase(
        "a driver that dies while the spec is invalid is restarted",
        job(status=of_old_release(ended(next_start_time=1.0)), generation=2),
        observed(spec_error="image is 3"),
        "Starting",
        ["CreateDriver"],
        {"attempt": 2, "accepted.generation": 1},
        {"spec_hash": OLD_HASH},
    ),
    RuleCase(
        "a job is suspended by an invalid spec that says so",
        job(spec(suspend=True), of_old_release(alive()), generation=2),
        observed(OLD_POD, spec_error="image is 3"),
        "Stopping",
        ["StopDriver"],
        events=["Stopping"],
    ),
    RuleCase(
        "a deleted job whose spec is invalid applies its decided epochs by the accepted one",
        job(status=of_old_release(ended(), phase="Deleting"), deleted=True, generation=2),
        observed(spec_error="image is 3"),
        "Deleting",
        ["CreateDriver"],
        driver={"mode": "ApplyOnly"},
    ),
    RuleCase(
        "a field that this release does not know is reported",
        job(status=alive(), ignored_fields=("spec.canary",)),
        observed(pod()),
        "Running",
        conditions={"Accepted": ("True", "UnknownFieldsIgnored")},
    ),
)


@pytest.mark.parametrize("case", RULES, ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


def test_invalid_spec_says_which_one_runs_instead() -> None:
    status = of_old_release(alive())
    outcome = decide(job(status=status, generation=2), observed(OLD_POD, spec_error="image is 3"))
    found = next(one for one in outcome.status.conditions if one.type == "Accepted")
    assert found.message == "the job keeps running the spec of generation 1: image is 3"


def test_driver_that_is_restarted_while_the_spec_is_invalid_runs_the_accepted_one() -> None:
    status = of_old_release(ended(next_start_time=1.0))
    outcome = decide(job(status=status, generation=2), observed(spec_error="image is 3"))
    (created,) = [one for one in outcome.actions if isinstance(one, CreateDriver)]
    assert (created.spec, created.spec_hash) == (spec(), OLD_HASH)


def test_last_stable_spec_of_an_old_release_can_still_be_rolled_back_to() -> None:
    """Its digest is compared with that of its text, whatever this release's defaults are."""
    status = trial(last_stable_spec=STABLE_OF_ANOTHER_RELEASE, trial_start_time=1.0)
    new = spec(image="jobs:2", rollback=STABLE.rollback)
    outcome = decide(job(new, status), observed(pod(new, **NO_PROGRESS)))
    assert outcome.status.rollback is not None
    assert outcome.status.last_stable_spec == STABLE_OF_ANOTHER_RELEASE


@pytest.mark.parametrize("excess", [0, 1])
def test_a_spec_of_up_to_64_kib_is_kept(excess: int) -> None:
    room = (64 << 10) - len(json.dumps(spec(arguments=("",)).complete()))
    wanted = spec(arguments=("x" * (room + excess),))
    kept = decide(job(wanted), observed()).status.accepted.spec
    assert kept == ({} if excess else wanted.complete())


def test_digest_is_the_same_after_the_api_server_has_stored_the_spec() -> None:
    """It writes 180.0 as 180."""
    text = json.loads(json.dumps(spec().complete()).replace(".0,", ","))
    assert digest(text) == digest(spec().complete())


def test_complete_spec_means_the_same_whatever_the_defaults_are() -> None:
    made = spec(epochs=EpochSettings(timeout_s=7))
    assert parse(StreamingJobSpec, made.complete(), "spec") == made
    missing = {"restart", "epochs", "executor", "driver"} - made.complete().keys()
    assert not missing
    assert "progressDeadlineSeconds" not in render(made)


def test_accepted_condition_of_a_valid_spec() -> None:
    assert condition(decide(job(), observed()), "Accepted") == ("True", "SpecValid")
    assert action_names(decide(job(), observed())) == ["CreateDriver"]
