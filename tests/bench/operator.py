"""The command `python -m tests.bench.operator`, which `make bench-operator` runs: the operator's own speed.

A real API server, etcd and S3 server of this machine; the operator is a process of its own. The bench
makes jobs as a user does and moves their pods' status as a kubelet does, and takes the times at which
a watch of its own sees pods: so its watch's delay is in every figure. Not here: the peers' path (a
JVM of spark-submit for each job). Called by `make`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from infra.embedded.kubernetes import KubernetesServer
from infra.embedded.process import free_ports
from infra.embedded.s3 import S3Server
from sluicegate_operator.cluster.client import Api, connect, path_of
from sluicegate_operator.cluster.informer import Informer, Key
from sluicegate_operator.cluster.objects import SeenPod, pod_of
from sluicegate_operator.resources.declaring import GROUP, VERSION
from sluicegate_operator.resources.kinds import KINDS

SPACE = "bench"
_AT_ONCE = 32
_PATIENCE_S = 300.0
_EXECUTORS = 4


class Bench:
    """The API server, the operator's process, and a view of drivers' pods."""

    def __init__(self, server: KubernetesServer, store: S3Server, api: Api) -> None:
        self._server, self._store, self._api = server, store, api
        (self._port,) = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None
        self.seen: dict[tuple[str, int], float] = {}
        """When each attempt of each job was first seen, by the monotonic clock."""
        self.pods: Informer[SeenPod] = Informer(
            api, "pods", pod_of, self._changed, SPACE, f"{GROUP}/role=driver"
        )
        self._turns = asyncio.Semaphore(_AT_ONCE)

    def _changed(self, _key: Key, _old: SeenPod | None, new: SeenPod | None) -> None:
        if new is not None:
            self.seen.setdefault((new.job[1], new.pod.attempt), time.monotonic())

    # ---- the operator's process

    async def start(self) -> None:
        """Start the operator, and return when it has read the cluster."""
        command = ["-m", "sluicegate_operator", "--all-namespaces", "--lease-namespace", SPACE]
        command += ["--kubeconfig", str(self._server.kubeconfig()), "--port", str(self._port)]
        self._process = subprocess.Popen(  # noqa: ASYNC220 - a moment, before anything is timed
            [sys.executable, *command, "--log-level", "error"], stdout=subprocess.DEVNULL
        )
        await until(lambda: self._answers("/readyz") is not None)

    def kill(self) -> None:
        """Kill the operator with SIGKILL."""
        assert self._process
        self._process.kill()
        self._process.wait()

    def memory_mib(self) -> float:
        """Return the operator's resident memory."""
        assert self._process
        return float(psutil.Process(self._process.pid).memory_info().rss) / 2**20

    def looks(self) -> float:
        """Return how many looks at jobs the operator has counted."""
        text = self._answers("/metrics") or ""
        name = 'sluicegate_reconcile_seconds_count{kind="StreamingJob"}'
        found = [line for line in text.splitlines() if line.startswith(name)]
        return float(found[0].split()[-1]) if found else 0.0

    def _answers(self, path: str) -> str | None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5.0)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.read().decode() if answer.status == http.client.OK else None
        except OSError:
            return None
        finally:
            connection.close()

    # ---- what users and kubelets do

    async def prepare(self) -> None:
        """Make the namespace, the kinds, and a volume on the store."""
        for kind in KINDS:
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            await self._api.request("POST", path, kind.definition())
        await self._api.request("POST", path_of("namespaces"), {"metadata": {"name": SPACE}})
        store = self._store.endpoint
        keys = {"accessKeyId": store.access_key, "secretAccessKey": store.secret_key}
        secret = {"metadata": {"name": "keys"}, "stringData": keys}
        await self._api.request("POST", path_of("secrets", SPACE), secret)
        bucket = store.url.removeprefix("s3://")
        spec = {
            "endpoint": store.endpoint,
            "bucket": bucket,
            "prefix": "bench",
            "credentialsSecret": "keys",
        }
        await asyncio.sleep(2.0)  # the kinds are served a moment after they were defined
        await self._make("CheckpointVolume", "checkpointvolumes", "store", spec)

    async def volume_ready(self) -> None:
        """Wait until the volume's preflight has passed."""

        async def ready() -> bool:
            found = await self._api.request("GET", path_of("checkpointvolumes", SPACE, "store"))
            return bool(found.get("status", {}).get("phase") == "Ready")

        while not await ready():  # noqa: ASYNC110 - once
            await asyncio.sleep(0.2)

    async def job(self, name: str) -> float:
        """Make a job; return when it was sent, by the monotonic clock."""
        spec = {
            "image": "jobs:1",
            "mainModule": "clicks",
            "checkpoint": {"volume": "store"},
            "restart": {"strategy": "fixed-delay", "attempts": 100, "delayS": 0},
        }
        async with self._turns:
            began = time.monotonic()
            await self._make("StreamingJob", "streamingjobs", name, spec)
        return began

    async def move(self, job: str, attempt: int, phase: str) -> float:
        """Set a driver's phase as its kubelet does; return when it was sent."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        state: dict[str, Any] = {"running": {"startedAt": now}}
        if phase == "Failed":
            ended = {"exitCode": 1, "startedAt": now, "finishedAt": now, "message": "bench"}
            state = {"terminated": ended}
        one = {"name": "driver", "image": "", "imageID": "", "ready": False, "restartCount": 0}
        status = {"phase": phase, "containerStatuses": [{**one, "state": state}]}
        async with self._turns:
            began = time.monotonic()
            path = path_of("pods", SPACE, f"{job}-{attempt}-driver", sub="status")
            await self._api.patch(path, {"status": status})
        return began

    async def executor(self, job: str, number: int) -> None:
        """Make an executor's pod, as a driver does."""
        labels = {f"{GROUP}/job": job, f"{GROUP}/role": "executor"}
        containers = [{"name": "executor", "image": "jobs:1"}]
        pod = {
            "metadata": {"name": f"{job}-exec-{number}", "labels": labels},
            "spec": {"containers": containers},
        }
        async with self._turns:
            await self._api.request("POST", path_of("pods", SPACE), pod)

    async def _make(self, kind: str, plural: str, name: str, spec: dict[str, Any]) -> None:
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        await self._api.request("POST", path_of(plural, SPACE), body)

    async def pod_of(self, job: str, attempt: int) -> float:
        """Wait for an attempt's pod; return when it was seen."""
        await until(lambda: (job, attempt) in self.seen, every_s=0.002)
        return self.seen[job, attempt]


