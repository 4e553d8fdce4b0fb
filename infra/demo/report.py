"""Writes the page that shows a run of the demo: exact or not, what each kill met, where time went.

One HTML file that loads nothing. Knows spans as `sluicegate.tracing.FileExporter` writes them, by
`infra.demo.timeline`. Called by the demo.
"""

import html
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from infra.demo.page import STYLE
from infra.demo.timeline import NS_PER_MS, Bar, Try, tries_of
from sluicegate.cli.job import Verification

_LONGEST_SHOWN: Final = 3.0
_COLOURS: Final = 6
_PERCENTILES: Final = 100

_KINDS: Final = {
    "lost": "rows that should be in a sink and are not",
    "duplicated": "rows that are in a sink twice",
    "wrong": "rows that do not say what the source says",
    "undecided-but-visible": "rows that no epoch decided",
}


@dataclass(frozen=True)
class Kill:
    """A process that was killed on purpose.

    Args:
        point: the failpoint, for people.
        epoch: at which epoch.
        at_ns: when, ns since 1970.
        durable: what was safe at that moment, in words.
        restart: what the restart had to do; the page says if the trace shows otherwise.
    """

    point: str
    epoch: int
    at_ns: int
    durable: str
    restart: str


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
        spans: the lines of the span file, decoded.
        kills: in any order.
        verification: the independent recomputation.
        facts: more to show at the top, label -> value.
    """
    kills = sorted(kills, key=lambda kill: kill.at_ns)
    tries = tries_of(spans, [kill.at_ns for kill in kills])
    phases = dict.fromkeys(bar.phase for one in tries for bar in one.bars)
    applied = [phase for phase in phases if phase.startswith("apply ")]
    colours = {"stage": "stage", "decide": "decide"}
    colours |= {"recover": "recover"} if "recover" in phases else {}
    colours |= {phase: f"apply{n % _COLOURS}" for n, phase in enumerate(applied)}
    sections = [
        _headline(verification, kills, tries, facts),
        _kills(kills, tries),
        _legend(colours),
        _run(tries, kills),
        _epochs(tries, kills, colours),
        _phases(tries, colours),
        _checked(verification),
    ]
    if not verification.exact:  # then it is what the reader is here for
        sections.insert(1, sections.pop())
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sluicegate demo: {"exact" if verification.exact else "not exact"}</title>
<style>{STYLE}</style></head>
<body><main>{"".join(sections)}</main></body></html>
"""
    path.write_text(page, encoding="utf-8")


def _headline(
    verification: Verification,
    kills: Sequence[Kill],
    tries: Sequence[Try],
    facts: Mapping[str, object],
) -> str:
    verdict = "Exact." if verification.exact else "Not exact."
    said = (
        "Nothing lost, duplicated, wrong or undecided"
        if verification.exact
        else "; ".join(f"{f.count:,} {f.kind}" for f in verification.findings)
    )
    killed = f"after {len(kills)} kill{'' if len(kills) == 1 else 's'} (kill -9)"
    seconds = (tries[-1].end_ns - tries[0].start_ns) / 1e9 if tries else 0.0
    shown = {
        "epochs": f"{len({one.epoch for one in tries}):,}",
        "from first to last": f"{seconds:.0f} s",
        **facts,
    }
    cards = "".join(
        f"<div class=card><b>{_text(value)}</b><span>{_text(label)}</span></div>"
        for label, value in shown.items()
    )
    return f"""<header class="{"good" if verification.exact else "bad"}"><h1>{verdict}</h1>
<p>{_text(said)}, {killed}. The answer was recomputed from the source without Spark
and compared with both sinks.</p></header><div class=cards>{cards}</div>"""


def _kills(kills: Sequence[Kill], tries: Sequence[Try]) -> str:
    if not kills:
        return "<section><h2>What was killed</h2><p>Nothing, in this run.</p></section>"
    rows = "".join(
        f"<tr><td class=num>{number}<td><code>{_text(kill.point)}</code><td class=num>{kill.epoch}"
        f"<td>{_text(kill.durable)}<td>{_text(kill.restart)}{_observed(kill, tries)}"
        for number, kill in enumerate(kills, 1)
    )
    return f"""<section><h2>What was killed</h2>
<p>Each time the driver died with everything below it, in the middle of an epoch, and was started
again. An epoch whose record was written is <em>decided</em>: a restart must bring it to every sink
from that record. An epoch without a record is not: a restart runs it again.</p>
<div class=scroll><table><thead><tr><th class=num>#<th>killed at<th class=num>epoch
<th>what was durable then<th>what the restart did<tbody>{rows}</table></div></section>"""


