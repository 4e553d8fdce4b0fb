"""What a job's status says of its driver: progress, verdict, executors."""

from __future__ import annotations

import pytest

from sluicegate.storage.verdict import _REASONS
from sluicegate_operator.api.streaming_job_status import (
    ExecutorsStatus,
    StreamingJobStatus,
    VerdictStatus,
)
from sluicegate_operator.reconcile.observed import Executors, Progress
from tests.unit.operator.builders import NOW, alive, dead, job, observed, pod
from tests.unit.operator.rule_cases import decide


def test_what_bounds_a_job_is_shown_until_its_driver_has_ended() -> None:
    bound = VerdictStatus(reason="BoundByPlan", message="Bound by the plan.")
    running = observed(pod(progress=Progress(NOW, 7, bound)))
    shown = decide(job(status=alive()), running).status
    assert shown.verdict == bound
    assert decide(job(status=shown), observed(dead(1))).status.verdict is None


def test_the_condition_of_the_verdict_changes_with_its_reason_alone() -> None:
    def at(seconds: float, reason: str, before: StreamingJobStatus) -> StreamingJobStatus:
        verdict = VerdictStatus(reason=reason, message=f"takes {seconds} ms")
        seen = observed(pod(progress=Progress(NOW + seconds, 7, verdict)), as_of=NOW + seconds)
        found: StreamingJobStatus = decide(job(status=before), seen, NOW + seconds).status
        return found

    def bound(status: StreamingJobStatus) -> tuple[str, str, float] | None:
        found = [c for c in status.conditions if c.type == "Bound"]
        return (found[0].status, found[0].reason, found[0].last_transition_time) if found else None

    plan = at(0.0, "BoundByPlan", alive())
    assert bound(plan) == ("True", "BoundByPlan", NOW)
    slower = at(60.0, "BoundByPlan", plan)
    assert slower.verdict != plan.verdict
    assert slower.conditions == plan.conditions
    assert bound(at(120.0, "BoundBySink", slower)) == ("True", "BoundBySink", NOW)
    assert bound(at(120.0, "Waits", slower)) == ("False", "Waits", NOW + 120)
    assert bound(at(120.0, "Unknown", slower)) is None
    assert bound(decide(job(status=slower), observed(dead(1)), NOW + 120).status) is None


@pytest.mark.parametrize("reason", [r for r in _REASONS.values() if r.startswith("BoundBy")])
def test_the_condition_holds_for_each_bound_that_a_driver_may_report(reason: str) -> None:
    verdict = VerdictStatus(reason=reason, message="takes 1 ms")
    status = decide(job(status=alive()), observed(pod(progress=Progress(NOW, 7, verdict)))).status
    (found,) = [c for c in status.conditions if c.type == "Bound"]
    assert (found.status, found.reason) == ("True", reason)
    assert found.message.startswith("an epoch takes most of its time in")


def test_executors_are_shown_until_their_driver_has_ended() -> None:
    running = observed(pod(executors=Executors(1, 2)))
    shown = decide(job(status=alive()), running).status
    assert shown.executors == ExecutorsStatus(running=1, wanted=2, time=NOW)
    for still in (running, observed(pod())):
        assert decide(job(status=shown), still, NOW + 40).status == shown
    assert decide(job(status=shown), observed(dead(1))).status.executors is None


def test_executors_that_come_and_go_are_written_at_most_twice_a_minute() -> None:
    before = decide(job(status=alive()), observed(pod(executors=Executors(2, 2)))).status
    lost = observed(pod(executors=Executors(1, 2)))
    early = decide(job(status=before), lost, NOW + 29)
    assert early.status == before
    assert early.requeue_at == NOW + 30
    late = decide(job(status=before), lost, NOW + 30).status
    assert late.executors == ExecutorsStatus(running=1, wanted=2, time=NOW + 30)
