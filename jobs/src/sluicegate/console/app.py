"""The console's web application: pages of a `Reader`, safe to open next to a browser's other tabs.

It answers only to known host names, so that no other page can read it through a name that it points at
this machine, and allows no script, style or request but its own.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sluicegate.console import charts
from sluicegate.console.actions import Actions
from sluicegate.console.cluster import StreamingJobs
from sluicegate.console.cost import Prices, cost
from sluicegate.console.drivers import ended_drivers
from sluicegate.console.fleet import Fleet, Snapshot
from sluicegate.console.history import history
from sluicegate.console.identity import LoginProxy
from sluicegate.console.ladder import ladder
from sluicegate.console.ledger import dead_letters, ledger
from sluicegate.console.model import (
    Epoch,
    JobFacts,
    Problem,
    State,
    condition,
    state_size,
)
from sluicegate.console.offsets import sources
from sluicegate.console.operations import operations, streaming_job
from sluicegate.console.pages import Pages
from sluicegate.console.reader import Reader
from sluicegate.console.redaction import without_secrets, without_user_info
from sluicegate.console.samples import Samples
from sluicegate.console.settings import running_settings
from sluicegate.errors import SluicegateError
from sluicegate.storage.verdict import EPOCHS, verdict

LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")
"""The host names of a console that only this machine can reach."""

TRACE_ID = "{trace_id}"
"""What the id of a trace replaces in `trace_url`."""

_HERE = Path(__file__).parent
_HEADERS = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; "
    b"img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    # with no-referrer, browsers would hide the origin of the console's own forms
    b"referrer-policy": b"same-origin",
    b"cache-control": b"no-cache",
}
_SAMPLED = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f][13579bdf]")
_AGE = re.compile(r"""(<time[^>]*>)[^<]*|data-now-ms="\d*\"""")
_NO_ETAG = 'data-etag=""'
_FIRST_ROWS = 100
"""How many jobs of the start page the first paint has, which others would delay: more than a screen."""
_LINEAGES_S = 30.0
_NOT_FOUND = 404


@dataclass(frozen=True)
class _Trend:
    """What the start page shows of a job's last epochs; it is computed again only if the job changed."""

    job: JobFacts
    busy: float | None
    sparkline: charts.Sparkline

    @classmethod
    def of(cls, job: JobFacts) -> _Trend:
        return cls(job, verdict(job.reports).busy, charts.sparkline(job.epochs))


@dataclass(frozen=True)
class Access:
    """How people act on jobs: who they are, and where the jobs are."""

    proxy: LoginProxy
    jobs: StreamingJobs


