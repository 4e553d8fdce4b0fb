"""Servers and actors of the operator's benchmark: API server, operator, users and kubelets.

The benchmark creates jobs as a user does and sets pod status as a kubelet does. It records when its own
watch sees a pod, so every figure includes the delay of that watch.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil

from infra.local_services.kube_apiserver import KubernetesServer
from infra.local_services.process import free_ports
from infra.local_services.s3 import S3Server
from sluicegate_operator.api.crds import CHECKPOINT_VOLUME, KINDS, STREAMING_JOB, Kind
from sluicegate_operator.api.fields import GROUP
from sluicegate_operator.controllers.decode import DriverPod, driver_pod_of
from sluicegate_operator.kube.client import Api, connect
from sluicegate_operator.kube.informer import Informer
from sluicegate_operator.kube.resource import NAMESPACES, PODS, SECRETS, Key

NAMESPACE = "bench"
PATIENCE_S = 300.0

_MAX_REQUESTS = 32
_PAGE = 500
_EXIT_CODES = {"Failed": 1, "Succeeded": 0}
_IDLE_SAMPLES = 5
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class BenchCluster:
    """The API server, the operator process and a cache of driver pods."""

    def __init__(self, server: KubernetesServer, store: S3Server, api: Api) -> None:
        self.server, self.api = server, api
        self._store = store
        self._port, self._other_port = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        self._follower: subprocess.Popen[bytes] | None = None
        self.seen: dict[tuple[str, int], float] = {}
        """The monotonic time at which each attempt of each job was first seen."""
        self.listeners: list[Callable[[Key, DriverPod | None, DriverPod | None], None]] = []
        """Called with each change of a driver's pod."""
        self.pods: Informer[DriverPod] = Informer(
            api, PODS, driver_pod_of, self._changed, NAMESPACE, f"{GROUP}/role=driver"
        )
        self._request_slots = asyncio.Semaphore(_MAX_REQUESTS)
        self._kubelet_slots = asyncio.Semaphore(_MAX_REQUESTS)
        """Of their own: kubelets do not wait until a user has edited a thousand jobs."""

    def _changed(self, key: Key, old: DriverPod | None, new: DriverPod | None) -> None:
        if new is not None:
            self.seen.setdefault((new.job[1], new.pod.attempt), time.monotonic())
        for listener in self.listeners:
            listener(key, old, new)

    # --- the operator's process

    async def start(self, identity: str) -> None:
        """Start the operator; return when its caches are in sync."""
        self._process = self._start(identity, self._port)
        await until(lambda: self._answers("/readyz") is not None)

    async def start_follower(self, identity: str) -> None:
        """Start another replica, which waits for the lease; return when its caches are in sync."""
        self._follower = self._start(identity, self._other_port)
        await until(lambda: self._answers("/readyz", self._other_port) is not None)

    def kill_leader(self) -> None:
        """Kill the operator with SIGKILL; the other replica becomes the one that is measured."""
        self.kill()
        self._process, self._follower = self._follower, None
        self._port, self._other_port = self._other_port, self._port

    def _start(self, identity: str, port: int) -> subprocess.Popen[bytes]:
        command = ["-m", "sluicegate_operator", "--all-namespaces", "--lease-namespace", NAMESPACE]
        # without a list, addresses of this machine are refused
        command += ["--store-endpoint", "http://127.0.0.1"]
        command += ["--kubeconfig", str(self.server.kubeconfig()), "--port", str(port)]
        command += ["--identity", identity, "--log-level", "error"]
        return subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        """Kill the operator with SIGKILL if it is running."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def memory_mib(self) -> float:
        """Return the operator's resident memory in MiB."""
        assert self._process
        return float(psutil.Process(self._process.pid).memory_info().rss) / 2**20

    async def wait_idle(self) -> None:
        """Wait until the operator's work queue stays empty."""
        idle_samples = 0
        while idle_samples < _IDLE_SAMPLES:
            start = time.monotonic()
            depths = await asyncio.to_thread(self.metrics, "sluicegate_queue_depth")
            # an operator that does not answer is not idle
            idle_samples = idle_samples + 1 if depths and not any(depths.values()) else 0
            # the metrics of 10,000 jobs take a second, which the operator lacks for its work
            await asyncio.sleep(max(0.1, 4 * (time.monotonic() - start)))

    def reconciliations(self) -> float:
        """Return how many reconciliations of jobs the operator has counted."""
        found = self.metrics("sluicegate_reconcile_seconds_count")
        return found.get('{kind="StreamingJob"}', 0.0)

    def metrics(self, name: str) -> dict[str, float]:
        """Return a metric's values by label."""
        lines = (self._answers("/metrics") or "").splitlines()
        samples = [line.removeprefix(name) for line in lines if line.startswith(name)]
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in samples}

    def requests(self) -> float:
        """Return how many requests the operator has sent, without those of its Lease."""
        found = self.metrics("sluicegate_api_requests_total").items()
        return sum(count for labels, count in found if 'resource="leases"' not in labels)

    def leads(self) -> bool:
        """Return whether the operator is the leader."""
        return self.metrics("sluicegate_leader").get("") == 1.0

    def _answers(self, path: str, port: int = 0) -> str | None:
        """Return the answer of a replica, by default of the operator that is measured."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self._port, timeout=30.0)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.read().decode() if answer.status == http.client.OK else None
        except OSError:
            return None
        finally:
            connection.close()

    # --- actions of users and kubelets

    async def prepare(self) -> None:
        """Create the namespace, the CRDs and a volume on the store."""
        for kind in KINDS:
            await self.api.request("POST", _CRDS, kind.definition())
        await self.api.request("POST", NAMESPACES.path(), {"metadata": {"name": NAMESPACE}})
        store = self._store.endpoint
        keys = {"accessKeyId": store.access_key, "secretAccessKey": store.secret_key}
        secret = {"metadata": {"name": "keys"}, "stringData": keys}
        await self.api.request("POST", SECRETS.path(NAMESPACE), secret)
        spec = {
            "endpoint": store.endpoint,
            "bucket": store.url.removeprefix("s3://"),
            "prefix": "bench",
            "credentialsSecret": "keys",
        }
        await asyncio.sleep(2.0)  # the CRDs are served shortly after their creation
        await self._create(CHECKPOINT_VOLUME, "store", spec)

    async def volume_ready(self) -> None:
        """Wait until the volume's preflight has passed."""

        async def ready() -> bool:
            path = CHECKPOINT_VOLUME.resource.path(NAMESPACE, "store")
            volume = await self.api.request("GET", path)
            return bool(volume.get("status", {}).get("phase") == "Ready")

        while not await ready():  # noqa: ASYNC110 - once
            await asyncio.sleep(0.2)

    async def create_job(self, name: str) -> float:
        """Create a job; return the monotonic time of the request."""
        spec = {
            "image": "jobs:1",
            "mainModule": "clicks",
            "checkpoint": {"volume": "store"},
            "restart": {"strategy": "FixedDelay", "attempts": 100, "delaySeconds": 0},
        }
        async with self._request_slots:
            start = time.monotonic()
            await self._create(STREAMING_JOB, name, spec)
        return start

    async def set_image(self, job: str, image: str) -> None:
        """Change the image of a job, which needs a new driver."""
        async with self._request_slots:
            path = STREAMING_JOB.resource.path(NAMESPACE, job)
            await self.api.patch(path, {"spec": {"image": image}})

    async def set_driver_phase(self, job: str, attempt: int, phase: str) -> float:
        """Set a driver's phase as its kubelet does; return the monotonic time of the request."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        state: dict[str, Any] = {"running": {"startedAt": now}}
        if phase in _EXIT_CODES:
            code = _EXIT_CODES[phase]
            terminated = {"exitCode": code, "startedAt": now, "finishedAt": now, "message": "bench"}
            state = {"terminated": terminated}
        container = {
            "name": "driver",
            "image": "",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
        }
        status = {"phase": phase, "containerStatuses": [{**container, "state": state}]}
        async with self._kubelet_slots:
            start = time.monotonic()
            path = PODS.path(NAMESPACE, f"{job}-{attempt}-driver", sub="status")
            await self.api.patch(path, {"status": status})
        return start

    async def create_executor(self, job: str, number: int) -> None:
        """Create an executor pod as a driver does."""
        labels = {f"{GROUP}/job": job, f"{GROUP}/role": "executor"}
        containers = [{"name": "executor", "image": "jobs:1"}]
        pod = {
            "metadata": {"name": f"{job}-exec-{number}", "labels": labels},
            "spec": {"containers": containers},
        }
        async with self._request_slots:
            await self.api.request("POST", PODS.path(NAMESPACE), pod)

    async def wait_pod(self, job: str, attempt: int) -> float:
        """Wait for an attempt's pod; return the monotonic time at which it was seen."""
        await until(lambda: (job, attempt) in self.seen, every_s=0.002)
        return self.seen[job, attempt]

    async def versions(self) -> dict[str, str]:
        """Return the version of every object that the operator may write, except its Lease."""
        versions = {}
        for kind in (*(kind.resource for kind in KINDS), PODS):
            token, more = "", True
            while more:
                query = {"limit": str(_PAGE), "continue": token}
                page = await self.api.request("GET", kind.path(NAMESPACE), query=query)
                for item in page["items"]:
                    meta = item["metadata"]
                    versions[f"{kind.plural}/{meta['name']}"] = meta["resourceVersion"]
                token = page["metadata"].get("continue", "")
                more = bool(token)
        return versions

    async def _create(self, kind: Kind, name: str, spec: dict[str, Any]) -> None:
        body = {
            **kind.resource.type_meta,
            "metadata": {"name": name},
            "spec": spec,
        }
        await self.api.request("POST", kind.resource.path(NAMESPACE), body)


@contextlib.asynccontextmanager
async def bench_cluster(folder: Path) -> AsyncIterator[BenchCluster]:
    """Start everything except the operator; on exit stop everything, including the operator."""
    store = S3Server(folder / "s3")
    store.start()
    try:
        with KubernetesServer(folder / "kubernetes", {}) as server:
            api = await connect(str(server.kubeconfig()))
            cluster = BenchCluster(server, store, api)
            watch: asyncio.Task[None] | None = None
            try:
                await cluster.prepare()
                watch = asyncio.create_task(cluster.pods.run())
                yield cluster
            finally:
                cluster.kill()
                if watch is not None:
                    watch.cancel()
                    await asyncio.gather(watch, return_exceptions=True)
                await api.close()
    finally:
        store.stop()


async def until(
    condition: Callable[[], bool], *, every_s: float = 0.02, within_s: float = PATIENCE_S
) -> None:
    """Wait until a condition holds.

    Raises:
        TimeoutError: the condition did not hold in time.
    """
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the condition did not hold within {within_s:.0f} s")
        await asyncio.sleep(every_s)
