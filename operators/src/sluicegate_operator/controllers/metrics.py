"""Metrics for Prometheus: durations of reconciliations, queues, failures, and the state of jobs.

Names follow the conventions of Prometheus: a unit at the end, `_total` for counters.

A scrape runs in a thread of its own while dicts change, so it reads copies made by `dict(…)`, which no
other thread interrupts. `list(….items())` allocates tuples: a garbage collection, and with it another
thread, may run in between.
"""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sluicegate_operator.api.streaming_job_status import PHASES, READY, StreamingJobStatus
from sluicegate_operator.controllers.caches import Cache, Caches
from sluicegate_operator.controllers.resource import (
    JobResource,
    SavepointResource,
    runnable_spec,
)
from sluicegate_operator.kube.client import Api
from sluicegate_operator.kube.resource import Key
from sluicegate_operator.kube.work_queue import WorkQueue
from sluicegate_operator.reconcile.upgrade_queue import waiting_since

_IDLE = ("Suspended", "Waiting", "Finished", "Failed")
"""The phases of a job that is not to make progress."""
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Metrics:
    """All metrics of one operator."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._jobs, self._requests, self._held = (
            _JobCollector(),
            _RequestCollector(),
            _HeldPodCollector(),
        )
        self._resources = _ResourceCollector()
        self.registry.register(self._resources)
        self.registry.register(self._held)
        self.registry.register(self._jobs)
        self.registry.register(self._requests)
        self._durations = Histogram(
            "sluicegate_reconcile_seconds",
            "Duration of one reconciliation of a resource, including its writes",
            ["kind"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._failures = Counter(
            "sluicegate_driver_failures_total",
            "Failed drivers by restart budget; final: no budget, because a restart cannot succeed",
            ["namespace", "job", "kind"],
            registry=self.registry,
        )
        self._restarts = Counter(
            "sluicegate_job_restarts_total",
            "Drivers started after a failure",
            ["namespace", "job"],
            registry=self.registry,
        )
        self._created = Counter(
            "sluicegate_drivers_created_total", "Driver pods created", registry=self.registry
        )
        self._promoted = Counter(
            "sluicegate_standbys_promoted_total",
            "Standbys that took over from a driver",
            registry=self.registry,
        )
        self._depth = Gauge(
            "sluicegate_queue_depth",
            "Resources waiting to be reconciled",
            ["kind"],
            registry=self.registry,
        )
        self._oldest = Gauge(
            "sluicegate_queue_oldest_seconds",
            "Longest time that a resource has been waiting or being reconciled",
            ["kind"],
            registry=self.registry,
        )
        self._leader = Gauge(
            "sluicegate_leader", "1 on the replica that is the leader", registry=self.registry
        )

    def watch_requests(self, api: Api) -> None:
        """Export how many requests a client has sent."""
        self._requests.api = api

    def watch_caches(self, caches: Caches) -> None:
        """Export what is in the caches, and their failures."""
        self._requests.caches = caches.all()
        self._held.caches = self._resources.caches = caches

    def watch_queue(self, queue: WorkQueue[Key]) -> None:
        """Export the depth, age and failures of a queue."""
        self._requests.queues.append(queue)
        self._depth.labels(queue.name).set_function(lambda: queue.depth)
        self._oldest.labels(queue.name).set_function(lambda: queue.oldest_age_s)

    def reconciled(self, kind: str, seconds: float) -> None:
        """Record the duration of a reconciliation."""
        self._durations.labels(kind).observe(seconds)

    def set_leader(self, is_leader: bool) -> None:  # noqa: FBT001 - its only argument
        """Export resources only if this replica acts on them: of several replicas, one does."""
        self._leader.set(is_leader)
        self._jobs.exported = self._resources.exported = is_leader

    def driver_created(self) -> None:
        """Count a driver's pod that was created."""
        self._created.inc()

    def standby_promoted(self) -> None:
        """Count a standby that took over."""
        self._promoted.inc()

    def job_changed(
        self, resource: JobResource, status: StreamingJobStatus, failures: Sequence[str]
    ) -> None:
        """Count the restarts that a new status adds, and the failures of drivers by kind."""
        namespace, name = resource.key
        if status.restarts > resource.status.restarts:
            self._restarts.labels(namespace, name).inc(status.restarts - resource.status.restarts)
        for kind in failures:
            self._failures.labels(namespace, name, kind.lower()).inc()

    def job_observed(self, key: Key, job: JobResource | None) -> None:
        """Export a job's state; None: it no longer exists, and its series are removed."""
        if job is not None:
            self._jobs.observe(key, job.status)
            return
        self._jobs.forget(key)
        for metric in (self._restarts, self._failures):
            metric.remove_by_labels({"namespace": key[0], "job": key[1]})


