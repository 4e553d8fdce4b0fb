"""The controller of StreamingJobs against a scripted API server: what a refused or late write leads to."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from sluicegate.errors import SettingsInvalid
from sluicegate_operator.api.codec import render
from sluicegate_operator.api.crds import CHECKPOINT_VOLUME, SAVEPOINT, STREAMING_JOB, Kind
from sluicegate_operator.api.savepoint import SavepointSpec
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.api.streaming_job_settings import ExecutorSettings
from sluicegate_operator.api.streaming_job_status import UpgradeStatus
from sluicegate_operator.controllers.caches import Caches
from sluicegate_operator.controllers.checkpoints import CheckpointResolver
from sluicegate_operator.controllers.driver_checks import DriverChecks
from sluicegate_operator.controllers.metrics import Metrics
from sluicegate_operator.controllers.refusal import refusal_of
from sluicegate_operator.controllers.resource import JobResource
from sluicegate_operator.controllers.streaming_job import JobController
from sluicegate_operator.kube.client import ApiError
from sluicegate_operator.kube.events import EventRecorder
from sluicegate_operator.reconcile.observed import Job, Observed, Progress, Refusal
from sluicegate_operator.reconcile.streaming_job.reconciler import JobOutcome
from tests.unit.operator import savepoint_builders
from tests.unit.operator.builders import NOW, alive, ended, observed, pod, spec

KEY = ("shop", "clicks")
QUOTA = ApiError(403, "Forbidden", 'pods "x" is forbidden: exceeded quota: pods=3, used: pods=3')


class ScriptedApi:
    """An API server with objects by path; `refuse` is what it answers to the creation of a pod."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.refuse: ApiError | None = None
        self.requests: list[tuple[str, str]] = []
        self.events: list[str] = []
        self.messages: list[str] = []
        self.preconditions: list[dict[str, str]] = []
        self.created_pods: list[dict[str, Any]] = []
        self.version = 100

    async def request(self, method: str, path: str, body: Any = None, **_: Any) -> dict[str, Any]:
        self.requests.append((method, path))
        if path.endswith("/events"):
            self.events.append(body["reason"])
            self.messages.append(body["message"])
            return {}
        if method == "DELETE":
            return self._delete(path, body["preconditions"])
        if method == "GET" and path.endswith("/pods"):
            return {"metadata": {"resourceVersion": str(self.version)}, "items": []}
        if "/serviceaccounts/" in path or path.endswith("/networkpolicies"):
            return {"metadata": {"labels": {"sluicegate.dev/driver-account": "true"}}}
        if method == "POST" and path.endswith("/pods"):
            if self.refuse is not None:
                raise self.refuse
            self.created_pods.append(body)
            self.version += 1
            uid = f"u-{self.version}"
            added = {
                "uid": uid,
                "resourceVersion": str(self.version),
                "creationTimestamp": "2027-01-15T08:00:00Z",
            }
            return {**body, "metadata": {**body["metadata"], **added}}
        if method == "PUT" and path.endswith("/status"):
            stored = self.objects[path.removesuffix("/status")]
            self.version += 1
            stored["status"] = copy.deepcopy(body["status"])
            stored["metadata"]["resourceVersion"] = str(self.version)
            return copy.deepcopy(stored)
        raise AssertionError((method, path))

    def _delete(self, path: str, preconditions: dict[str, str]) -> dict[str, Any]:
        self.preconditions.append(preconditions)
        meta = self.objects.get(path, {}).get("metadata", {})
        if preconditions.get("resourceVersion", "") not in ("", meta.get("resourceVersion")):
            raise ApiError(409, "Conflict", "the object has been modified")
        return {}

    async def patch(self, path: str, body: Any) -> dict[str, Any]:
        self.requests.append(("PATCH", path))
        self.version += 1
        self.objects[path]["metadata"] |= body["metadata"] | {"resourceVersion": str(self.version)}
        return copy.deepcopy(self.objects[path])

    def pods_requested(self) -> int:
        """Return how many pods were requested."""
        return sum(m == "POST" and path.endswith("/pods") for m, path in self.requests)


