"""How failures count against the restart budgets, and how few entries of the status record them."""

from __future__ import annotations

import dataclasses

import pytest

from sluicegate.settings.restart import RestartSettings
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_settings import StartupSettings
from sluicegate_operator.api.streaming_job_status import FailureStatus
from sluicegate_operator.reconcile.streaming_job.context import (
    IMAGE,
    SCHEDULING,
    STARTUP,
    UPGRADE,
)
from sluicegate_operator.reconcile.streaming_job.failures import (
    ACCESS,
    APPLICATION,
    DISRUPTED,
    FENCED,
    SUCCESS,
    add_failure,
    classify_end,
    next_start,
)
from tests.unit.operator.builders import NOW, alive, dead, spec, with_restart

LIMITED = spec(
    startup=StartupSettings(image_pull_attempts=2, scheduling_attempts=3, start_attempts=4)
)
LIMITS = ((IMAGE, 2), (SCHEDULING, 3), (STARTUP, 4))


def failure(kind: str = APPLICATION, at: float = 0.0, **changes: float) -> FailureStatus:
    return FailureStatus(kind=kind, time=NOW + at, **changes)  # type: ignore[arg-type]


def recorded(
    kind: str, number: int, of: StreamingJobSpec, *, run_s: float = 0.0
) -> tuple[FailureStatus, ...]:
    """Return what is recorded after some failures, one a second."""
    failures: tuple[FailureStatus, ...] = ()
    for at in range(number):
        failures = add_failure(of, failures, failure(kind, at, run_s=run_s))
    return failures


def counted(failures: tuple[FailureStatus, ...]) -> int:
    return sum(one.count for one in failures)


@pytest.mark.parametrize(("code", "has_message"), [(0, False), (143, True)])
def test_a_driver_that_was_stopped_leaves_a_message_only_if_it_failed_meanwhile(
    code: int,
    has_message: bool,  # noqa: FBT001
) -> None:
    end = classify_end(dead(code), alive(stop_reason=UPGRADE).driver, finite=False)
    assert (end.kind, bool(end.message)) == (SUCCESS, has_message)


@pytest.mark.parametrize("finite", [False, True])
def test_a_driver_that_something_else_stopped_has_not_finished(finite: bool) -> None:  # noqa: FBT001
    """A deadline of its pod, or a probe: the kubelet stops it without deleting the pod."""
    stopped = dead(0, message="Stopped: its end was requested")
    assert classify_end(stopped, alive().driver, finite=finite).kind == APPLICATION


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("Stopped: its end was requested", "exit code 0: Stopped: its end was requested"),
        ("", "the driver exited with 0, but a stream never ends by itself"),
    ],
)
def test_an_exit_with_0_that_is_no_end_says_what_was_wrong_with_it(message: str, says: str) -> None:
    assert classify_end(dead(0, message=message), alive().driver, finite=False).message == says


@pytest.mark.parametrize(("kind", "entries"), [(APPLICATION, 30), (DISRUPTED, 10), (IMAGE, 10)])
def test_failures_beyond_the_kept_entries_share_the_oldest_and_still_count(
    kind: str, entries: int
) -> None:
    assert [one.count for one in recorded(kind, entries, spec())] == [1] * entries
    failures = recorded(kind, entries + 3, spec())
    assert [one.count for one in failures] == [4] + [1] * (entries - 1)
    assert [one.time for one in failures] == [NOW + at for at in range(3, entries + 3)]


def test_at_most_fifty_merged_failures_are_counted() -> None:
    assert recorded(DISRUPTED, 59, spec())[0].count == 50
    assert recorded(DISRUPTED, 70, spec())[0].count == 50


@pytest.mark.parametrize(
    "wanted",
    [
        with_restart(restart_attempts=69),
        with_restart(restart_max_failures=69),
        spec(startup=StartupSettings(image_pull_attempts=69)),
        spec(startup=StartupSettings(scheduling_attempts=69)),
        spec(startup=StartupSettings(start_attempts=69)),
    ],
)
def test_a_limit_above_fifty_can_still_be_reached(wanted: StreamingJobSpec) -> None:
    assert recorded(DISRUPTED, 90, wanted)[0].count == 70


def test_a_merged_entry_has_the_first_run_and_the_last_time_and_access() -> None:
    failures = recorded(ACCESS, 10, spec())
    first = dataclasses.replace(failures[0], run_s=7.0)
    second = dataclasses.replace(failures[1], run_s=8.0, volume_access="new")
    merged = add_failure(spec(), (first, second, *failures[2:]), failure(ACCESS, 10))[0]
    assert merged == FailureStatus(
        kind=ACCESS, time=second.time, run_s=7.0, volume_access="new", count=2
    )