@dataclass(eq=False)
class _RequestCollector(Collector):
    """The requests to the API server, and the failures of queues and caches."""

    api: Api | None = None

    queues: list[WorkQueue[Key]] = field(default_factory=list)
    caches: Sequence[Cache[object]] = ()

    def collect(self) -> Iterable[Metric]:
        reconciling = CounterMetricFamily(
            "sluicegate_reconcile_errors_total",
            "Reconciliations that failed and are retried, by the class of the error",
            labels=["kind", "error"],
        )
        watching = CounterMetricFamily(
            "sluicegate_watch_errors_total",
            "Failed lists and watches of the API server, by resource type",
            labels=["resource"],
        )
        unreadable = GaugeMetricFamily(
            "sluicegate_unreadable_objects",
            "Objects whose newest version cannot be read, by resource type",
            labels=["resource"],
        )
        silent = GaugeMetricFamily(
            "sluicegate_api_server_silent_seconds",
            "Time since the API server last answered, for the watch where that is longest ago",
        )
        requests = CounterMetricFamily(
            "sluicegate_api_requests_total",
            "Requests to the API server; a watch counts once, when it is opened",
            labels=["verb", "resource"],
        )
        for (verb, resource), count in dict(self.api.requests).items() if self.api else ():
            requests.add_metric([verb, resource], count)
        for queue in self.queues:
            for error, count in dict(queue.errors).items():
                reconciling.add_metric([queue.name, error], count)
        for cache in self.caches:
            watching.add_metric([cache.plural], cache.errors)
            unreadable.add_metric([cache.plural], cache.unreadable)
        if self.caches:
            silent.add_metric([], max(cache.silent_s for cache in self.caches))
        return [requests, reconciling, watching, unreadable, silent]


@dataclass(eq=False)
class _HeldPodCollector(Collector):
    """Counts drivers' pods that have our finalizer, and whose job does not exist."""

    caches: Caches | None = None

    def collect(self) -> Iterable[Metric]:
        caches = self.caches
        held = Counts(key[0] for key in _held_without_job(caches)) if caches else Counts[str]()
        gauge = GaugeMetricFamily(
            "sluicegate_held_pods_without_job",
            "Drivers' pods with the operator's finalizer whose job does not exist",
            labels=["namespace"],
        )
        for namespace, count in held.items():
            gauge.add_metric([namespace], count)
        return [gauge]


