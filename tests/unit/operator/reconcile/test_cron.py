"""When a schedule is due, by its cron expression, and which schedules are valid."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sluicegate_operator.api.savepoint import SavepointStatus
from sluicegate_operator.api.schedule import Schedule
from sluicegate_operator.kube.timestamps import to_instant, to_text
from sluicegate_operator.reconcile.actions import EmitEvent
from sluicegate_operator.reconcile.context import ReconcileContext
from sluicegate_operator.reconcile.schedule import (
    due_tick,
    is_too_late,
    newest_tick,
    next_tick,
    validate_schedule,
)
from tests.unit.operator.builders import NOW

HOURLY = Schedule(cron="0 * * * *")
NEVER = Schedule(cron="0 0 */3 2 MON#5")
"""A fifth Monday of February is its 29th day, which is none of the 1st, 4th, ... 28th."""


@pytest.mark.parametrize(
    ("zone", "due"), [("UTC", "2026-03-29T02:30"), ("Europe/Berlin", "2026-03-29T01:00")]
)
def test_schedule_uses_its_time_zone(zone: str, due: str) -> None:
    """02:30 does not exist in Berlin on that day; cron runs the job at the change to summer time."""
    start = to_instant("2026-03-29T00:00:00Z")
    tick = next_tick(Schedule(cron="30 2 * * *", time_zone=zone), start)
    assert tick is not None
    assert to_text(tick).startswith(due)


@pytest.mark.parametrize(
    ("now", "due"), [(NOW - 0.5, NOW - 3600), (NOW, NOW), (NOW + 3599.999, NOW)]
)
def test_a_schedule_is_due_from_its_minute_on_and_not_before(now: float, due: float) -> None:
    assert newest_tick(HOURLY, now) == due
    assert next_tick(HOURLY, now) == due + 3600


@pytest.mark.parametrize("last", [None, NOW - 3600])
def test_a_schedule_without_any_time_is_never_due_and_requests_no_reconciliation(
    last: float | None,
) -> None:
    status = SavepointStatus()
    context = ReconcileContext[SavepointStatus, EmitEvent](status, 1, NOW, requeue_time=NOW + 5)
    assert due_tick(context, NEVER, last, NOW - 7200) is None
    assert context.requeue_time == NOW + 5


@pytest.mark.parametrize(
    ("deadline_s", "late_s", "skipped"),
    [(0, 1e9, False), (1, 1, False), (1, 1.001, True), (60, 60, False), (60, 60.001, True)],
)
def test_a_run_is_skipped_only_after_its_deadline_if_it_has_one(
    deadline_s: float,
    late_s: float,
    skipped: bool,  # noqa: FBT001
) -> None:
    schedule = Schedule(cron="0 * * * *", starting_deadline_s=deadline_s)
    assert is_too_late(schedule, NOW, NOW + late_s) is skipped


@pytest.mark.parametrize("schedule", [None, HOURLY, NEVER])
def test_a_job_may_have_no_schedule_or_one_that_cron_understands(schedule: Schedule | None) -> None:
    assert validate_schedule(schedule) is None


@pytest.mark.parametrize(
    ("cron", "zone"),
    [
        ("0 25 * * *", "UTC"),
        ("0 0 30 2 *", "UTC"),
        ("0 * * * *", "Europe/Atlantis"),
        ("0 * * * *", "/etc/localtime"),
        ("0 * * * *", "America"),
        ("0 * * * *", "A" * 300),
    ],
)
def test_an_invalid_schedule_is_returned_as_an_error_with_its_text(cron: str, zone: str) -> None:
    error = validate_schedule(Schedule(cron=cron, time_zone=zone))
    assert error is not None
    assert error.what.startswith(f"schedule {cron!r} in {zone!r} is invalid: ")


def field(low: int, high: int, *also: str) -> st.SearchStrategy[str]:
    """Return fields of a cron expression: lists of values, ranges and steps."""
    number = st.integers(low, high).map(lambda value: f"{value:0{value % 3}}")
    span = st.tuples(number, number).map(lambda ends: "-".join(sorted(ends, key=int)))
    base = st.one_of(st.just("*"), number, span)
    step = st.tuples(base, st.integers(1, 70)).map(lambda pair: f"{pair[0]}/{pair[1]}")
    item = st.one_of(base, step, *(st.just(word) for word in also))
    return st.lists(item, min_size=1, max_size=3).map(",".join)


@settings(deadline=None)
@given(
    st.tuples(
        field(0, 59),
        field(0, 23),
        field(1, 31, "L", "LW", "lw/2"),
        field(1, 12, "JAN", "feb-Mar/2"),
        field(0, 7, "SUN", "mon-fri", "5L", "MON#2", "3#5"),
    )
)
def test_the_api_server_accepts_each_cron_expression_that_the_operator_understands(
    fields: tuple[str, ...],
) -> None:
    schedule = Schedule(cron=" ".join(fields))
    assume(validate_schedule(schedule) is None)
    (rule,) = Schedule.RULES
    assert rule.holds is not None
    assert rule.holds(schedule)
