"""What Prometheus is told: how long looks take, what waits, how jobs are.

Names follow Prometheus' rules: a unit at the end, `_total` for what only grows. Not here: serving
them (`service.health`). Called by the controllers.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sluicegate_operator.cluster.informer import Key
from sluicegate_operator.resources.job_status import PHASES, StreamingJobStatus
from sluicegate_operator.service.views import JobResource
from sluicegate_operator.service.workqueue import WorkQueue

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Metrics:
    """All metrics of one operator."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._jobs = _Jobs()
        self.registry.register(self._jobs)
        self._looks = Histogram(
            "sluicegate_reconcile_seconds",
            "how long one look at a resource took, its writes included",
            ["kind"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._failures = Counter(
            "sluicegate_driver_failures_total",
            "drivers that failed, by the budget that it was of; final: none, as starting again cannot help",
            ["namespace", "job", "kind"],
            registry=self.registry,
        )
        self._restarts = Counter(
            "sluicegate_job_restarts_total",
            "drivers that were started after a failure",
            ["namespace", "job"],
            registry=self.registry,
        )
        self._created = Counter(
            "sluicegate_drivers_created_total", "drivers' pods made", registry=self.registry
        )
        self._depth = Gauge(
            "sluicegate_queue_depth",
            "resources that wait to be looked at",
            ["kind"],
            registry=self.registry,
        )
        self._oldest = Gauge(
            "sluicegate_queue_oldest_seconds",
            "how long a resource has waited, or been looked at, at the longest",
            ["kind"],
            registry=self.registry,
        )
        self._leader = Gauge(
            "sluicegate_leader", "1 for the operator that acts", registry=self.registry
        )

    def watch_queue(self, queue: WorkQueue[Key]) -> None:
        """Show a queue."""
        self._depth.labels(queue.name).set_function(lambda: queue.depth)
        self._oldest.labels(queue.name).set_function(lambda: queue.oldest_s)

    def reconciled(self, kind: str, seconds: float) -> None:
        """Count a look."""
        self._looks.labels(kind).observe(seconds)

    def leads(self, leads: bool) -> None:  # noqa: FBT001 - the one thing that is told
        """Show jobs if we act on them: of several operators one does."""
        self._leader.set(leads)
        self._jobs.shown = leads

    def driver_created(self) -> None:
        """Count a pod."""
        self._created.inc()

    def job_changed(
        self, found: JobResource, status: StreamingJobStatus, failures: Sequence[str]
    ) -> None:
        """Count what a new status says that the old one did not, and drivers' failures by kind."""
        namespace, name = found.key
        if status.restarts > found.status.restarts:
            self._restarts.labels(namespace, name).inc(status.restarts - found.status.restarts)
        for kind in failures:
            self._failures.labels(namespace, name, kind).inc()

    def job_seen(self, key: Key, job: JobResource | None) -> None:
        """Take in how a job is; None: it is gone, and so are its numbers."""
        if job is not None:
            self._jobs.seen[key] = job.status
            return
        self._jobs.seen.pop(key, None)
        for metric in (self._restarts, self._failures):
            metric.remove_by_labels({"namespace": key[0], "job": key[1]})


@dataclass(eq=False)
class _Jobs(Collector):
    """How jobs are at the moment of being asked, if they are to be shown."""

    shown: bool = False
    seen: dict[Key, StreamingJobStatus] = field(default_factory=dict)

    def collect(self) -> Iterable[Metric]:
        labels = ["namespace", "job"]
        phase = GaugeMetricFamily(
            "sluicegate_job_phase", "1 for the phase that a job is in", labels=[*labels, "phase"]
        )
        age = GaugeMetricFamily(
            "sluicegate_job_epoch_age_seconds",
            "since a job last reported progress, by its status",
            labels=labels,
        )
        attempt = GaugeMetricFamily(
            "sluicegate_job_attempt", "number of the newest driver", labels=labels
        )
        counts = dict.fromkeys(PHASES, 0)
        for key, status in list(self.seen.items()) if self.shown else ():
            counts[status.phase] += 1
            phase.add_metric([*key, status.phase], 1)
            attempt.add_metric(list(key), status.attempt)
            if status.last_epoch_time is not None:
                age.add_metric(list(key), max(0.0, time.time() - status.last_epoch_time))
        jobs = GaugeMetricFamily("sluicegate_jobs", "jobs in each phase", labels=["phase"])
        for name, count in counts.items() if self.shown else ():
            jobs.add_metric([name], count)
        return [phase, age, attempt, jobs]