@dataclass(eq=False)
class _JobCollector(Collector):
    """Computes the metrics of jobs at each scrape, if they are to be exported."""

    exported: bool = False
    _statuses: dict[Key, StreamingJobStatus] = field(default_factory=dict)
    _resumed: dict[Key, float] = field(default_factory=dict)
    """When a job left a phase in which it makes no progress, in seconds since 1970, if that was observed.

    A restart of a driver does not count: a job whose drivers fail one after the other makes no progress.
    """

    def observe(self, key: Key, status: StreamingJobStatus) -> None:
        before = self._statuses.get(key)
        if before is not None and before.phase in _IDLE and status.phase not in _IDLE:
            self._resumed[key] = time.time()
        self._statuses[key] = status

    def forget(self, key: Key) -> None:
        self._statuses.pop(key, None)
        self._resumed.pop(key, None)

    def collect(self) -> Iterable[Metric]:
        labels = ["namespace", "job"]
        phase = GaugeMetricFamily(
            "sluicegate_job_phase", "1 for the current phase of a job", labels=[*labels, "phase"]
        )
        age = GaugeMetricFamily(
            "sluicegate_job_epoch_age_seconds",
            "Time since the last progress of a job in its status, or since it was resumed after that",
            labels=labels,
        )
        attempt = GaugeMetricFamily(
            "sluicegate_job_attempt", "Number of the newest driver", labels=labels
        )
        standby = GaugeMetricFamily(
            "sluicegate_job_standby_ready",
            "1 if the standby of a job is ready; only jobs that have had a standby",
            labels=labels,
        )
        counts = dict.fromkeys(PHASES, 0) if self.exported else {}
        for key, status in dict(self._statuses).items() if self.exported else ():
            counts[status.phase] += 1
            phase.add_metric([*key, status.phase], 1)
            attempt.add_metric(list(key), status.attempt)
            if status.standby is not None:
                standby.add_metric(list(key), int(status.standby.state == READY))
            if status.checkpoint.last_epoch_time is not None:
                since = max(status.checkpoint.last_epoch_time, self._resumed.get(key, 0.0))
                age.add_metric(list(key), max(0.0, time.time() - since))
        jobs = GaugeMetricFamily("sluicegate_jobs", "Jobs in each phase", labels=["phase"])
        for name, count in counts.items():
            jobs.add_metric([name], count)
        return [phase, age, attempt, standby, jobs]


@dataclass(eq=False)
class _ResourceCollector(Collector):
    """Savepoints, volumes and waiting upgrades at each scrape, if they are to be exported."""

    exported: bool = False
    caches: Caches | None = None

    def collect(self) -> Iterable[Metric]:
        savepoints = GaugeMetricFamily(
            "sluicegate_savepoints", "Savepoints in each phase", labels=["namespace", "phase"]
        )
        newest = GaugeMetricFamily(
            "sluicegate_savepoint_newest_timestamp_seconds",
            "Unix time at which the newest savepoint of a job was completed",
            labels=["namespace", "job"],
        )
        volumes = GaugeMetricFamily(
            "sluicegate_checkpoint_volume_phase",
            "1 for the current phase of a CheckpointVolume",
            labels=["namespace", "volume", "phase"],
        )
        queued = GaugeMetricFamily(
            "sluicegate_queued_upgrades",
            "Jobs whose upgrade waits for those of other jobs",
            labels=["namespace"],
        )
        caches = self.caches if self.exported else None
        if caches is not None:
            found = [one for key in caches.savepoints if (one := caches.savepoints.get(key))]
            for phase_key, count in Counts((s.key[0], s.status.phase) for s in found).items():
                savepoints.add_metric(list(phase_key), count)
            for job, time_s in _newest_savepoints(found).items():
                newest.add_metric(list(job), time_s)
            for key in caches.volumes:
                if volume := caches.volumes.get(key):
                    volumes.add_metric([*key, volume.status.phase], 1)
            waiting = Counts(key[0] for key in caches.jobs if _is_queued(caches.jobs.get(key)))
            for namespace, count in waiting.items():
                queued.add_metric([namespace], count)
        return [savepoints, newest, volumes, queued]


def _newest_savepoints(savepoints: Iterable[SavepointResource]) -> dict[Key, float]:
    """Return when the newest savepoint of each job was completed."""
    newest: dict[Key, float] = {}
    for savepoint in savepoints:
        if savepoint.valid_spec is None or savepoint.meta.deleted:
            continue
        job = savepoint.key[0], savepoint.valid_spec.job
        for taken in savepoint.status.taken:
            newest[job] = max(newest.get(job, 0.0), taken.completion_time)
    return newest


def _is_queued(job: JobResource | None) -> bool:
    spec = runnable_spec(job) if job and not job.meta.deleted else None
    return job is not None and spec is not None and waiting_since(spec, job.status) is not None


def _held_without_job(caches: Caches) -> Iterable[Key]:
    """Yield the pods that have our finalizer, and whose job does not exist."""
    for key in caches.pods:
        found = caches.pods.get(key)
        if found is not None and found.pod.has_finalizer:
            job = caches.jobs.get(found.job)
            if job is None or job.meta.uid != found.owner:
                yield key
