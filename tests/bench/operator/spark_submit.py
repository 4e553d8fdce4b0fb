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

from tests.bench.operator.scenario import PATIENCE_S, SPACE, Stage

_numbers = itertools.count()


async def rate(found: Stage, at_once: int, jobs: int) -> float:
    """Return driver pods created per second with a number of concurrent JVMs.

    Raises:
        RuntimeError: spark-submit failed.
    """
    names = [f"submitted-{next(_numbers)}" for _ in range(jobs)]
    waiting: Iterator[str] = iter(names)
    before = await _pods(found)
    began = time.monotonic()
    await asyncio.gather(*(_submit_each(found, waiting) for _ in range(at_once)))
    took = time.monotonic() - began
    made = await _pods(found) - before
    if len(made) != jobs:
        raise RuntimeError(f"spark-submit created {len(made)} of {jobs} pods")
    return jobs / took


async def _submit_each(found: Stage, waiting: Iterator[str]) -> None:
    for name in waiting:
        process = await asyncio.create_subprocess_exec(
            *_command(found, name),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            # no settings and no class path of ours
            env={k: v for k, v in os.environ.items() if not k.startswith(("SPARK", "KUBE"))},
        )
        async with asyncio.timeout(PATIENCE_S):
            said, _ = await process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"spark-submit failed: {said.decode()[-2000:]}")


def _command(found: Stage, name: str) -> list[str]:
    server = found.server
    conf = {
        "spark.kubernetes.namespace": SPACE,
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


async def _pods(found: Stage) -> set[str]:
    path = f"/api/v1/namespaces/{SPACE}/pods?labelSelector=bench%3Dsubmitted"
    listed = await found.api.request("GET", path)
    return {one["metadata"]["name"] for one in listed["items"]}