def _observed(kill: Kill, tries: Sequence[Try]) -> str:
    """Say what the trace shows of the restart, where it contradicts what was expected."""
    after = next((t for t in tries if t.epoch == kill.epoch and t.start_ns >= kill.at_ns), None)
    if after is None or after.replayed is None:
        return " <small>(not in the trace: it never ended)</small>"
    if after.replayed == kill.restart.startswith("replayed"):
        return f" <small>({_ms(after.duration_ms)})</small>"
    shown = "replayed from its record" if after.replayed else "run again"
    return f" <strong class=bad>but the trace says: {shown}</strong>"


def _legend(colours: Mapping[str, str]) -> str:
    words = {
        "stage": "the plan runs once; its rows are made safe for every sink",
        "decide": "one record is written, once: from here on the epoch counts",
        "recover": "after a restart: what was decided is looked up",
    }
    items = "".join(
        f'<li><i class="key {css}"></i><b>{_text(phase)}</b> '
        f"{words.get(phase, 'its rows and its marker, in one transaction of the sink')}"
        for phase, css in colours.items()
    )
    return f"""<section><h2>What the colours mean</h2><ul class=legend>{items}
<li><i class="key rest"></i><b>grey</b> the rest of the epoch: planning, Spark's own bookkeeping
<li><i class="key kill"></i><b>red mark</b> a kill
</ul></section>"""


def _run(tries: Sequence[Try], kills: Sequence[Kill]) -> str:
    if not tries:
        return "<section><h2>The whole run</h2><p>The trace holds no epoch.</p></section>"
    begin = tries[0].start_ns
    ends = [*(one.end_ns for one in tries), *(kill.at_ns for kill in kills)]
    whole = max(ends) - begin or 1
    bars = "".join(
        f'<i class="bar {_kind(one)}" style="left:{_share(one.start_ns - begin, whole)};'
        f'width:{_share(one.end_ns - one.start_ns, whole)}" title="{_text(_said(one))}"></i>'
        for one in tries
    )
    marks = "".join(
        f'<i class=mark style="left:{_share(kill.at_ns - begin, whole)}" '
        f'title="{_text(f"killed at {kill.point}, epoch {kill.epoch}")}"><b>{number}</b></i>'
        for number, kill in enumerate(kills, 1)
    )
    ticks = "".join(
        f'<span style="left:{n * 20}%">{whole / 1e9 * n / 5:.0f} s</span>' for n in range(6)
    )
    return f"""<section><h2>The whole run</h2>
<p>A bar is an epoch; grey ones did not come to their end, striped ones were replayed from their record.
What is empty after a red mark is a driver on its way up again.</p>
<div class=strip>{bars}{marks}</div><div class=ticks>{ticks}</div></section>"""


def _epochs(tries: Sequence[Try], kills: Sequence[Kill], colours: Mapping[str, str]) -> str:
    if not tries:
        return ""
    # A few tries, the first ones of a driver above all, take many times longer than the others.
    usual = statistics.median(one.duration_ms for one in tries)
    scale_ms = min(max(one.duration_ms for one in tries), usual * _LONGEST_SHOWN) or 1.0
    rows, begun = "", set[int]()
    for one in tries:
        tag = {"committed": "run again" if one.epoch in begun else ""}.get(_kind(one), _kind(one))
        rows += _row(one, tag, kills, colours, scale_ms)
        begun.add(one.epoch)
    return f"""<section><h2>Epoch by epoch</h2>
<p>Every try of an epoch from its own start; the full width is {_ms(scale_ms)}. A row that ends in
an arrow went on for longer. Hover over a bar for its duration and rows.</p>
<div class=epochs>{rows}</div></section>"""


