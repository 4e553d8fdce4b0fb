"""The pages on which a person acts on a StreamingJob. They are made for each request, for that person."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from sluicegate.console.cluster import RequestFailed, StreamingJobs
from sluicegate.console.identity import Forms, LoginProxy, Person
from sluicegate.console.model import JobFacts, Problem
from sluicegate.console.operations import EFFECTS, operations, streaming_job, works_in
from sluicegate.deployment.job_actions import (
    Action,
    JobName,
    is_name,
    kubectl_command,
    plugin_command,
    savepoint_manifest,
    savepoint_name,
    spec_change,
)

_NOTHING = "nothing was changed"
_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
"""No script runs on these pages."""
_FORM_BYTES = 8_192
_FORBIDDEN, _NOT_FOUND, _CONFLICT, _INVALID = 403, 404, 409, 422


@dataclass(frozen=True)
class Offer:
    """An action that a person may confirm; `value` is what it sets, so that a repeated form is harmless."""

    action: Action
    effect: str
    value: str
    command: str


class Refused(Exception):
    """Raised when a request is not passed on to the API server."""

    def __init__(self, problem: Problem, status: int) -> None:
        self.problem, self.status = problem, status
        super().__init__(problem.what)


class Actions:
    """The pages.

    Args:
        find: returns the job that a request is about.
        page: renders a template.
        proxy: asks people for their login.
        jobs: the StreamingJobs of the cluster.
    """

    def __init__(
        self,
        find: Callable[[Request], JobFacts],
        page: Callable[..., Response],
        proxy: LoginProxy,
        jobs: StreamingJobs,
    ) -> None:
        self._find, self._render = find, page
        self._proxy, self._jobs = proxy, jobs
        self._forms = Forms()

    async def endpoint(self, request: Request) -> Response:
        """Answer a GET with the actions that are offered, and a POST by doing one."""
        form = await _form(request) if request.method == "POST" else None
        return await run_in_threadpool(self._answer, request, form)

    def _answer(self, request: Request, form: Mapping[str, str] | None) -> Response:
        job, view = self._find(request), _View()
        try:
            self._fill(view, job, request, form)
        except (Refused, RequestFailed) as error:
            view.problem, view.status = error.problem, error.status
        answer = self._render(
            "actions", status=view.status, job=job, view=view, operations=operations(job)
        )
        answer.headers["cache-control"] = "no-store"
        answer.headers["content-security-policy"] = _POLICY
        return answer

    def _fill(
        self, view: _View, job: JobFacts, request: Request, form: Mapping[str, str] | None
    ) -> None:
        """Do what a form says, if there is one, and set what the page shows."""
        headers = request.headers.items()
        person = self._proxy.person(headers)
        if isinstance(person, Problem):
            raise Refused(person, _FORBIDDEN)
        view.person = person
        if form is not None:
            given = form.get("token", ""), person, form.get("target", "")
            problem = self._forms.problem(headers, *given)
            if problem is not None:
                raise Refused(problem, _FORBIDDEN)
        view.name = streaming_job(job)
        if view.name is None:
            what = f"no driver has recorded which StreamingJob {job.name} is"
            raise Refused(Problem(what, _NOTHING, "use kubectl"), _NOT_FOUND)
        view.target = _target(view.name, job)
        view.token = self._forms.token(person, view.target)
        if form is not None and form.get("target") != view.target:
            problem = Problem(
                f"this form was for another job: this page is now that of StreamingJob {view.name} in "
                f"{job.address}",
                _NOTHING,
                "find the job that you mean on the start page, and act from its page",
            )
            raise Refused(problem, _CONFLICT)
        view.resource = self._read(view.name, job, person)
        if form is not None:
            view.done = self._act(view.name, form, person)
            view.resource = self._read(view.name, job, person)
        view.offers = _offers(view.name, view.resource)

    def _read(self, name: JobName, job: JobFacts, person: Person) -> dict[str, Any]:
        """Return the StreamingJob if it is that of the checkpoint."""
        resource = self._jobs.read(name, person)
        if not works_in(resource, job.address):
            problem = Problem(
                f"StreamingJob {name} does not work in this checkpoint, {job.address}",
                _NOTHING,
                "open the page of its current checkpoint; if there is none, someone wrote another "
                "job's name into this one",
            )
            raise Refused(problem, _CONFLICT)
        return resource

    def _act(self, name: JobName, form: Mapping[str, str], person: Person) -> Action:
        given, value = form.get("action", ""), form.get("value", "")
        if given not in set(Action) or (Action(given).disruptive and "confirmed" not in form):
            what = f"the form does not confirm one of {', '.join(Action)}"
            raise Refused(Problem(what, _NOTHING, "check the box, and send it again"), _INVALID)
        action = Action(given)
        if action is Action.SAVEPOINT:
            if not is_name(value):
                problem = Problem(f"{value!r} is no name of a Savepoint", _NOTHING, "use another")
                raise Refused(problem, _INVALID)
            self._jobs.create_savepoint(name, savepoint_manifest(value, name.name), person)
        elif action is Action.RESTART:
            if not value.isascii() or not value.isdecimal():
                problem = Problem(f"{value!r} is no restartNonce", _NOTHING, "open the page again")
                raise Refused(problem, _INVALID)
            self._jobs.change(name, {"restartNonce": int(value)}, person)
        else:
            self._jobs.change(name, spec_change(action, {}), person)
        return action


@dataclass
class _View:
    """What the page shows, as far as it is known."""

    person: Person | None = None
    target: str = ""
    token: str = ""
    name: JobName | None = None
    resource: Mapping[str, Any] | None = None
    offers: tuple[Offer, ...] = ()
    done: Action | None = None
    problem: Problem | None = None
    status: int = 200

    @property
    def phase(self) -> str:
        """The phase of the StreamingJob."""
        return str(((self.resource or {}).get("status") or {}).get("phase", "unknown"))


def _target(name: JobName, job: JobFacts) -> str:
    """Return a digest of the StreamingJob and the checkpoint that a form is for.

    The key of a checkpoint does not identify it: if one of two with the same path is no longer found, the
    other gets its key.
    """
    return hashlib.sha256(f"{name}\0{job.address}".encode()).hexdigest()


def _offers(name: JobName, resource: Mapping[str, Any]) -> tuple[Offer, ...]:
    suspended = bool((resource.get("spec") or {}).get("suspend"))
    offered = [Action.SAVEPOINT, *([Action.RESUME] if suspended else [Action.SUSPEND])]
    if not suspended:
        offered.append(Action.RESTART)
    return tuple(_offer(action, name, resource) for action in offered)


def _offer(action: Action, name: JobName, resource: Mapping[str, Any]) -> Offer:
    if action is Action.SAVEPOINT:
        value = savepoint_name(name.name, dt.datetime.now(dt.UTC))
        command = f"{plugin_command(action, name)} --name={value}"
        return Offer(action, EFFECTS[action], value, command)
    spec = spec_change(action, resource)
    value = str(spec.get("restartNonce", ""))
    return Offer(action, EFFECTS[action], value, kubectl_command(name, spec))


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form; an empty one if it is too large, which has no token."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _FORM_BYTES:
            return {}
    return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))
