"""StreamingJobs of the tests: the packaged jobs, small enough for a laptop. Pure."""

from __future__ import annotations

from tests.e2e.cluster import Object
from tests.e2e.platform import IMAGE, VOLUME, Platform

FAILPOINTS = "failpoints"
"""An optional ConfigMap with one key per job, which a driver reads at its start."""

REACHED = "/tmp/reached"
"""Created by the driver that hangs at its failpoint."""


def ip_count(platform: Platform, name: str = "ip-count", **spec: object) -> Object:
    """Return a StreamingJob that runs ip_count in its driver alone."""
    return _job(platform, name, "ip_count", {"executor": {"instances": 0}, **spec})


def two_sinks(platform: Platform, name: str = "two-sinks", **spec: object) -> Object:
    """Return a StreamingJob that runs two_sinks on an executor."""
    executor = {
        "instances": 1,
        "cores": 1,
        "memory": "600m",
        "memoryOverhead": "500m",
        "template": _template(platform, name, "executor"),
    }
    conf = {"spark.kubernetes.executor.request.cores": "100m"}
    return _job(platform, name, "two_sinks", {"executor": executor, "sparkConf": conf, **spec})


def hang_at(name: str, point: str) -> Object:
    """Return the ConfigMap that makes a job's next driver hang at a failpoint."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": FAILPOINTS},
        "data": {name: f"{point}=hang~{REACHED}"},
    }


def _job(platform: Platform, name: str, job: str, changes: Object) -> Object:
    options = changes.pop("options", [])
    spec: Object = {
        "image": IMAGE,
        "mainModule": "sluicegate.cli",
        "arguments": ["run", job, "--once", *options],
        "checkpoint": {"volume": VOLUME},
        "epochs": {"interval": "2 seconds", "minPauseMilliseconds": 100, "timeoutSeconds": 180},
        "restart": {"strategy": "ExponentialDelay", "initialDelaySeconds": 1, "maxDelaySeconds": 5},
        "upgradeMode": "LastState",
        "terminationGracePeriodSeconds": 60,
        "tracing": {"endpoint": "http://sluicegate-collector:4318"},
        "driver": {
            "cores": 1,
            "memory": "800m",
            "memoryOverhead": "600m",
            "template": _template(platform, name, "driver"),
        },
        **changes,
    }
    return {
        "apiVersion": "sluicegate.dev/v1alpha1",
        "kind": "StreamingJob",
        "metadata": {"name": name},
        "spec": spec,
    }


def _template(platform: Platform, name: str, container: str) -> Object:
    failpoints = {"configMapKeyRef": {"name": FAILPOINTS, "key": name, "optional": True}}
    env = [
        *platform.connections(),
        {"name": "SLUICEGATE_FAILPOINTS", "valueFrom": failpoints},
        # for a driver that lives for a minute; otherwise the JVM compiles for longer than that
        {"name": "JAVA_TOOL_OPTIONS", "value": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
    ]
    # small requests, so that all pods fit on two cores
    resources = {"requests": {"cpu": "100m", "memory": "700Mi"}}
    container_fields = {} if container == "executor" else {"resources": resources}
    return {"spec": {"containers": [{"name": container, "env": env, **container_fields}]}}