def _row(
    one: Try, tag: str, kills: Sequence[Kill], colours: Mapping[str, str], scale_ms: float
) -> str:
    scale_ns = scale_ms * NS_PER_MS
    bars = "".join(_bar(bar, one, colours, scale_ns) for bar in one.bars)
    mark = ""
    if one.killed_ns is not None:
        number = next(n for n, kill in enumerate(kills, 1) if kill.at_ns == one.killed_ns)
        kill = kills[number - 1]
        left = _share(min(one.killed_ns - one.start_ns, scale_ns), scale_ns)
        said = _text(f"killed at {kill.point}: {kill.durable}")
        mark = f'<i class=mark style="left:{left}" title="{said}"><b>{number}</b></i>'
    over = "<span class=over>→</span>" if one.duration_ms > scale_ms * 1.001 else ""
    rest = f'<i class="bar rest" style="left:0;width:{_share(min(one.duration_ms, scale_ms), scale_ms)}"></i>'
    label = f"<em>{tag}</em>" if tag else ""
    return (
        f'<div class="row {_kind(one)}" title="{_text(_said(one))}"><span class=name>{label}'
        f"{one.epoch}</span><div class=lane>{rest}{bars}{mark}{over}</div>"
        f"<span class=took>{_ms(one.duration_ms)}</span></div>"
    )


def _bar(bar: Bar, one: Try, colours: Mapping[str, str], scale_ns: float) -> str:
    at = bar.start_ns - one.start_ns
    if at >= scale_ns:
        return ""
    width = min(bar.end_ns - bar.start_ns, scale_ns - at)
    return (
        f'<i class="bar {colours[bar.phase]}" style="left:{_share(at, scale_ns)};'
        f'width:{_share(width, scale_ns)}" title="{_text(f"epoch {one.epoch}: {bar.said}")}"></i>'
    )


def _phases(tries: Sequence[Try], colours: Mapping[str, str]) -> str:
    took: dict[str, list[float]] = {}
    for one in tries:
        if one.replayed is not None:
            took.setdefault("epoch", []).append(one.duration_ms)
        for bar in one.bars:
            took.setdefault(bar.phase, []).append(bar.duration_ms)
            for step, ms in bar.steps:
                took.setdefault(f"{bar.phase} · {step}", []).append(ms)
    order = ["epoch", *(p for phase in colours for p in took if p.split(" · ")[0] == phase)]
    rows = "".join(
        f'<tr class="{"step" if " · " in phase else ""}"><td><i class="key '
        f'{colours.get(phase, "rest" if phase == "epoch" else "none")}"></i>{_text(phase)}'
        f"<td class=num>{len(took[phase]):,}<td class=num>{_ms(_percentile(took[phase], 50))}"
        f"<td class=num>{_ms(_percentile(took[phase], 99))}<td class=num>{_ms(max(took[phase]))}"
        for phase in order
        if phase in took
    )
    return f"""<section><h2>How long it takes</h2>
<p>p50: half of them took no longer. p99: 99 of 100 took no longer. The first epochs of each driver
are among them; they warm up a JVM.</p>
<div class=scroll><table><thead><tr><th>phase<th class=num>times<th class=num>p50
<th class=num>p99<th class=num>longest<tbody>{rows}</table></div></section>"""


def _checked(verification: Verification) -> str:
    rows = "".join(
        f"<tr><td class=num>{number:,}<td>{_text(label)}"
        for label, number in verification.checked.items()
    )
    found = "".join(
        f"<h3>{finding.count:,} {_text(finding.kind)}</h3><p>{_KINDS.get(finding.kind, '')}</p><ul>"
        + "".join(f"<li><code>{_text(example)}</code>" for example in finding.examples)
        + "</ul>"
        for finding in verification.findings
    )
    return f"""<section><h2>What was compared</h2>{found}
<div class=scroll><table><tbody>{rows}</table></div></section>"""


def _kind(one: Try) -> str:
    if one.killed_ns is not None:
        return "killed"
    if one.replayed is None:
        return "failed"
    return "replayed" if one.replayed else "committed"


def _said(one: Try) -> str:
    began = datetime.fromtimestamp(one.start_ns / 1e9, tz=UTC)
    how = {"killed": "killed after", "replayed": "replayed from its record in"}.get(
        _kind(one), "took"
    )
    return (
        f"epoch {one.epoch}, {began:%H:%M:%S} UTC: {how} {_ms(one.duration_ms)}; {one.rows:,} rows"
    )


def _percentile(values: Sequence[float], percent: int) -> float:
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=_PERCENTILES, method="inclusive")[percent - 1]


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.3f}%"


def _ms(ms: float) -> str:
    if ms >= 10_000:  # noqa: PLR2004 - from here on decimals say nothing
        return f"{ms / 1000:.1f} s"
    return f"{ms:,.0f} ms" if ms >= 10 else f"{ms:.1f} ms"  # noqa: PLR2004 - the same


def _text(value: object) -> str:
    return html.escape(str(value))