class Shop:
    """A namespace with a ready volume, one job and its controller; the test moves the clock."""

    def __init__(
        self,
        job_spec: Any = None,
        status: Any = None,
        controller: type[JobController] = JobController,
    ) -> None:
        self.now = NOW
        self.api = ScriptedApi()
        self.caches = Caches(self.api)  # type: ignore[arg-type]
        for cache in self.caches.all():
            for informer in cache.informers.values():
                informer.listed_at = NOW
        recorder = EventRecorder(self.api, "operator", "test", "me")  # type: ignore[arg-type]
        resolver = CheckpointResolver(self.caches)
        self.controller = controller(
            self.api,  # type: ignore[arg-type]
            self.caches,
            lambda: True,
            recorder,
            resolver,
            Metrics(),
            clock=lambda: self.now,
        )
        store = savepoint_builders.store()
        self.put(CHECKPOINT_VOLUME, "store", store.spec, store.status)
        self.put(STREAMING_JOB, "clicks", job_spec or spec(), status, uid="u-job")

    def put(self, kind: Kind, name: str, its_spec: Any, status: Any = None, **meta: Any) -> None:
        """Store a resource."""
        self.api.version += 1
        body = {
            **kind.resource.type_meta,
            "metadata": {
                "namespace": "shop",
                "name": name,
                "uid": f"u-{name}",
                "resourceVersion": str(self.api.version),
                "generation": 1,
                "creationTimestamp": "2027-01-15T07:00:00Z",
                "finalizers": ["sluicegate.dev/job"],
                **meta,
            },
            "spec": its_spec if isinstance(its_spec, dict) else render(its_spec),
            "status": {} if status is None else render(status),
        }
        self.api.objects[kind.resource.path("shop", name)] = body
        self.caches.of(kind).put(copy.deepcopy(body))

    @property
    def status(self) -> dict[str, Any]:
        """The stored status of the job."""
        stored: dict[str, Any] = self.api.objects[STREAMING_JOB.resource.path(*KEY)]["status"]
        return stored

    def condition(self, kind: str) -> dict[str, Any]:
        """Return a condition of the job."""
        found: dict[str, Any] = next(c for c in self.status["conditions"] if c["type"] == kind)
        return found

    def edit(self, changes: dict[str, Any], status: dict[str, Any] | None = None) -> None:
        """Edit the job's spec as a person does, and its status as another release does."""
        body = self.api.objects[STREAMING_JOB.resource.path(*KEY)]
        self.api.version += 1
        body["spec"] = {**body["spec"], **changes}
        body["status"] = {**body["status"], **(status or {})}
        body["metadata"]["generation"] += 1
        body["metadata"]["resourceVersion"] = str(self.api.version)
        self.caches.jobs.put(copy.deepcopy(body))

    def annotate(self, annotations: dict[str, str], **meta: Any) -> None:
        """Set the job's annotations, and other metadata."""
        body = self.api.objects[STREAMING_JOB.resource.path(*KEY)]
        self.api.version += 1
        changed = {"annotations": annotations, "resourceVersion": str(self.api.version)}
        body["metadata"] |= changed | meta
        self.caches.jobs.put(copy.deepcopy(body))

    def lose_driver(self) -> None:
        """Let the driver's pod disappear."""
        for key in list(self.caches.pods):
            found = self.caches.pods.get(key)
            assert found is not None
            self.caches.pods.informers[""].remove(key, found.pod.uid)

    async def reconcile(self, after_s: float = 0.0) -> None:
        """Reconcile the job after some time."""
        self.now += after_s
        for informer in self.caches.pods.informers.values():
            informer.listed_at = self.now
        await self.controller.reconcile(KEY)


