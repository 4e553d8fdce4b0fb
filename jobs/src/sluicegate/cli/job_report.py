"""What a StreamingJob does and why, in text: made of the resource and its Events. Pure.

Reads the JSON of the API leniently: an operator of another version may have written it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

Resource = Mapping[str, Any]

COLUMNS = ("JOB", "PHASE", "EPOCH", "SEEN", "RESTARTS", "WHY")
"""The header of `table`. SEEN: how long ago the driver last reported progress."""

_PROBLEMS = {
    "Accepted": "False",
    "VolumeReady": "False",
    "Failed": "True",
    "Fenced": "True",
    "NodeLost": "True",
    "RolledBack": "True",
    "UpgradeQueued": "True",
    "Paused": "True",
    "Ready": "False",
}
"""The status of each condition that a person should know about, the most telling ones first."""

_EXPECTED = ("Suspended", "Finished", "Waiting", "Deleting")
"""Phases in which a job is not ready by its own spec."""

_EVENTS = 10

_SPARK_UI_PORT = 4040
"""Default of `spark.ui.port`."""


def table(jobs: Sequence[Resource], now: dt.datetime, *, namespaces: bool) -> list[str]:
    """Return a line for each job below a header, those with a problem first."""
    rows = sorted((bool(not why(job)), _row(job, now, namespaces=namespaces)) for job in jobs)
    header = (("NAMESPACE",) if namespaces else ()) + COLUMNS
    lines = [header, *(row for _, row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header) - 1)]
    return [
        "   ".join(
            [*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]
        ).rstrip()
        for line in lines
    ]


def why(job: Resource) -> str:
    """Return in one line why a job does not do what its spec asks for; empty if it does."""
    return next(_problems(job), "")


def describe(job: Resource, events: Sequence[Resource], now: dt.datetime) -> list[str]:
    """Return what a job does, its problems, its failures and its newest Events."""
    status = _status(job)
    checkpoint = status.get("checkpoint") or {}
    seen = _ago(checkpoint.get("lastEpochTime"), now)
    attempt, restarts = status.get("attempt", 0), status.get("restarts", 0)
    number, epoch = checkpoint.get("number", 1), checkpoint.get("lastEpoch", "none yet")
    reported = f", progress reported {seen} ago" if seen else ""
    lines = [
        f"{_name(job)} is {_phase(job)}, attempt {attempt}, {restarts} restarts",
        f"  checkpoint {number}, epoch {epoch}{reported}",
    ]
    if verdict := status.get("verdict"):
        lines.append(f"  {verdict.get('message') or verdict['reason']}")
    if executors := status.get("executors"):
        running, wanted = executors.get("running", 0), executors.get("wanted", 0)
        lines.append(f"  {running} of {wanted} executors run")
    if not status.get("allEpochsApplied", True):
        lines.append("  a decided epoch may not be in every sink yet; the next driver applies it")
    if next_start := status.get("nextStartTime"):
        lines.append(f"  the next driver starts at {next_start}")
    lines += _section("problems", _problems(job))
    lines += _section("failures that count against the restart budgets", _failures(job, now))
    if error := status.get("lastError"):
        lines += _section("last error", error.splitlines())
    lines += _section("newest events", _events(events, now))
    return lines


def driver_pod(job: Resource) -> str | None:
    """Return the name of the job's newest driver pod, None before the first."""
    attempt = _status(job).get("attempt", 0)
    return f"{_name(job)}-{attempt}-driver" if attempt else None


def spark_ui_port(job: Resource) -> int | None:
    """Return the port of Spark's UI in a job's driver, None if the UI is off, which is the default."""
    conf = (job.get("spec") or {}).get("sparkConf") or {}
    if conf.get("spark.ui.enabled", "").lower() != "true":
        return None
    return int(conf.get("spark.ui.port", _SPARK_UI_PORT))


def console_page(console: str, job: str, namespace: str) -> str:
    """Return the address of a job's page in a console, or of its start page.

    Args:
        console: the address of the console.
        job: a name, or `namespace/name`; empty: the start page.
        namespace: of a job without one.
    """
    if not job:
        return f"{console}/"
    return f"{console}/find?job={quote(job if '/' in job else f'{namespace}/{job}')}"


def _row(job: Resource, now: dt.datetime, *, namespaces: bool) -> tuple[str, ...]:
    status = _status(job)
    checkpoint = status.get("checkpoint") or {}
    cells = (
        _name(job),
        _phase(job),
        str(checkpoint.get("lastEpoch", "-")),
        _ago(checkpoint.get("lastEpochTime"), now) or "-",
        str(status.get("restarts", 0)),
        why(job),
    )
    return (job["metadata"].get("namespace", ""), *cells) if namespaces else cells


def _name(job: Resource) -> str:
    return str(job["metadata"]["name"])


def _status(job: Resource) -> Resource:
    return job.get("status") or {}


def _phase(job: Resource) -> str:
    return str(_status(job).get("phase", "Pending"))


def _problems(job: Resource) -> Iterator[str]:
    found = {one["type"]: one for one in _status(job).get("conditions") or ()}
    if not found:
        yield "no operator has written a status yet: does one run, and watch this namespace?"
    reported: set[str] = set()
    for kind, bad in _PROBLEMS.items():
        condition = found.get(kind)
        if condition is None or condition.get("status") != bad:
            continue
        reason, message = condition.get("reason", ""), condition.get("message", "")
        if kind == "Ready" and reason in _EXPECTED:
            continue
        text = ": ".join(filter(None, (reason, message)))
        if text not in reported:
            yield text
        reported.add(text)


def _failures(job: Resource, now: dt.datetime) -> Iterator[str]:
    for failure in _status(job).get("failures") or ():
        count = failure.get("count", 1)
        times = f"{count} of them, the last " if count > 1 else ""
        ago, ran = _ago(failure.get("time"), now) or "?", failure.get("runSeconds", 0)
        yield f"{failure.get('kind', '?')}: {times}{ago} ago, after {_duration(ran)}"


def _events(events: Iterable[Resource], now: dt.datetime) -> Iterator[str]:
    def last_seen(event: Resource) -> str:
        series = event.get("series") or {}
        times = (
            series.get("lastObservedTime"),
            event.get("lastTimestamp"),
            event.get("eventTime"),
            event["metadata"].get("creationTimestamp"),
        )
        return next((str(time) for time in times if time), "")

    for event in sorted(events, key=last_seen)[-_EVENTS:]:
        text = event.get("message") or event.get("note") or ""
        yield f"{_ago(last_seen(event), now) or '?'} ago  {event.get('reason', '')}: {text}"


def _section(title: str, lines: Iterable[str]) -> list[str]:
    content = [f"    {line}" for line in lines]
    return [f"  {title}:", *content] if content else []


def _ago(time: object, now: dt.datetime) -> str:
    """Return how long ago an RFC 3339 time was; empty for none."""
    if not isinstance(time, str):
        return ""
    try:
        then = dt.datetime.fromisoformat(time)
    except ValueError:
        return ""
    return _duration(max(0.0, (now - then).total_seconds()))


def _duration(seconds: float) -> str:
    """Return a duration as kubectl shows it, in its largest whole unit."""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{seconds:.0f}s"
