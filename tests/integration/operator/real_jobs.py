"""ip_count as a StreamingJob whose driver really runs, and the kubelet that runs it."""

from __future__ import annotations

from pathlib import Path

from sluicegate.cli.options import as_arguments
from sluicegate_jobs.ip_count.job import IpCountSettings
from tests.integration.operator.api import Api
from tests.integration.operator.process_kubelet import ProcessKubelet
from tests.integration.operator.rest_client import Object
from tests.robustness.traffic.ip_count_harness import environment


def ip_count_spec(settings: IpCountSettings, **more: object) -> Object:
    """Return the spec of a StreamingJob that runs ip_count without executors."""
    return {
        "image": "jobs:1",
        "mainModule": "sluicegate.cli",
        "arguments": ["run", "ip_count", "--once", *as_arguments(settings)],
        "checkpoint": {"volume": "store"},
        "executor": {"instances": 0},
        "epochs": {"interval": "1 second", "minPauseMilliseconds": 0, "timeoutSeconds": 180},
        **more,
    }


def kubelet_of(api: Api, namespace: str, folder: Path) -> ProcessKubelet:
    """Return a kubelet of one node, which runs the drivers of a namespace on this machine."""
    return ProcessKubelet(
        api.server,
        folder / "pods",
        nodes=[f"{namespace}-1"],
        namespace=namespace,
        environment=environment(),
    )
