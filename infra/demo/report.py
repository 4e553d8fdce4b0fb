"""Writes the report page of a demo run: whether it is exact, what each kill interrupted, where time went.

report.html.j2 is the page; this module computes what it shows. The spans are those that
`sluicegate.tracing.FileExporter` writes.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import jinja2

from infra.demo.timeline import NS_PER_MS, Try, tries_of
from sluicegate.packaged_job import Verification

_TEMPLATE: Final = Path(__file__).with_name("report.html.j2")
_MAX_SCALE: Final = 3.0
"""The widest bar, in medians: the first attempts of a driver take many times longer than the others."""
_COLOURS: Final = 6
_PERCENTILES: Final = 100
_TICKS: Final = 5

_FINDINGS: Final = {
    "lost": "rows that should be in a sink but are missing",
    "duplicated": "rows that are in a sink twice",
    "wrong": "rows that differ from the source",
    "undecided-but-visible": "rows that no epoch decided",
}
_PHASES: Final = {
    "stage": "the plan runs once; its rows are stored for every sink",
    "decide": "one record is created: from then on the epoch counts",
}
_APPLY: Final = "rows and marker, in one transaction of the sink"


@dataclass(frozen=True)
class Kill:
    """A process that was killed on purpose."""

    point: str  # the failpoint, as the page shows it
    epoch: int  # the epoch that was running
    at_ns: int  # when, ns since 1970
    durable: str  # what was durable when it died, in words
    restart: str  # what the restart had to do; the page reports if the trace shows otherwise


def write_report(
    path: Path,
    spans: Sequence[Mapping[str, Any]],
    kills: Sequence[Kill],
    verification: Verification,
    facts: Mapping[str, object],
) -> None:
    """Write the page.

    Args:
        path: the file.
        spans: the decoded lines of the span file.
        kills: in any order.
        verification: the result of the independent recomputation.
        facts: more to show at the top, label -> value.
    """
    kills = sorted(kills, key=lambda kill: kill.at_ns)
    attempts = tries_of(spans, [kill.at_ns for kill in kills])
    phases = dict.fromkeys(bar.phase for one in attempts for bar in one.bars)
    applied = [phase for phase in phases if phase.startswith("apply ")]
    colours = {"stage": "stage", "decide": "decide"}
    colours |= {phase: f"apply{n % _COLOURS}" for n, phase in enumerate(applied)}
    ends = [*(one.end_ns for one in attempts), *(kill.at_ns for kill in kills)]
    begin = attempts[0].start_ns if attempts else 0
    whole_ns = (max(ends, default=0) - begin) or 1
    scale_ms = _scale_ms(attempts)
    shown_kills = [_kill(n, kill, attempts, begin, whole_ns) for n, kill in enumerate(kills, 1)]
    seconds = (attempts[-1].end_ns - begin) / 1e9 if attempts else 0.0
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    environment.filters |= {"ms": _ms, "percent": "{:.3f}%".format}
    page = environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        exact=verification.exact,
        summary=_summary(verification),
        findings=[
            vars(found) | {"meaning": _FINDINGS.get(found.kind, "")}
            for found in verification.findings
        ],
        checked=verification.checked,
        facts={
            "epochs": f"{len({one.epoch for one in attempts}):,}",
            "from first to last": f"{seconds:.0f} s",
            **facts,
        },
        kills=shown_kills,
        colours=colours,
        meanings={phase: _PHASES.get(phase, _APPLY) for phase in colours},
        ticks=[whole_ns / 1e9 * n / _TICKS for n in range(_TICKS + 1)],
        scale_ms=scale_ms,
        attempts=list(_attempts(attempts, shown_kills, begin, whole_ns, scale_ms)),
        durations=list(_durations(attempts, colours)),
    )
    path.write_text(page, encoding="utf-8")


def _summary(verification: Verification) -> str:
    if verification.exact:
        return "Nothing lost, duplicated, wrong or undecided"
    return "; ".join(f"{found.count:,} {found.kind}" for found in verification.findings)


def _scale_ms(attempts: Sequence[Try]) -> float:
    if not attempts:
        return 1.0
    durations = [one.duration_ms for one in attempts]
    return min(max(durations), statistics.median(durations) * _MAX_SCALE) or 1.0


def _kill(
    number: int, kill: Kill, attempts: Sequence[Try], begin: int, whole_ns: int
) -> dict[str, Any]:
    """Return what the page shows of a kill, with what the trace shows of the restart."""
    after = next((t for t in attempts if t.epoch == kill.epoch and t.start_ns >= kill.at_ns), None)
    observed, contradiction = "not in the trace: it did not finish", ""
    if after is not None and after.replayed is not None:
        observed = _ms(after.duration_ms)
        if after.replayed != kill.restart.startswith("replayed"):
            contradiction = "replayed from its record" if after.replayed else "run again"
    left = 100 * (kill.at_ns - begin) / whole_ns
    return vars(kill) | {
        "number": number,
        "left": left,
        "observed": observed,
        "contradiction": contradiction,
    }


def _attempts(
    attempts: Sequence[Try],
    kills: Sequence[Mapping[str, Any]],
    begin: int,
    whole_ns: int,
    scale_ms: float,
) -> Iterator[dict[str, Any]]:
    """Yield what the page shows of each attempt: its place in the run, and its bars."""
    seen = set[int]()
    scale_ns = scale_ms * NS_PER_MS
    for one in attempts:
        kind = _kind(one)
        killed_ns = one.killed_ns if one.killed_ns is not None else one.start_ns
        yield {
            "epoch": one.epoch,
            "kind": kind,
            "title": _title(one),
            "tag": kind if kind != "committed" else "run again" if one.epoch in seen else "",
            "left": 100 * (one.start_ns - begin) / whole_ns,
            "width": 100 * (one.end_ns - one.start_ns) / whole_ns,
            "lane": 100 * min(one.duration_ms, scale_ms) / scale_ms,
            "longer": one.duration_ms > scale_ms * 1.001,
            "duration_ms": one.duration_ms,
            "kill": next((kill for kill in kills if kill["at_ns"] == one.killed_ns), None),
            "killed_at": 100 * min(killed_ns - one.start_ns, scale_ns) / scale_ns,
            "bars": [
                {
                    "phase": bar.phase,
                    "left": 100 * at / scale_ns,
                    "width": 100 * min(bar.end_ns - bar.start_ns, scale_ns - at) / scale_ns,
                    "title": f"epoch {one.epoch}: {bar.said}",
                }
                for bar in one.bars
                if (at := bar.start_ns - one.start_ns) < scale_ns
            ],
        }
        seen.add(one.epoch)


def _durations(attempts: Sequence[Try], colours: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the row of each phase, followed by those of its steps."""
    took: dict[str, list[float]] = {}
    for one in attempts:
        if one.replayed is not None:
            took.setdefault("epoch", []).append(one.duration_ms)
        for bar in one.bars:
            took.setdefault(bar.phase, []).append(bar.duration_ms)
            for step, ms in bar.steps:
                took.setdefault(f"{bar.phase} · {step}", []).append(ms)
    order = ["epoch", *(p for phase in colours for p in took if p.split(" · ")[0] == phase)]
    for phase in order:
        if phase in took:
            yield {
                "phase": phase,
                "step": " · " in phase,
                "css": colours.get(phase, "rest" if phase == "epoch" else "none"),
                "count": len(took[phase]),
                "p50": _percentile(took[phase], 50),
                "p99": _percentile(took[phase], 99),
                "longest": max(took[phase]),
            }


def _kind(one: Try) -> str:
    if one.killed_ns is not None:
        return "killed"
    if one.replayed is None:
        return "failed"
    return "replayed" if one.replayed else "committed"


def _title(one: Try) -> str:
    began = datetime.fromtimestamp(one.start_ns / 1e9, tz=UTC)
    how = {"killed": "killed after", "replayed": "replayed from its record in"}
    return (
        f"epoch {one.epoch}, {began:%H:%M:%S} UTC: {how.get(_kind(one), 'took')} "
        f"{_ms(one.duration_ms)}; {one.rows:,} rows"
    )


def _percentile(values: Sequence[float], percent: int) -> float:
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=_PERCENTILES, method="inclusive")[percent - 1]


def _ms(ms: float) -> str:
    if ms >= 10_000:  # noqa: PLR2004 - above 10 s, one decimal of a second is enough
        return f"{ms / 1000:.1f} s"
    return f"{ms:,.0f} ms" if ms >= 10 else f"{ms:.1f} ms"  # noqa: PLR2004 - below 10 ms, one decimal