class Console:
    """The pages.

    Args:
        reader: reads the checkpoints.
        fleet: the jobs of the start page.
        samples: reads samples of dead letters.
        trace_url: address of a trace, with TRACE_ID in the place of its id; empty: no links.
        prices: of what jobs request.
        access: how people act on jobs; None: the pages are read-only.
    """

    def __init__(
        self,
        reader: Reader,
        fleet: Fleet,
        samples: Samples,
        trace_url: str,
        prices: Prices,
        access: Access | None,
    ) -> None:
        self._reader, self._fleet = reader, fleet
        self._samples, self._trace_url = samples, trace_url
        self._prices = prices
        self._templates = _templates()
        self._trends: dict[str, _Trend] = {}
        self._templates.globals["acts"] = access is not None
        self.actions: Actions | None = None
        if access is not None:
            self.actions = Actions(self._job, self._page, access.proxy, access.jobs)

    def fleet(self, _request: Request) -> Response:
        """Return the page of all jobs, the most urgent first."""
        with self._fleet.shown() as snapshot:
            return self._jobs(snapshot)

    def job(self, request: Request) -> Response:
        """Return the page of a job."""
        job = self._job(request)
        return self._page(
            "job",
            job=job,
            condition=condition(job, _now_ms()),
            verdict=verdict(job.reports[-EPOCHS:]),
            ladder=ladder(job),
            ended=ended_drivers(job),
            ribbon=charts.ribbon(job.epochs, job.thrown_away),
            sinks=_sink_colors(job.newest),
            ledger=ledger(job.epochs),
            dead_letters=dead_letters(job.epochs),
            state=state_size(job.epochs),
            place=self._samples.place(job),
            streaming_job=streaming_job(job),
            operations=operations(job),
            cost=cost(job, self._prices),
            running=running_settings(job.starts),
            # lineages hardly change, and all jobs are read for them
            history=history(job, self._fleet.snapshot(_LINEAGES_S).jobs, job.savepoints),
            redact=without_secrets,
        )

    def dead_letters(self, request: Request) -> Response:
        """Return the page of a job's dead letters, or why it cannot be shown."""
        job = self._job(request)
        place = self._samples.place(job)
        sampled = self._samples.read(job, place.topic) if place.topic else None
        return self._page(
            "dead_letters", job=job, place=place, sampled=sampled, redact=without_secrets
        )

    def epoch(self, request: Request) -> Response:
        """Return the page of an epoch."""
        job, number = self._job(request), int(request.path_params["epoch"])
        epoch = self._reader.epoch(job, number)
        if epoch is None:
            what = f"epoch {number} of {job.name} has no record: it is undecided or was pruned"
            raise HTTPException(_NOT_FOUND, what)
        return self._page(
            "epoch",
            job=job,
            epoch=epoch,
            trace_url=_trace_of(epoch, self._trace_url),
            is_applied=job.is_applied(epoch),
            discarded=job.discarded.get(number, frozenset()),
            previous=number - 1 if number - 1 in job.numbers else None,
            following=number + 1 if number + 1 in job.numbers else None,
            waterfall=charts.waterfall(epoch.report) if epoch.report else [],
            sources=sources(*self._reader.offsets(job, number)),
        )

    def find(self, request: Request) -> Response:
        """Return a redirect to the page of a job, found by its checkpoint's address or its resource."""
        name = request.query_params.get("job", "")
        if name:
            started = self._reader.checkpoint_of(name)
            if started is None:
                raise HTTPException(_NOT_FOUND, f"no driver has recorded that it runs {name}")
            return RedirectResponse(f"/job/{quote(started)}")
        address = request.query_params.get("checkpoint", "").rstrip("/")
        for key, at in self._reader.found().checkpoints.items():
            if at.rstrip("/") == address:
                return RedirectResponse(f"/job/{quote(key)}")
        raise HTTPException(_NOT_FOUND, f"no checkpoint {address} was found")

    def unavailable(self, _request: Request, error: Exception) -> Response:
        """Return the page for an error of the library, in its three parts."""
        assert isinstance(error, SluicegateError)
        problem = Problem(error.what, error.data, error.do)
        return self._page("error", status=503, problem=problem)

    def http_error(self, _request: Request, error: Exception) -> Response:
        """Return the page for an address that does not exist."""
        assert isinstance(error, HTTPException)
        problem = Problem(error.detail, "", "the start page lists what was found")
        return self._page("error", status=error.status_code, problem=problem)

    def failed(self, _request: Request, error: Exception) -> Response:
        """Return the page for a defect of the console; starlette logs the traceback."""
        what = f"the console failed with {type(error).__name__}; its log has the details"
        problem = Problem(what, "no checkpoint was changed", "report it, with the log")
        return self._page("error", status=500, problem=problem)

    def _jobs(self, snapshot: Snapshot) -> Response:
        now_ms = _now_ms()
        jobs = [(job, condition(job, now_ms)) for job in snapshot.jobs]
        jobs.sort(key=lambda each: (each[1].state.urgency, each[1].since_ms, each[0].key))
        known, self._trends = self._trends, {}
        for job in snapshot.jobs:
            trend = known.get(job.key)
            self._trends[job.key] = trend if trend and trend.job is job else _Trend.of(job)
        rows = [(job, of, self._trends[job.key]) for job, of in jobs]
        states = Counter(of.state for _, of in jobs)
        return self._page(
            "fleet",
            jobs=rows,
            first_rows=_FIRST_ROWS,
            states=[(state, states[state]) for state in State if states[state]],
            unread=None if snapshot.found is None else snapshot.found - len(jobs),
            problems=snapshot.problems,
            addresses=self._reader.addresses,
        )

    def _job(self, request: Request) -> JobFacts:
        key = request.path_params["key"]
        job = self._reader.job(key)
        if job is None:
            raise HTTPException(_NOT_FOUND, f"no checkpoint {key} was found")
        return job

    def _page(self, template: str, *, status: int = 200, **view: Any) -> Response:  # noqa: ANN401 - of any type
        page = self._templates.get_template(f"{template}.html.j2").render(view, now_ms=_now_ms())
        # JSON may contain half a surrogate pair, which UTF-8 cannot
        page = page.encode(errors="replace").decode()
        # the browser counts ages itself: a page whose ages alone differ is the same
        digest = hashlib.sha256(_AGE.sub(r"\1", page).encode()).hexdigest()[:32]
        # its script knows by that whether an event is about a newer page
        page = page.replace(_NO_ETAG, f'data-etag="{digest}"', 1)
        return HTMLResponse(page, status, {"etag": f'W/"{digest}"'})


