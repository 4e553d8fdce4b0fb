"""The verdict: what bounds a job, from the reports of its last epochs. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from sluicegate.storage.epoch_report import (
    APPLY,
    OFFSET_LOG,
    PLANNING,
    SOURCE,
    STATE,
    EpochReport,
    writer_steps,
)

STAGE, DECIDE = "stage", "decide"

_REASONS = {
    SOURCE: "BoundBySource",
    PLANNING: "BoundByPlanning",
    STAGE: "BoundByPlan",
    STATE: "BoundByState",
    DECIDE: "BoundByStore",
    APPLY: "BoundBySink",
    "wait": "Waits",
    "": "Unknown",
}

EPOCHS = 20
"""Number of the last reports that a verdict is from."""

_SKEW = 3.0
"""A part is skewed if it takes this many times as long as each other part of its sink."""

_SENTENCES = {
    SOURCE: "Bound by its source: asking it for new input takes {}.",
    PLANNING: "Bound by Spark's planning: a plan for each epoch takes {}.",
    STAGE: "Bound by the plan: its stage takes {}.",
    DECIDE: "Bound by the checkpoint's store: Spark's offset log and the decision take {}.",
}


@dataclass(frozen=True)
class Verdict:
    """What bounds a job.

    Args:
        sentence: for people.
        bound: 'source', 'planning', 'stage', 'state', 'decide', 'apply', 'wait', or '' if no report says
            it.
        sink: the sink whose apply bounds it.
        step: the longest step of that apply; empty: most of it is outside of the writer.
        executors: whether more executors would help, in a sentence; empty: no report says it.
        skewed: the part of that sink that takes most of its apply, None if its parts take alike.
        busy: the share of its time in which an epoch is under way, None if that is unknown.
    """

    sentence: str
    bound: str = ""
    sink: str = ""
    step: str = ""
    executors: str = ""
    skewed: int | None = None
    busy: float | None = None

    @property
    def reason(self) -> str:
        """What bounds the job in one CamelCase word, as conditions of Kubernetes have it."""
        return _REASONS[self.bound]


@dataclass(frozen=True)
class _Times:
    """Median durations in ms.

    Args:
        before: of the steps before the apply, which follow each other.
        state: of the stage's part in which state stores commit.
        apply: by sink.
        period: the time from one stage to the next, 0 if unknown.
        overlap: whether an epoch is applied while the next one is staged.
    """

    before: Mapping[str, float]
    state: float
    apply: Mapping[str, float]
    period: float
    overlap: bool

    @property
    def applies(self) -> float:
        """All applies of an epoch: they run one after another."""
        return sum(self.apply.values())

    @property
    def busy(self) -> float:
        """How long an epoch takes, or the longer of its halves if they run at the same time."""
        before = sum(self.before.values())
        return max(before, self.applies) if self.overlap else before + self.applies


def verdict(reports: Iterable[EpochReport]) -> Verdict:
    """Return what bounds a job: its input, the stage, the decision, or a sink and one of its steps.

    Medians, so that one slow epoch or a restart between two of them does not count.
    """
    staged = [r for r in reports if any(step.name == STAGE for step in r.steps)]
    if not staged:
        return Verdict(
            "What bounds it is unknown: no epoch with a report of its steps is retained."
        )
    times = _times(staged)
    busy = min(1.0, times.busy / times.period) if times.period else None
    found = _bound(staged, times)
    return replace(found, executors=_executors(found, staged), busy=busy)


def _executors(found: Verdict, reports: Sequence[EpochReport]) -> str:
    """Return whether more executors would help a job that is bound so."""
    if found.bound in (STAGE, STATE):
        of = "input" if found.bound == STAGE else "state"
        return f"More executors help if its {of} has more partitions than they have cores."
    if found.bound != APPLY:
        return "More executors would not help."
    if found.skewed is not None:
        return "More executors would not help: one part has most of the work. Spread its keys."
    parts = {s.part for report in reports for s in report.steps if s.sink == found.sink} - {None}
    if not parts:
        return "No report says whether more executors would help."
    if len(parts) == 1:
        return "It writes one part, so more executors would not help; more parts may."
    return f"It writes {len(parts)} parts: more executors help up to {len(parts)} cores."


def _bound(staged: Sequence[EpochReport], times: _Times) -> Verdict:
    of = max(times.period, times.busy)
    idle_ms = of - times.busy
    tries = _tries(staged)
    longest, longest_ms = max(times.before.items(), key=lambda of: of[1])
    sink, apply_ms = max(times.apply.items(), key=lambda of: of[1], default=("", 0.0))
    if idle_ms > max(apply_ms, longest_ms):
        # drivers of earlier versions did not report these steps
        what = (
            "input or its trigger" if times.before[PLANNING] else "input, its trigger or planning"
        )
        return Verdict(f"It waits for {what}: {_share(idle_ms, of)}.{tries}", "wait")
    applies_bound = times.overlap and times.applies > sum(times.before.values())
    if applies_bound or apply_ms > longest_ms:
        step, step_ms = _longest_step(staged, sink, apply_ms)
        most = f"most of it in {step} ({_ms(step_ms)})" if step else "most of it around the writers"
        text = f"Bound by sink {sink}: its apply takes {_share(apply_ms, of)}, {most}."
        skewed, skew = _skew(staged, sink, apply_ms)
        return Verdict(text + skew + tries, APPLY, sink, step, skewed=skewed)
    if longest == STAGE and times.state > longest_ms / 2:
        text = (
            f"Bound by its state: committing it takes about {_share(times.state, longest_ms)} of a"
        )
        return Verdict(f"{text} stage.{tries}", STATE)
    return Verdict(_SENTENCES[longest].format(_share(longest_ms, of)) + tries, longest)


def _times(reports: Sequence[EpochReport]) -> _Times:
    following = [(a, b) for a, b in pairwise(reports) if b.epoch == a.epoch + 1]
    starts = [_start(b) - _start(a) for a, b in following]
    sinks = reports[-1].sinks
    # of equal times the first counts
    before = {STAGE: [STAGE], SOURCE: [SOURCE], PLANNING: [PLANNING], DECIDE: [OFFSET_LOG, DECIDE]}
    return _Times(
        before={
            name: median(sum(_total(report, step) for step in steps) for report in reports)
            for name, steps in before.items()
        },
        state=median(_total(report, STATE) for report in reports),
        apply={sink: median(_total(report, APPLY, sink) for report in reports) for sink in sinks},
        period=max(0.0, median(starts)) if starts else 0.0,
        overlap=any(_end(a) > _start(b) for a, b in following),
    )


def _total(report: EpochReport, name: str, sink: str = "") -> float:
    return sum(s.duration_ms for s in report.steps if (s.name, s.sink) == (name, sink))


def _start(report: EpochReport) -> float:
    return next(step.start_ms for step in report.steps if step.name == STAGE)


def _end(report: EpochReport) -> float:
    # only steps that the driver timed: the clock of an executor may differ
    return max(step.start_ms + step.duration_ms for step in report.steps if step.part is None)


def _longest_step(reports: Sequence[EpochReport], sink: str, apply_ms: float) -> tuple[str, float]:
    """Return the longest step of a sink's writers, '' if the time outside of them is longer."""
    longest: dict[str, list[float]] = defaultdict(list)
    for report in reports:
        for (of, name), ms in writer_steps(report.steps).items():
            if of == sink:
                longest[name].append(ms)
    steps = {name: median(times) for name, times in longest.items()}
    outside = apply_ms - sum(steps.values())
    name = max(steps, key=lambda name: steps[name], default="")
    return (name, steps[name]) if name and steps[name] >= outside else ("", outside)