@pytest.mark.parametrize(("ran_s", "count"), [(0.9, 2), (1.0, 1)])
def test_failures_before_a_healthy_run_are_not_merged_into_its_own(
    ran_s: float, count: int
) -> None:
    wanted = with_restart(restart_reset_s=1.0)
    first, second, *rest = recorded(DISRUPTED, 10, wanted)
    healthy = dataclasses.replace(second, run_s=ran_s)
    failures = add_failure(wanted, (first, healthy, *rest), failure(DISRUPTED, 10))
    assert failures[0].count == count


def test_without_a_healthy_time_no_failure_is_forgotten() -> None:
    wanted = with_restart(restart_reset_s=0.0)
    assert counted(recorded(DISRUPTED, 12, wanted, run_s=9999.0)) == 12


def test_a_failure_before_a_driver_ran_leaves_the_others_of_all_kinds() -> None:
    failures = add_failure(spec(), (failure(IMAGE), failure()), failure(SCHEDULING, 1))
    assert [one.kind for one in failures] == [IMAGE, APPLICATION, SCHEDULING]


def test_a_failure_of_a_driver_that_ran_drops_only_those_before_it_ran() -> None:
    past = (failure(IMAGE), failure(DISRUPTED), failure(STARTUP), failure(SCHEDULING))
    assert [one.kind for one in add_failure(spec(), past, failure())] == [DISRUPTED, APPLICATION]


@pytest.mark.parametrize(("kind", "limit"), LIMITS)
def test_a_start_is_retried_as_often_as_the_spec_allows(kind: str, limit: int) -> None:
    within, beyond = (recorded(kind, number, LIMITED) for number in (limit, limit + 1))
    assert next_start(LIMITED, within, "s").delay_s is not None
    assert next_start(LIMITED, beyond, "s").delay_s is None


def test_merged_failures_count_against_a_limit() -> None:
    merged = (failure(IMAGE, count=3),)
    assert next_start(LIMITED, merged, "s").delay_s is None


@pytest.mark.parametrize("kind", [DISRUPTED, FENCED, ACCESS])
def test_other_ends_are_never_the_last(kind: str) -> None:
    assert next_start(LIMITED, recorded(kind, 200, LIMITED), "s").delay_s is not None


def test_only_failures_of_the_newest_kind_count() -> None:
    wanted = with_restart(restart="fixed-delay", restart_attempts=1)
    failures = (failure(DISRUPTED), failure(DISRUPTED), failure())
    assert next_start(wanted, failures, "s").delay_s == 10
    assert next_start(wanted, (failure(), *failures), "s").delay_s is None


@pytest.mark.parametrize(
    ("kind", "first_s", "longest_s"),
    [(DISRUPTED, 1, 60), (FENCED, 1, 60), (STARTUP, 5, 300), (ACCESS, 60, 3600)],
)
def test_the_delay_of_each_kind_grows_from_its_first_to_its_longest(
    kind: str, first_s: float, longest_s: float
) -> None:
    many = spec(startup=StartupSettings(start_attempts=99))
    first, last = (next_start(many, recorded(kind, n, many), "s").delay_s for n in (1, 40))
    assert first == pytest.approx(first_s, rel=0.1)
    assert last == pytest.approx(longest_s, rel=0.1)


@pytest.mark.parametrize(
    ("kind", "run_s", "delay_s"), [(DISRUPTED, 60, 1), (DISRUPTED, 59, 60), (FENCED, 60, 60)]
)
def test_a_driver_that_is_disrupted_after_a_minute_is_replaced_after_a_second(
    kind: str, run_s: float, delay_s: float
) -> None:
    """However often that happens. A driver that another one fences every minute has a rival."""
    failures = recorded(kind, 40, spec(), run_s=run_s)
    assert next_start(spec(), failures, "s").delay_s == pytest.approx(delay_s, rel=0.1)


def test_only_the_first_of_merged_failures_can_follow_a_healthy_run() -> None:
    wanted = with_restart(restart="fixed-delay", restart_attempts=2, restart_reset_s=1.0)
    healthy = failure(run_s=1.0, count=2)
    assert next_start(wanted, (failure(), healthy), "s").delay_s == 10
    assert next_start(wanted, (failure(), healthy, failure(at=1)), "s").delay_s is None


def test_merged_failures_fall_into_the_interval_of_the_failure_rate() -> None:
    wanted = with_restart(restart="failure-rate", restart_max_failures=2)
    assert next_start(wanted, (failure(count=2),), "s").delay_s == 10
    assert next_start(wanted, (failure(count=3),), "s").delay_s is None


def test_the_jitter_spreads_the_restarts_of_many_jobs_over_its_range() -> None:
    wanted = spec(restart=RestartSettings(restart_initial_delay_s=10.0, restart_jitter=0.5))
    delays = [next_start(wanted, (failure(),), str(seed)).delay_s or 0.0 for seed in range(50)]
    assert 5 <= min(delays) < 6.5
    assert 13.5 < max(delays) <= 15
