"""What bounds a job, from its reports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.storage.epoch_report import EpochReport, TimedStep
from sluicegate.storage.verdict import verdict
from tests.unit.console.builders import KAFKA, MYSQL, report

Step = tuple[str, str, int | None, float]

STAGE: Step = ("stage", "", None, 100.0)
DECIDE: Step = ("decide", "", None, 10.0)


def apply(sink: str, ms: float) -> Step:
    return ("apply", sink, None, ms)


def every(period_ms: float, *steps: Step, epochs: int = 5) -> list[EpochReport]:
    return [report(n, *steps, start_ms=n * period_ms) for n in range(epochs)]


def test_a_job_that_waits_most_of_its_time_is_bound_by_its_input() -> None:
    of = verdict(every(1000.0, STAGE, DECIDE, apply(KAFKA, 50.0)))
    assert (of.bound, of.sink) == ("wait", "")
    assert of.sentence == "It waits for input, its trigger or planning: 840 ms of 1.0 s (84%)."
    assert (of.reason, of.executors) == ("Waits", "More executors would not help.")


def test_long_times_are_in_seconds() -> None:
    of = verdict(every(3_600_110.0, STAGE, DECIDE))
    assert of.sentence.endswith(": 3,600.0 s of 3,600.1 s (100%).")


def test_a_slow_plan_is_named() -> None:
    of = verdict(every(170.0, STAGE, DECIDE, apply(KAFKA, 50.0)))
    assert of.bound == "stage"
    assert of.sentence == "Bound by the plan: its stage takes 100 ms of 170 ms (59%)."


PLANNED: tuple[Step, Step] = (("source", "", None, 20.0), ("planning", "", None, 30.0))


@pytest.mark.parametrize(
    ("source_ms", "planning_ms", "bound", "reason"),
    [
        (300.0, 30.0, "source", "BoundBySource"),
        (20.0, 300.0, "planning", "BoundByPlanning"),
        (20.0, 30.0, "stage", "BoundByPlan"),
    ],
)
def test_source_and_planning_are_told_from_the_stage(
    source_ms: float, planning_ms: float, bound: str, reason: str
) -> None:
    planned = ("source", "", None, source_ms), ("planning", "", None, planning_ms)
    of = verdict(every(source_ms + planning_ms + 110.0, *planned, STAGE, DECIDE))
    assert (of.bound, of.reason) == (bound, reason)


def test_sparks_offset_log_is_in_the_checkpoints_store() -> None:
    of = verdict(every(300.0, ("offset log", "", None, 150.0), STAGE, DECIDE))
    assert (of.bound, of.reason) == ("decide", "BoundByStore")
    assert "take 160 ms of 300 ms" in of.sentence


def test_what_a_job_waits_for_is_its_input_or_its_trigger_if_planning_was_timed() -> None:
    of = verdict(every(1000.0, *PLANNED, STAGE, DECIDE))
    assert of.sentence == "It waits for input or its trigger: 840 ms of 1.0 s (84%)."


@pytest.mark.parametrize(("state_ms", "bound"), [(60.0, "state"), (50.0, "stage")])
def test_a_state_that_takes_most_of_the_stage_is_named(state_ms: float, bound: str) -> None:
    reports = [
        replace(each, steps=(*each.steps, TimedStep("state", each.steps[0].start_ms, state_ms)))
        for each in every(170.0, STAGE)
    ]
    of = verdict(reports)
    assert of.bound == bound
    if bound == "state":
        assert of.reason == "BoundByState"
        assert "committing it takes about 60 ms of 100 ms (60%) of a stage" in of.sentence
        assert "if its state has more partitions" in of.executors


def test_the_state_of_a_stage_is_not_compared_with_longer_steps() -> None:
    planned = ("planning", "", None, 110.0), STAGE, ("state", "", None, 60.0)
    assert verdict(every(270.0, *planned)).bound == "planning"


def test_a_slow_store_is_named() -> None:
    of = verdict(every(300.0, STAGE, ("decide", "", None, 200.0)))
    assert of.bound == "decide"


@pytest.mark.parametrize("slow", ["begin", "write", "flush", "commit"])
def test_the_slow_sink_and_its_longest_step_are_named(slow: str) -> None:
    parts = [
        (step, MYSQL, part, 400.0 if (step, part) == (slow, 1) else 20.0)
        for part in (0, 1)
        for step in ("begin", "write", "flush", "commit")
    ]
    of = verdict(every(650.0, STAGE, DECIDE, apply(KAFKA, 50.0), *parts, apply(MYSQL, 480.0)))
    assert (of.bound, of.sink, of.step) == ("apply", MYSQL, slow)
    assert f"most of it in {slow} (400 ms)" in of.sentence


def test_the_steps_and_parts_of_other_sinks_say_nothing_about_the_slow_one() -> None:
    others = [("flush", KAFKA, part, ms) for part, ms in enumerate((5.0, 990.0, 5.0))]
    slow = [("write", MYSQL, part, 250.0) for part in (0, 1)]
    of = verdict(every(650.0, STAGE, *others, apply(KAFKA, 50.0), *slow, apply(MYSQL, 480.0)))
    assert (of.step, of.skewed) == ("write", None)
    assert "writes 2 parts" in of.executors


def test_a_step_that_takes_half_of_an_apply_is_most_of_it() -> None:
    of = verdict(every(520.0, STAGE, ("write", KAFKA, 0, 200.0), apply(KAFKA, 400.0)))
    assert of.step == "write"


@pytest.mark.parametrize(
    ("period_ms", "steps"),
    [
        (200.0, (STAGE,)),
        (200.0, (STAGE, apply(KAFKA, 100.0))),
        (100.0, (STAGE, apply(KAFKA, 50.0), apply(MYSQL, 50.0))),
    ],
    ids=["as the wait", "as an apply", "as all applies that overlap it"],
)
def test_a_stage_that_takes_as_long_bounds_the_job(
    period_ms: float, steps: tuple[Step, ...]
) -> None:
    assert verdict(every(period_ms, *steps)).bound == "stage"


@pytest.mark.parametrize(
    ("times", "skewed"),
    [
        ((400.0, 20.0, 30.0), 0),
        ((20.0, 400.0), 1),
        ((120.0, 400.0), 1),
        ((130.0, 390.0), 1),
        ((20.0, 240.0), 1),
        ((140.0, 400.0), None),
        ((400.0,), None),
        ((200.0, 5.0), None),
    ],
)
def test_a_part_that_takes_most_of_an_apply_is_skewed(
    times: tuple[float, ...], skewed: int | None
) -> None:
    parts = [("write", MYSQL, part, ms) for part, ms in enumerate(times)]
    of = verdict(every(650.0, STAGE, DECIDE, *parts, apply(MYSQL, 480.0)))
    assert (of.sink, of.skewed) == (MYSQL, skewed)
    assert ("its keys are skewed" in of.sentence) == (skewed is not None)
    assert ("Spread its keys" in of.executors) == (skewed is not None)


@pytest.mark.parametrize(
    ("times", "others"),
    [((20.0, 400.0, 30.0), "the 2 others at most 30 ms"), ((30.0, 400.0), "the other one 30 ms")],
)
def test_the_time_of_a_skewed_part_is_compared_with_that_of_the_others(
    times: tuple[float, ...], others: str
) -> None:
    parts = [("write", MYSQL, part, ms) for part, ms in enumerate(times)]
    of = verdict(every(650.0, STAGE, *parts, apply(MYSQL, 480.0)))
    assert f"Its part 1 takes 400 ms, {others}" in of.sentence


def test_an_apply_whose_writers_are_quick_is_bound_around_them() -> None:
    of = verdict(every(520.0, STAGE, DECIDE, ("write", KAFKA, 0, 20.0), apply(KAFKA, 400.0)))
    assert (of.sink, of.step) == (KAFKA, "")
    assert of.sentence.endswith(", most of it around the writers.")


def test_applies_that_overlap_the_next_stage_bound_a_job_together() -> None:
    """Each of them is shorter than the stage, but only both together fill the time."""
    steps = (STAGE, DECIDE, apply(KAFKA, 80.0), apply(MYSQL, 90.0))
    assert verdict(every(280.0, *steps)).bound == "stage"
    overlapped = every(170.0, *steps)
    for reports in (overlapped, [*overlapped, report(5, *steps, start_ms=9e6)]):
        assert verdict(reports).sink == MYSQL, "also if it was restarted once"


@pytest.mark.parametrize(
    ("bound", "stage_ms", "apply_ms"), [("stage", 100.0, 50.0), ("apply", 50.0, 100.0)]
)
def test_one_slow_epoch_after_a_restart_changes_nothing(
    bound: str, stage_ms: float, apply_ms: float
) -> None:
    steps = ("stage", "", None, stage_ms), apply(KAFKA, apply_ms)
    slow = ("stage", "", None, apply_ms * 1e4), apply(KAFKA, stage_ms * 1e4)
    reports = [*every(160.0, *steps), report(5, *slow, start_ms=9e6)]
    assert verdict(reports).bound == bound


def test_repeated_applies_are_counted() -> None:
    reports = every(170.0, STAGE, DECIDE, apply(KAFKA, 50.0), epochs=2)
    reports.append(report(2, STAGE, DECIDE, apply(KAFKA, 50.0), start_ms=340.0, tries=2))
    assert verdict(reports).sentence.endswith("1 of 3 epochs had to be tried again.")


def test_without_reports_the_bound_is_unknown() -> None:
    replay = report(0, apply(KAFKA, 5.0))
    for reports in ([], [replay]):
        assert verdict(reports).bound == ""


def test_steps_without_a_duration_divide_by_nothing() -> None:
    assert verdict([report(0, ("stage", "", None, 0.0))]).bound == "stage"


@pytest.mark.parametrize(
    ("steps", "executors"),
    [
        ((STAGE, DECIDE, apply(KAFKA, 50.0)), "help if its input has more partitions"),
        ((STAGE, ("decide", "", None, 200.0)), "would not help"),
        ((STAGE, apply(KAFKA, 400.0)), "No report says whether"),
        ((STAGE, ("write", KAFKA, 0, 400.0), apply(KAFKA, 400.0)), "writes one part"),
        (
            (STAGE, *(("write", KAFKA, n, 400.0) for n in (0, 1)), apply(KAFKA, 400.0)),
            "up to 2 cores",
        ),
    ],
)
def test_it_says_whether_more_executors_would_help(steps: tuple[Step, ...], executors: str) -> None:
    busy_ms = sum(ms for _, _, part, ms in steps if part is None)
    assert executors in verdict(every(busy_ms, *steps)).executors


HALF_BUSY = STAGE, apply(KAFKA, 150.0)
"""Steps of 250 ms."""


@pytest.mark.parametrize(
    ("period_ms", "steps", "busy"),
    [
        (500.0, HALF_BUSY, 0.5),
        (250.0, HALF_BUSY, 1.0),
        (200.0, (STAGE, apply(KAFKA, 80.0), apply(MYSQL, 70.0)), 0.75),
        (80.0, (STAGE, apply(KAFKA, 50.0)), 1.0),
    ],
    ids=["pauses", "no pause", "applies overlap the next stage", "overlapping stages"],
)
def test_the_busy_share_is_that_of_the_time_between_two_epochs(
    period_ms: float, steps: tuple[Step, ...], busy: float
) -> None:
    assert verdict(every(period_ms, *steps)).busy == pytest.approx(busy)


def test_an_apply_during_the_planning_of_the_next_epoch_overlaps_no_stage() -> None:
    planning = ("planning", "", None, 100.0)
    assert verdict(every(240.0, planning, STAGE, apply(KAFKA, 50.0))).busy == 1.0


def test_only_epochs_that_follow_each_other_have_a_distance() -> None:
    starts_ms = {0: 0.0, 2: 5_000.0, 3: 5_500.0, 5: 20_000.0}
    reports = [report(n, *HALF_BUSY, start_ms=at) for n, at in starts_ms.items()]
    assert verdict(reports).busy == pytest.approx(0.5)
    assert verdict(reports[:1]).busy is None


def test_a_clock_that_was_set_back_tells_no_busy_share() -> None:
    assert verdict([report(n, STAGE, start_ms=9e6 - 500 * n) for n in range(3)]).busy is None


def test_the_clock_of_an_executor_does_not_make_epochs_overlap() -> None:
    ahead = TimedStep("write", 9e6, 1.0, KAFKA, 0)
    reports = [replace(of, steps=(*of.steps, ahead)) for of in every(500.0, *HALF_BUSY)]
    assert verdict(reports).busy == pytest.approx(0.5)


def test_a_job_without_sinks_is_bound_by_what_comes_before_them() -> None:
    reports = [replace(of, sinks={}) for of in every(1.2, ("stage", "", None, 0.5))]
    assert verdict(reports).bound == "wait"
    assert verdict(reports[:1]).bound == "stage"