def test_a_standby_that_is_refused_leaves_the_driver_supervised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise nothing that the driver reports is recorded, and one that hangs is never stopped."""

    async def problem(_checks: DriverChecks, _job: Job, _spec: StreamingJobSpec) -> SettingsInvalid:
        return SettingsInvalid("the account lost its label", data="", do="")

    monkeypatch.setattr(DriverChecks, "problem", problem)

    async def scenario() -> None:
        with_standby = spec(standby=1, executor=ExecutorSettings(instances=0))
        shop = Shop(with_standby, alive(with_standby))

        async def observe(_job: Job, _now: float) -> Observed:
            return observed(pod(with_standby, progress=Progress(NOW - 5, 42)))

        monkeypatch.setattr(shop.controller.observer, "observe", observe)
        await shop.reconcile()
        assert shop.status["checkpoint"]["lastEpoch"] == 42
        assert shop.api.pods_requested() == 0

    asyncio.run(scenario())


def test_refused_pod_is_reported_and_requested_less_and_less_often() -> None:
    async def scenario() -> None:
        shop = Shop()
        shop.api.refuse = QUOTA
        for _ in range(3600):
            await shop.reconcile(after_s=1)
        startup = shop.status["startup"]
        assert startup["reason"] == "QuotaExceeded"
        assert "exceeded quota" in startup["message"]
        assert shop.api.events == ["QuotaExceeded"]
        assert startup["tries"] == shop.api.pods_requested() < 20
        writes = sum(method == "PUT" for method, _ in shop.api.requests)
        assert writes <= 2 * startup["tries"]
        shop.api.refuse = None
        await shop.reconcile(after_s=300)
        await shop.reconcile()
        assert "startup" not in shop.status

    asyncio.run(scenario())


class LosesSavepoint(JobController):
    """Sees the Savepoint `sp` while it decides, and never again."""

    async def _decide(self, resource: JobResource, now: float) -> JobOutcome:
        outcome = await super()._decide(resource, now)
        self.caches.savepoints.informers[""].remove(("shop", "sp"), "u-sp")
        return outcome


def test_guard_of_restore_from_reads_the_status_that_was_just_written() -> None:
    """A Savepoint that vanishes while its checkpoint is begun must not mean an empty start."""

    async def scenario() -> None:
        upgrade = UpgradeStatus(mode="Savepoint", savepoint="sp")
        status = ended(stop_reason="Savepoint", last_epoch=41, upgrade=upgrade)
        shop = Shop(spec(image="jobs:2", upgrade_mode="Savepoint"), status, LosesSavepoint)
        taken = savepoint_builders.ready()
        shop.put(SAVEPOINT, "sp", SavepointSpec(job="clicks", stop=True), taken)
        await shop.reconcile()
        assert shop.status["checkpoint"] == {"number": 2, "restoredFrom": "sp"}
        assert not shop.api.pods_requested()
        await shop.reconcile()
        assert shop.status["startup"]["reason"] == "PreflightFailed"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("status", "message", "reason"),
    [
        (403, "pods is forbidden: exceeded quota: pods=3", "QuotaExceeded"),
        (
            403,
            'pods is forbidden: violates PodSecurity "restricted:latest"',
            "PodSecurityViolation",
        ),
        (403, "error looking up service account shop/x: not found", "ServiceAccountMissing"),
        (
            403,
            "unable to create new content because it is being terminated",
            "NamespaceTerminating",
        ),
        (403, 'User "operator" cannot create resource "pods"', "PodForbidden"),
        (400, 'admission webhook "v.io" denied the request: no', "WebhookDenied"),
        (500, 'Internal error occurred: failed calling webhook "v.io"', "WebhookFailed"),
        (422, 'Pod "x" is invalid: spec.containers[0].image', "PodInvalid"),
    ],
)
def test_reason_of_a_refusal(status: int, message: str, reason: str) -> None:
    refusal = refusal_of(ApiError(status, "Any", message), 3, 2)
    assert refusal == Refusal(3, 2, reason, message)


@pytest.mark.parametrize("status", [0, 401, 409, 429, 500, 503, 504])
def test_server_that_may_accept_the_same_request_soon_has_refused_nothing(status: int) -> None:
    assert refusal_of(ApiError(status, "Any", "try again"), 1, 1) is None


def test_driver_of_a_job_with_an_invalid_edit_is_restarted_by_the_accepted_spec() -> None:
    async def scenario() -> None:
        shop = Shop()
        await shop.reconcile()
        await shop.reconcile()
        shop.edit({"image": "jobs:2", "trigger": "Never"})
        shop.lose_driver()
        await shop.reconcile(after_s=60)
        await shop.reconcile(after_s=60)
        assert shop.status["attempt"] == 2
        assert shop.status["accepted"]["generation"] == 1
        assert shop.condition("Accepted")["reason"] == "SpecInvalid"
        created = shop.caches.pods.get(("shop", "clicks-2-driver"))
        assert created is not None
        assert created.pod.spec_hash == spec().running_hash()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "rule",
    [
        {"trigger": "Never"},
        {"sparkConf": {"spark.master": "local"}},
        {"trigger": "Once", "schedule": {"cron": "99 * * * *"}},
    ],
    ids=["of the schema", "of the pods", "of cron"],
)
def test_suspend_of_an_otherwise_invalid_edit_is_honoured(rule: dict[str, Any]) -> None:
    async def scenario() -> None:
        shop = Shop()
        await shop.reconcile()
        shop.edit({**rule, "suspend": True})
        await shop.reconcile(after_s=60)
        await shop.reconcile(after_s=60)
        assert shop.condition("Accepted")["status"] == "False"
        assert shop.status["driver"]["stopReason"] == "Suspend"

    asyncio.run(scenario())


def test_spec_that_was_never_valid_starts_nothing() -> None:
    async def scenario() -> None:
        shop = Shop()
        shop.edit({"trigger": "Never"})
        await shop.reconcile()
        assert shop.condition("Accepted")["reason"] == "SpecInvalid"
        assert not shop.api.pods_requested()

    asyncio.run(scenario())


def test_unknown_fields_are_reported_in_a_spec_and_ignored_in_a_status() -> None:
    async def scenario() -> None:
        shop = Shop()
        await shop.reconcile()
        shop.edit({"canary": {"weight": 5}, "driver": {"gpu": 1}}, {"canaryWeight": 5})
        await shop.reconcile()
        accepted = shop.condition("Accepted")
        assert accepted["reason"] == "UnknownFieldsIgnored"
        assert accepted["message"].endswith("canary, driver.gpu")
        assert shop.status["attempt"] == 1

    asyncio.run(scenario())


def test_status_that_cannot_be_read_is_reported_and_nothing_is_done() -> None:
    async def scenario() -> None:
        shop = Shop()
        await shop.reconcile()
        requests = len(shop.api.requests)
        shop.edit({}, {"phase": "Migrating"})
        for _ in range(5):
            await shop.reconcile(after_s=60)
        assert shop.api.events == ["StatusUnreadable"]
        assert len(shop.api.requests) == requests + 1
        assert shop.status["phase"] == "Migrating"

    asyncio.run(scenario())