def create_app(  # noqa: PLR0913 - what the command's options say
    reader: Reader,
    *,
    hosts: Sequence[str],
    refresh_s: float,
    wait_s: float = 0.4,
    trace_url: str = "",
    kafka: str = "",
    prices: Prices | None = None,
    access: Access | None = None,
) -> ASGIApp:
    """Return the application.

    Args:
        reader: reads the checkpoints.
        hosts: the names by which browsers may address it; '*': any.
        refresh_s: how often a page is made again while somebody views it.
        wait_s: how long the start page waits until every job is read; it then shows those that are.
        trace_url: see `Console`.
        kafka: bootstrap servers for samples of dead letters; empty: none are shown.
        prices: of what jobs request; without one, no cost is shown.
        access: how people act on jobs; None: the pages are read-only.
    """
    fleet = Fleet(reader, refresh_s / 2, wait_s)
    console = Console(reader, fleet, Samples(kafka), trace_url, prices or Prices(), access)
    page = Pages(refresh_s)
    acting = []
    if console.actions is not None:
        acting = [Route("/actions/{key:path}", console.actions.endpoint, methods=["GET", "POST"])]
    app = Starlette(
        routes=[
            Route("/", page(console.fleet)),
            Route("/find", console.find),
            Route("/job/{key:path}/epoch/{epoch:int}", page(console.epoch)),
            Route("/job/{key:path}", page(console.job)),
            Route("/dead-letters/{key:path}", page(console.dead_letters)),
            *acting,
            Mount("/static", StaticFiles(directory=_HERE / "static")),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))],
        exception_handlers={
            SluicegateError: console.unavailable,
            HTTPException: console.http_error,
            Exception: console.failed,
        },
    )
    return _with_headers(app)


def _with_headers(app: ASGIApp) -> ASGIApp:
    """Return an application whose every response has the headers, those of failures too."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = dict(message.get("headers", ()))
                more = ((name, text) for name, text in _HEADERS.items() if name not in given)
                message["headers"] = [*message.get("headers", ()), *more]
            await send(message)

        await app(scope, receive, send_with_headers)

    return answer


def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=without_user_info,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=_number, age=_age, duration=_duration, when=_when, size=_size)
    return environment


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _sink_colors(epoch: Epoch | None) -> list[tuple[str, str]]:
    sinks = epoch.sinks if epoch else {}
    return [(sink, f"sink{i % charts.COLORS}") for i, sink in enumerate(sinks)]


def _trace_of(epoch: Epoch, trace_url: str) -> str:
    """Return the address of an epoch's trace; empty if none was exported, or no store of traces is named."""
    traced = _SAMPLED.fullmatch(epoch.traceparent)
    return trace_url.replace(TRACE_ID, traced[1]) if traced and trace_url else ""


def _number(value: object) -> str:
    """Return a number for people; what a manifest has in the place of one is shown as it is."""
    return f"{value:,}" if isinstance(value, int) else str(value)


def _when(time_ms: float) -> str:
    """Return a time in ms since 1970 in UTC."""
    try:
        time = dt.datetime.fromtimestamp(time_ms / 1000, tz=dt.UTC)
    except (OSError, OverflowError, TypeError, ValueError):  # by the size of the number
        return f"at {time_ms}, which is no time"
    return time.strftime("%Y-%m-%d %H:%M:%S UTC")


def _age(time_ms: float, now_ms: float) -> str:
    """Return how long ago a time was, in its largest unit."""
    seconds = max(0, int((now_ms - time_ms) / 1000))
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def _duration(ms: float) -> str:
    return f"{ms / 1000:,.2f} s" if ms >= 1000 else f"{ms:,.1f} ms"  # noqa: PLR2004 - ms in a second


def _size(number: float) -> str:
    for unit in ("B", "kB", "MB"):
        if number < 1000:  # noqa: PLR2004
            return f"{number:,.0f} {unit}"
        number /= 1000
    return f"{number:,.1f} GB"
