"""The annotation skip-apply outside of a deletion: it gives up an epoch only if that could not be applied."""

from __future__ import annotations

from typing import Any

from sluicegate_operator.api.streaming_job_status import APPLY_ONLY, UpgradeStatus
from sluicegate_operator.reconcile.actions import CreateDriver, EmitEvent
from tests.unit.operator.builders import NOW, alive, dead, ended, job, observed, spec
from tests.unit.operator.rule_cases import condition, decide, event_reasons

STATELESS: dict[str, Any] = {"image": "jobs:2", "upgrade_mode": "Stateless"}
UPGRADING: dict[str, Any] = {"upgrade": UpgradeStatus(mode="Stateless")}


def modes(outcome: Any) -> list[str]:
    """Return the modes of the drivers that are created."""
    return [one.mode for one in outcome.actions if isinstance(one, CreateDriver)]


def test_a_skip_apply_of_an_earlier_upgrade_gives_up_no_epoch_of_a_later_one() -> None:
    """Nobody removes the annotation, and the decided epoch can be applied."""
    upgrading = alive(stop_reason="Upgrade", **UPGRADING)
    outcome = decide(
        job(spec(**STATELESS), upgrading, generation=2, skip_apply=True), observed(dead(137))
    )
    assert modes(outcome) == [APPLY_ONLY]
    assert outcome.status.checkpoint.number == 1


def test_an_apply_that_failed_for_good_is_skipped_with_a_warning() -> None:
    failed = ended(failure_reason="HistoryBroken", mode=APPLY_ONLY, **UPGRADING)
    waits = decide(job(spec(**STATELESS), failed, generation=2), observed())
    assert condition(waits, "Ready") == ("False", "ApplyFailed")
    skipped = decide(
        job(spec(**STATELESS), waits.status, generation=2, skip_apply=True), observed(), NOW + 60
    )
    assert skipped.status.checkpoint.number == 2
    (event,) = [one for one in skipped.actions if isinstance(one, EmitEvent)]
    assert (event.reason, event.warning) == ("ApplySkipped", True)
    assert modes(skipped) == ["Run"]


def test_an_apply_that_is_tried_again_is_not_skipped() -> None:
    failed = ended(mode=APPLY_ONLY, next_start_time=NOW + 9, **UPGRADING)
    outcome = decide(job(spec(**STATELESS), failed, generation=2, skip_apply=True), observed())
    assert condition(outcome, "Ready") == ("False", "BackingOff")
    assert outcome.status.checkpoint.number == 1


def test_the_reason_of_a_driver_that_ran_the_job_skips_nothing() -> None:
    """It is not known yet whether the epoch can be applied."""
    failed = ended(failure_reason="HistoryBroken", **UPGRADING)
    outcome = decide(
        job(spec(**STATELESS), failed, generation=2, skip_apply=True), observed(), NOW + 60
    )
    assert outcome.status.checkpoint.number == 1
    assert not event_reasons(outcome)
