"""The peers' method: `spark-submit --deploy-mode cluster`, a JVM for each job.

Operators that wrap Spark's own submission start a driver this way. Measured without such an operator:
the time from the start of the command until the driver's pod is seen, with several concurrent JVMs.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark

from tests.bench.operator.scenario import NAMESPACE, PATIENCE_S, BenchCluster

_numbers = itertools.count()


async def rate(cluster: BenchCluster, at_once: int, jobs: int) -> float:
    """Return driver pods created per second with a number of concurrent JVMs.

    Raises:
        RuntimeError: spark-submit failed.
    """
    names = [f"submitted-{next(_numbers)}" for _ in range(jobs)]
    remaining: Iterator[str] = iter(names)
    before = await _pods(cluster)
    start = time.monotonic()
    await asyncio.gather(*(_submit_each(cluster, remaining) for _ in range(at_once)))
    elapsed_s = time.monotonic() - start
    created = await _pods(cluster) - before
    if len(created) != jobs:
        raise RuntimeError(f"spark-submit created {len(created)} of {jobs} pods")
    return jobs / elapsed_s


async def _submit_each(cluster: BenchCluster, names: Iterator[str]) -> None:
    for name in names:
        process = await asyncio.create_subprocess_exec(
            *_command(cluster, name),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            # without our settings and class path
            env={k: v for k, v in os.environ.items() if not k.startswith(("SPARK", "KUBE"))},
        )
        async with asyncio.timeout(PATIENCE_S):
            output, _ = await process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"spark-submit failed: {output.decode()[-2000:]}")


def _command(cluster: BenchCluster, name: str) -> list[str]:
    server = cluster.server
    conf = {
        "spark.kubernetes.namespace": NAMESPACE,
        "spark.kubernetes.container.image": "jobs:1",
        "spark.kubernetes.driver.pod.name": f"{name}-driver",
        "spark.kubernetes.driver.label.bench": "submitted",
        # returns when the pod is created, as the operators' own submissions do
        "spark.kubernetes.submission.waitAppCompletion": "false",
        "spark.kubernetes.authenticate.submission.oauthToken": server.token(),
        "spark.kubernetes.authenticate.submission.caCertFile": str(server.certificate),
    }
    spark = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [str(spark), "--master", f"k8s://{server.url}", "--deploy-mode", "cluster"]
    command += ["--name", name]
    for key, value in conf.items():
        command += ["--conf", f"{key}={value}"]
    return [*command, "local:///opt/job.py"]


async def _pods(cluster: BenchCluster) -> set[str]:
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=bench%3Dsubmitted"
    listed = await cluster.api.request("GET", path)
    return {item["metadata"]["name"] for item in listed["items"]}
