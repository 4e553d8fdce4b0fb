"""Deletion of jobs that ended `ttlSecondsAfterFinished` ago: one row for each rule."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_status import (
    APPLY_ONLY,
    StreamingJobStatus,
    UpgradeStatus,
)
from sluicegate_operator.reconcile.observed import Node, Observed, SavepointState
from sluicegate_operator.reconcile.streaming_job.reconciler import reconcile_job
from tests.unit.operator.builders import NOW, alive, dead, ended, failures, job, observed, pod, spec
from tests.unit.operator.rollback_builders import LATE
from tests.unit.operator.rule_cases import RuleCase, action_names, check, decide

TTL_S = 60
BATCH: dict[str, Any] = {"trigger": "Once", "ttl_seconds_after_finished": TTL_S}
EXPIRING = spec(**BATCH)
STREAM = spec(ttl_seconds_after_finished=TTL_S)
CURRENT = observed()
UNSEEN = observed(pod(attempt=0, terminating=True, node=Node(unresponsive_since=NOW - 600)))
AT_ONCE = spec(trigger="Once", ttl_seconds_after_finished=0)
UNFINISHED = observed(pod(AT_ONCE))
GIVEN_UP = observed(savepoints={LATE: SavepointState("Failed", "no")})
INVALID = observed(spec_error="the image is missing")


def settled(
    wanted: StreamingJobSpec,
    seen: Observed,
    attempt: Callable[..., StreamingJobStatus] = ended,
    **changes: Any,
) -> StreamingJobStatus:
    """Return the status that reconciliations before the expiry have left."""
    status = attempt(wanted, all_epochs_applied=attempt is ended, **changes)
    before = job(dataclasses.replace(wanted, ttl_seconds_after_finished=None), status)
    return reconcile_job(before, seen, NOW).status


def finished(
    ago_s: float, wanted: StreamingJobSpec = EXPIRING, seen: Observed = CURRENT
) -> StreamingJobStatus:
    """Return the settled status of a batch that finished some time ago."""
    return settled(wanted, seen, finished=True, finish_time=NOW - ago_s)


def failed(ago_s: float, seen: Observed = CURRENT, **changes: Any) -> StreamingJobStatus:
    """Return the settled status of a stream that failed for good some time ago."""
    given = {"failure_reason": "SettingsRefused", "last_error": "no", **changes}
    return settled(STREAM, seen, finish_time=NOW - ago_s, **given)


EXPIRY = (
    RuleCase(
        "the end of a batch is recorded, and its expiry is waited for",
        job(EXPIRING, ended(EXPIRING, finished=True)),
        observed(),
        "Finished",
        status={"finish_time": NOW},
        requeue_in=TTL_S,
    ),
    RuleCase(
        "the end is recorded without a limit too: one that is set later counts from it",
        job(spec(trigger="Once"), ended(spec(trigger="Once"), finished=True)),
        observed(),
        "Finished",
        status={"finish_time": NOW},
    ),
    RuleCase(
        "a batch is not deleted early",
        job(EXPIRING, finished(TTL_S - 1)),
        observed(),
        "Finished",
        status={"finish_time": NOW - TTL_S + 1},
        requeue_in=1,
    ),
    RuleCase(
        "a batch is deleted when its time is over",
        job(EXPIRING, finished(TTL_S)),
        observed(),
        "Finished",
        ["DeleteJob"],
    ),
    RuleCase(
        "a job that failed for good is deleted too",
        job(STREAM, failed(TTL_S)),
        observed(),
        "Failed",
        ["DeleteJob"],
    ),
    RuleCase(
        "0 deletes a job as soon as its end is in the status",
        job(AT_ONCE, finished(0)),
        observed(),
        "Finished",
        ["DeleteJob"],
    ),
    RuleCase(
        "a job without the limit is never deleted",
        job(spec(trigger="Once"), finished(1e6, spec(trigger="Once"))),
        observed(),
        "Finished",
    ),
    RuleCase(
        "a suspended job is never deleted, and its end does not count",
        job(spec(**BATCH, suspend=True), finished(TTL_S)),
        observed(),
        "Suspended",
        status={"finish_time": None},
    ),
    RuleCase(
        "another restartNonce runs the job again instead",
        job(spec(**BATCH, restart_nonce=1), finished(TTL_S)),
        observed(),
        "Starting",
        ["CreateDriver"],
        status={"finish_time": None},
    ),
    RuleCase(
        "a changed spec runs the job again instead",
        job(spec(**BATCH, image="jobs:2"), finished(TTL_S), generation=2),
        observed(),
        "Starting",
        ["CreateDriver"],
        status={"finish_time": None},
    ),
    RuleCase(
        "a job that waits for its restart has not ended",
        job(STREAM, ended(STREAM, next_start_time=NOW + 5, failures=failures("Application", 1))),
        observed(),
        "Restarting",
        status={"finish_time": None},
        requeue_in=5,
    ),
    RuleCase(
        "a job whose upgrade cannot apply the old checkpoint has not ended",
        job(
            dataclasses.replace(STREAM, upgrade_mode="Stateless"),
            ended(
                STREAM,
                failure_reason="HistoryBroken",
                upgrade=UpgradeStatus(mode="Stateless"),
                finish_time=NOW - TTL_S,
                mode=APPLY_ONLY,
            ),
        ),
        observed(),
        "Upgrading",
        status={"finish_time": None},
    ),
    RuleCase(
        "a job with an invalid edit is not deleted: the edit may be meant to run it again",
        job(EXPIRING, finished(TTL_S, seen=INVALID)),
        INVALID,
        "Finished",
    ),
    RuleCase(
        "a job is not deleted while a replaced driver may be alive",
        job(STREAM, failed(TTL_S, UNSEEN, unconfirmed_attempts=(0,))),
        UNSEEN,
        "Failed",
    ),
    RuleCase(
        "a job is not deleted before a Savepoint of it is taken",
        job(EXPIRING, finished(TTL_S)),
        observed(savepoints={"move": SavepointState("Pending")}),
        "Finished",
    ),
    RuleCase(
        "Savepoints that are taken or failed do not delay it",
        job(EXPIRING, finished(TTL_S)),
        observed(savepoints={"a": SavepointState("Ready"), "b": SavepointState("Failed", "no")}),
        "Finished",
        ["DeleteJob"],
    ),
    RuleCase(
        "a savepoint that was given up does not delay it either if it did not seal the checkpoint",
        job(STREAM, failed(TTL_S, GIVEN_UP, abandoned_savepoints=(LATE,))),
        GIVEN_UP,
        "Failed",
        ["DeleteJob"],
    ),
    RuleCase(
        "a job that runs is not deleted although its time would be over at once",
        job(AT_ONCE, settled(AT_ONCE, UNFINISHED, alive)),
        UNFINISHED,
        "Running",
    ),
    RuleCase(
        "an expired job that somebody deletes is finalized as any other",
        job(EXPIRING, finished(TTL_S), deleted=True),
        observed(),
        "Deleting",
        ["RemoveFinalizer"],
    ),
    RuleCase(
        "the time counts again from now if the clock was set back",
        job(EXPIRING, finished(-3600)),
        observed(),
        "Finished",
        status={"finish_time": NOW},
        requeue_in=TTL_S,
    ),
)


@pytest.mark.parametrize("case", EXPIRY, ids=lambda case: case.rule)
def test_rule(case: RuleCase) -> None:
    check(case)


def test_job_is_deleted_only_in_a_pass_that_finds_its_status_settled() -> None:
    """The deletion names the version that was read, so no later edit can be lost with the job."""
    running = ended(AT_ONCE)
    running = dataclasses.replace(
        running, driver=dataclasses.replace(running.driver, state="Active"), finished=False
    )
    pods = observed(dead(0, AT_ONCE, has_finalizer=False))
    first = decide(job(AT_ONCE, running), pods)
    assert first.status.phase == "Finished"
    assert (action_names(first), first.requeue_at) == ([], NOW)
    assert action_names(decide(job(AT_ONCE, first.status), pods)) == ["DeleteJob"]