def _skew(reports: Sequence[EpochReport], sink: str, apply_ms: float) -> tuple[int | None, str]:
    """Return the part that takes most of an apply while the others are idle, and a sentence about it."""
    of_parts: dict[int, list[float]] = defaultdict(list)
    for report in reports:
        totals: dict[int, float] = defaultdict(float)
        for step in report.steps:
            if step.sink == sink and step.part is not None:
                totals[step.part] += step.duration_ms
        for part, total_ms in totals.items():
            of_parts[part].append(total_ms)
    times = {part: median(totals) for part, totals in of_parts.items()}
    if len(times) < 2:  # noqa: PLR2004 - one part has nothing to compare it with
        return None, ""
    longest = max(times, key=lambda part: times[part])
    most_ms = times.pop(longest)
    others_ms = max(times.values())
    if most_ms < _SKEW * others_ms or most_ms < apply_ms / 2:
        return None, ""
    rest = f"{len(times)} others at most" if len(times) > 1 else "other one"
    text = f" Its part {longest} takes {_ms(most_ms)}, the {rest} {_ms(others_ms)}: its keys are skewed."
    return longest, text


def _tries(reports: Sequence[EpochReport]) -> str:
    """Return a sentence about applies that were repeated, empty if none was."""
    repeated = [(report, of.tries) for report in reports for of in report.sinks.values()]
    again = {report.epoch for report, tries in repeated if tries > 1}
    return f" {len(again)} of {len(reports)} epochs had to be tried again." if again else ""


def _share(ms: float, of: float) -> str:
    return f"{_ms(ms)} of {_ms(of)} ({ms / of:.0%})" if of else _ms(ms)


def _ms(ms: float) -> str:
    return f"{ms / 1000:,.1f} s" if ms >= 1000 else f"{ms:.0f} ms"  # noqa: PLR2004 - ms in a second