async def until(true: Callable[[], bool], *, every_s: float = 0.02) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + _PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {_PATIENCE_S:.0f} s")
        await asyncio.sleep(every_s)


def spread(seconds: Sequence[float]) -> str:
    """Return the median and the 99th percentile in milliseconds, the least and the most."""
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, math.ceil(0.99 * len(ordered)) - 1)]
    return (
        f"p50 {1e3 * statistics.median(ordered):,.0f} ms, p99 {1e3 * p99:,.0f} ms "
        f"({1e3 * ordered[0]:,.0f} to {1e3 * ordered[-1]:,.0f}, n={len(ordered)})"
    )


async def measure(bench: Bench, jobs: int) -> AsyncIterator[tuple[str, str]]:
    """Yield each figure's name and text."""
    single = []
    for i in range(30):
        began = await bench.job(f"one-{i}")
        single.append(await bench.pod_of(f"one-{i}", 1) - began)
    yield "one job, idle operator: applied -> pod created", spread(single)

    names = [f"many-{i}" for i in range(jobs - len(single))]
    began = time.monotonic()
    await asyncio.gather(*(bench.job(name) for name in names))
    created = [await bench.pod_of(name, 1) for name in names]
    yield "sustained job -> pod created", f"{len(names) / (max(created) - began):,.1f} a second"

    names += [f"one-{i}" for i in range(len(single))]
    await asyncio.gather(*(bench.move(name, 1, "Running") for name in names))
    failed = []
    for i in range(20):
        began = await bench.move(f"one-{i}", 1, "Failed")
        failed.append(await bench.pod_of(f"one-{i}", 2) - began)
    yield "driver failed -> replacement created, backoff 0", spread(failed)

    unlucky = [name for name in names if name.startswith("many-")][: jobs // 10]
    began = time.monotonic()
    await asyncio.gather(*(bench.move(name, 1, "Failed") for name in unlucky))
    replaced = [await bench.pod_of(name, 2) for name in unlucky]
    took = max(replaced) - began
    yield f"{len(unlucky)} of {jobs:,} drivers fail at once -> all replaced", f"{took:.1f} s"

    made = (bench.executor(name, n) for name in names for n in range(_EXECUTORS))
    await asyncio.gather(*made)
    await asyncio.sleep(5.0)
    what = f"operator memory, {jobs:,} jobs, drivers, {_EXECUTORS * jobs:,} executors"
    yield what, f"{bench.memory_mib():,.0f} MiB"

    pods = set(bench.seen)
    bench.kill()
    began = time.monotonic()
    await bench.start()
    await until(lambda: bench.looks() >= jobs, every_s=0.1)
    took = time.monotonic() - began
    again = f"{took:.1f} s, its lease's 15 s in it; {len(set(bench.seen) - pods)} pods made"
    yield f"operator killed with {jobs:,} jobs -> every job looked at again", again


async def run(jobs: int, folder: Path) -> None:
    """Start everything, and print the table."""
    store = S3Server(folder / "s3")
    store.start()
    try:
        with KubernetesServer(folder / "kubernetes", {}) as server:
            api = await connect(str(server.kubeconfig()))
            bench = Bench(server, store, api)
            await bench.prepare()
            watching = asyncio.create_task(bench.pods.run())
            try:
                await bench.start()
                await bench.volume_ready()
                async for name, text in measure(bench, jobs):
                    print(f"  {name:66} {text}", flush=True)
            finally:
                with contextlib.suppress(AssertionError, ProcessLookupError):
                    bench.kill()
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
                await api.close()
    finally:
        store.stop()


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="make bench-operator ARGS=...", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000, help="default 1000")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    print(
        f"{os.cpu_count()} cores, load {load:.1f} before; API server and etcd beside the operator"
    )
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(options.jobs, Path(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
