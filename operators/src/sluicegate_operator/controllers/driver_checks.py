"""What is checked each time before a driver is created.

A spec was checked when it was accepted. Since then another job may have taken its path, an operator with
other rules may have started, or a label of its ServiceAccount may have changed.
"""

from __future__ import annotations

from sluicegate.errors import SettingsInvalid
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_settings import CheckpointSettings
from sluicegate_operator.controllers.caches import Caches, Index
from sluicegate_operator.controllers.resource import JobResource, job_of
from sluicegate_operator.kube.client import Api, ApiError
from sluicegate_operator.kube.resource import SERVICE_ACCOUNTS
from sluicegate_operator.pods.driver import validate
from sluicegate_operator.pods.privileges import accounts_of, validate_account
from sluicegate_operator.reconcile.observed import Job
from sluicegate_operator.reconcile.overlaps import job_with_path


class DriverChecks:
    """Checks the path, the spec and the accounts of a job that needs a driver.

    `account` is namespace and name of the operator's own ServiceAccount; two empty texts: unknown.
    """

    def __init__(self, api: Api, caches: Caches, account: tuple[str, str]) -> None:
        self._api, self._caches, self._account = api, caches, account
        self._jobs_by_folder = Index(caches.jobs, _folder_of)

    async def problem(self, job: Job, spec: StreamingJobSpec) -> SettingsInvalid | None:
        """Return why no driver may be created with a spec, or None.

        A deleted job may still apply what it has decided, even if another job has its path: its checkpoint
        is deleted only if no other job has a part of it.

        Raises:
            ApiError: the API server did not answer, or the operator may not read accounts.
        """
        path_problem = None if job.deleted else self.path_problem(job)
        refused = path_problem or validate(job.name, spec)
        return refused or await self._account_problem(job, spec)

    def path_problem(self, job: Job) -> SettingsInvalid | None:
        """Return why nothing may write to a job's path or delete it, or None."""
        keys = self._jobs_by_folder.keys(_folder(job.namespace, job.name, job.spec.checkpoint))
        jobs = (one for key in keys if (one := self._caches.jobs.get(key)) is not None)
        valid = (job_of(one, one.valid_spec) for one in jobs if one.valid_spec is not None)
        other = job_with_path(job, valid)
        if other is None:
            return None
        return SettingsInvalid(
            f"the path of its checkpoint overlaps the one of StreamingJob {other.name}",
            data="no driver is started and nothing is deleted: both would write to one folder",
            do=f"create the job with another checkpoint.path, or delete {other.name} first",
        )

    async def _account_problem(self, job: Job, spec: StreamingJobSpec) -> SettingsInvalid | None:
        """Return why the pods of a driver must not run as their ServiceAccounts, or None.

        A missing account is left to the API server, which refuses the pod.
        """
        for name in accounts_of(spec):
            try:
                path = SERVICE_ACCOUNTS.path(job.namespace, name)
                labels = (await self._api.request("GET", path))["metadata"].get("labels") or {}
            except ApiError as error:
                if not error.missing:
                    raise
                continue
            refused = validate_account(job.namespace, name, labels, self._account)
            if refused is not None:
                return refused
        return None


def _folder_of(resource: JobResource) -> tuple[str, str, str] | None:
    spec = resource.valid_spec
    return None if spec is None else _folder(*resource.key, spec.checkpoint)


def _folder(namespace: str, job: str, checkpoint: CheckpointSettings) -> tuple[str, str, str]:
    """Return namespace, volume and first folder of a job's path: two paths that overlap share these."""
    return namespace, checkpoint.volume, (checkpoint.path.strip("/") or job).split("/")[0]
