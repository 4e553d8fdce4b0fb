"""What a soak samples, from the answers of a cluster that does not exist."""

from __future__ import annotations

import json
from typing import cast

from tests.e2e.cluster import CommandFailed, Object
from tests.e2e.platform import CLIENT_POD, Platform
from tests.soak.samples import JOBS, Sampler, Values


class FakeCluster:
    """Answers for each pod with its memory, files and connections, and for each job with its checkpoint."""

    def __init__(self, executors: dict[str, bool], checkpoint: Object) -> None:
        self._executors, self._checkpoint = executors, checkpoint

    def list_objects(self, kind: str, selector: str) -> list[Object]:
        assert kind == "pods"
        assert "two-sinks" in selector
        gone = {True: {"deletionTimestamp": "now"}, False: {}}
        return [{"metadata": {"name": n, **gone[g]}} for n, g in self._executors.items()]

    def execute(self, pod: str, *command: str, **_: object) -> str:
        if command[0] == "python":
            return json.dumps(self._checkpoint)
        if "dead" in pod:
            raise CommandFailed(f"pod {pod} not found")
        return {CLIENT_POD: "30.5\n12\n5\n"}.get(pod, "100\n20\n10\n")


class FakePlatform:
    """A platform with both jobs and no operator."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = self.operators = cluster

    def operator_pods(self) -> list[Object]:
        return []

    def driver(self, job: str) -> str:
        return f"{job}-1-driver"

    def checkpoint(self, job: str) -> str:
        return f"s3://sluicegate/{job}/1"


def sampled(
    executors: dict[str, bool] | None = None, **checkpoint: object
) -> tuple[Values, dict[str, dict[int, float]]]:
    """Return the values of a sample, and when each epoch was in every sink."""
    answer: Object = {"folders": {}, "epochs_bytes": 0, "applied": {}, **checkpoint}
    cluster, applied_s = FakeCluster(executors or {}, answer), dict[str, dict[int, float]]()
    return Sampler(cast("Platform", FakePlatform(cluster)), applied_s).sample(), applied_s


def test_the_size_of_the_epoch_log_is_beside_its_number_of_objects() -> None:
    values, applied_s = sampled(
        folders={"epochs": 250, "staging": 3, "commits": 100},
        epochs_bytes=70_000,
        applied={"7": 12.5},
    )
    for job in JOBS:
        assert values[f"objects of {job}"] == 353
        assert values[f"epochs objects of {job}"] == 250
        assert values[f"bytes of epochs of {job}"] == 70_000
        assert values[f"staging objects of {job}"] == 3
        assert applied_s[job] == {7: 12.5}


def test_no_staged_object_is_a_value_too() -> None:
    """Otherwise the series would have only the moments in which there are some."""
    values, _ = sampled(folders={"epochs": 1})
    assert values["staging objects of two-sinks"] == 0


def test_the_executor_that_is_not_being_deleted_is_sampled() -> None:
    values, _ = sampled({"dead-exec-1": True, "exec-2": False})
    assert values["connections of two-sinks's executor"] == 10


def test_an_executor_that_is_gone_has_no_value() -> None:
    for executors in ({}, {"dead-exec-1": False}):
        values, _ = sampled(executors)
        assert not [name for name in values if "executor" in name]
        assert values["memory (MiB) of two-sinks's driver"] == 100


def test_the_connections_of_the_traffic_are_sampled() -> None:
    """Kafka counts them among its own."""
    values, _ = sampled()
    assert values["connections of traffic"] == 5
