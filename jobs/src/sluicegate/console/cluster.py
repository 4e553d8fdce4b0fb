"""StreamingJobs in Kubernetes, read and changed with the rights of a person, by impersonation.

RBAC of the API server decides, and its audit log names both the person and the console.
"""

from __future__ import annotations

import http.client
import logging
from collections.abc import Mapping
from typing import Any

from sluicegate.console.identity import Person
from sluicegate.console.model import Problem
from sluicegate.deployment.api_server import MERGE_PATCH, ApiServer, RequestRejected
from sluicegate.deployment.job_actions import API, JOBS, SAVEPOINTS, JobName

log = logging.getLogger("sluicegate.console")

_TIMEOUT_S = 10.0
_UNCHANGED = "nothing was changed"
_UNKNOWN = "it is not known whether the change was made; a repeated one does no harm"
_DO = {
    403: "let someone grant the person this right, or use the command with another login",
    404: "check whether the resource was deleted, or renamed since the last driver started",
    409: "open the page again: it was made already, or someone else changed the resource",
}
_DO_IMPERSONATE = (
    "let someone grant this to the console: `actions` of its chart names the groups, users and "
    "namespaces; before Kubernetes 1.36 set actions.constrained to false"
)
_OTHERWISE = "open the page again, which shows the job as it is, or use the command"


class RequestFailed(Exception):
    """Raised when the API server did not do what was requested.

    Args:
        problem: in three parts.
        status: the HTTP status for the page.
    """

    def __init__(self, problem: Problem, status: int) -> None:
        self.problem, self.status = problem, status
        super().__init__(problem.what)


class StreamingJobs:
    """The StreamingJobs of a cluster.

    Args:
        api: its API server.
    """

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    def read(self, job: JobName, person: Person) -> dict[str, Any]:
        """Return a StreamingJob.

        Raises:
            RequestFailed: the person may not read it, it does not exist, or the API server failed.
        """
        return self._send("read", "GET", job, person)

    def change(self, job: JobName, spec: Mapping[str, Any], person: Person) -> None:
        """Change the spec of a StreamingJob.

        Raises:
            RequestFailed: the person may not change it, it does not exist, or the API server failed.
        """
        self._send("change", "PATCH", job, person, {"spec": spec})

    def create_savepoint(
        self, job: JobName, manifest: Mapping[str, object], person: Person
    ) -> None:
        """Create a Savepoint of a job.

        Raises:
            RequestFailed: the person may not create it, it exists, or the API server failed.
        """
        self._send("create a savepoint of", "POST", job, person, manifest)

    def _send(
        self,
        verb: str,
        method: str,
        job: JobName,
        person: Person,
        body: Mapping[str, object] | None = None,
    ) -> dict[str, Any]:
        # both names are valid for Kubernetes, so they have nothing to quote
        resource = SAVEPOINTS if method == "POST" else f"{JOBS}/{job.name}"
        query = "" if method == "GET" else "?fieldValidation=Strict&fieldManager=sluicegate-console"
        what = f"{verb} StreamingJob {job} for {person.user}"
        try:
            answer = self._api.request(
                method,
                f"/apis/{API}/namespaces/{job.namespace}/{resource}{query}",
                body,
                content_type=MERGE_PATCH if method == "PATCH" else "application/json",
                headers=[
                    ("Impersonate-User", person.user),
                    *(("Impersonate-Group", group) for group in person.groups),
                ],
                timeout_s=_TIMEOUT_S,
            )
        except RequestRejected as error:
            log.warning("could not %s: %s", what, error)
            server_failed = error.status >= http.client.INTERNAL_SERVER_ERROR
            problem = Problem(
                f"the API server did not {what}: {error.message} (HTTP {error.status})",
                _UNKNOWN if server_failed and body else _UNCHANGED,
                _DO_IMPERSONATE
                if "impersonate" in error.message
                else _DO.get(error.status, _OTHERWISE),
            )
            raise RequestFailed(problem, 502 if server_failed else error.status) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            log.warning("could not %s: %r", what, error)
            problem = Problem(
                f"the API server did not answer the request to {what}: {error}",
                _UNKNOWN if body else _UNCHANGED,
                _OTHERWISE,
            )
            raise RequestFailed(problem, 502) from error
        if body is not None:
            log.info("done: %s (groups: %s): %s", what, ", ".join(person.groups) or "none", body)
        return answer
