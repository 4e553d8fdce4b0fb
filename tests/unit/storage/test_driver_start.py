"""The settings of drivers, as they are written into a checkpoint, and what never is."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sluicegate.deployment.environment import DriverEnvironment
from sluicegate.errors import StoreUnavailable
from sluicegate.packaged_job import JobSettings
from sluicegate.protocol.record import SinkBinding
from sluicegate.settings.epoch import EpochSettings
from sluicegate.settings.schema import option
from sluicegate.storage import driver_start
from sluicegate.storage.driver_failure import RETAINED
from sluicegate.storage.driver_start import (
    FOLDER,
    HIDDEN,
    SPARK_VERSION,
    DriverStart,
    deployment_settings,
    effective_settings,
    read_start,
    write_start,
)
from sluicegate.storage.object_store import LocalObjectStore

START = DriverStart(1_800_000_000_000, {"interval": "10 seconds"}, {"session": 4.25})
SECRET = "hunter2"
SINKS = {"kafka.out": SinkBinding("kafka", "topic out", 4, "k")}


@dataclass(frozen=True)
class Shop(JobSettings):
    """A job's settings, some of which are secrets."""

    greeting: str = option("", "Any text.")
    pin_token: int = option(0, "A number that is a secret.")
    regions: int = option(3, "A number.")
    mode: str = option("fast", "One of some.", choices=("fast", "safe"))


@pytest.fixture
def checkpoint(tmp_path: Path) -> LocalObjectStore:
    return LocalObjectStore(tmp_path)


def test_the_settings_of_an_epoch_its_sinks_and_versions_are_recorded() -> None:
    spark = {
        "spark.sql.shuffle.partitions": "2",
        "spark.app.id": "x",
        "spark.driver.host": "pod",
    } | {SPARK_VERSION: "4.1.2"}
    found = effective_settings(
        EpochSettings("1 Second", overlap=True), SINKS, "kafka.out", "append", spark
    )
    assert found["interval"] == "1 Second"
    assert found["overlap"] == "true"
    assert found["output-mode"] == "append"
    assert found["dead-letters"] == "kafka.out"
    assert found["sink.kafka.out"] == "topic out, parts: 4"
    assert found["spark.sql.shuffle.partitions"] == "2"
    assert {"version.sluicegate", "version.python", "spark.version"} <= found.keys()
    assert "spark.app.id" not in found, "it is another for each driver"
    assert "spark.driver.host" not in found, "the same"


def test_no_secret_is_recorded() -> None:
    url = f"mysql://root:{SECRET}@db/shop"
    settings = Shop(kafka=url, mysql=url, greeting=SECRET, pin_token=1234, source_group=url)
    sinks = {"s": replace(SINKS["kafka.out"], target=f"jdbc:mysql://root:a/{SECRET}@db:1/x")}
    spark = {
        "spark.hadoop.fs.s3a.secret.key": SECRET,
        "spark.sql.catalog.shop.uri": url,
        "spark.executorEnv.PGPASSWORD": SECRET,
        "spark.executor.extraJavaOptions": f"-Dx={SECRET}",
        "spark.kubernetes.driverEnv.TOKEN": SECRET,
        "spark.ssl.keyPassword": SECRET,
        # of recorded settings: by the name, and by the value
        "spark.sql.streaming.my.password": SECRET,
        "spark.sql.streaming.my.access-key": SECRET,
        "spark.sql.streaming.my.address": url,
        "spark.sql.execution.options": f"a=b;password={SECRET}",
        "spark.master": f"spark://user:{SECRET}@host:7077",
    }
    found = effective_settings(settings, sinks, None, "update", spark)
    assert SECRET not in json.dumps(found)
    assert "1234" not in json.dumps(found)
    assert found["dead-letters"] == "none"
    assert found["spark.master"] == found["sink.s"] == found["source-group"] == HIDDEN
    assert {"kafka", "mysql", "greeting"}.isdisjoint(found), "a job's own texts may be anything"
    assert (found["regions"], found["mode"]) == ("3", "fast")


def test_a_driver_in_a_pod_records_its_resource_and_its_requests() -> None:
    pod = {"JOB": "shop/clicks", "ATTEMPT": "7", "POD_CPU": "1500", "POD_MEMORY": "1434"}
    environment = DriverEnvironment.read({f"SLUICEGATE_{name}": pod[name] for name in pod})
    assert deployment_settings(environment) == {
        "kubernetes.job": "shop/clicks",
        "kubernetes.driver.cpu": "1500m",
        "kubernetes.driver.memory": "1434Mi",
    }, "nothing that is another for each driver"
    assert deployment_settings(DriverEnvironment.read({})) == {}


def test_a_start_is_read_as_it_was_written(checkpoint: LocalObjectStore) -> None:
    write_start(checkpoint.url, START)
    (name,) = checkpoint.entries(FOLDER)
    assert read_start(checkpoint, name) == START


def test_a_start_has_the_time_and_how_long_its_parts_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_800_000_000_000_999_999)
    assert DriverStart.now(START.settings, {"session": 4.25049}) == START


def test_a_start_waits_three_seconds_for_a_store_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The query waits for it, and the record is for people only."""
    limits: list[float] = []

    def unreachable(_address: str, *, retry_timeout_s: float) -> LocalObjectStore:
        limits.append(retry_timeout_s)
        raise StoreUnavailable("no answer")

    monkeypatch.setattr(driver_start, "open_store", unreachable)
    write_start("s3://b/x", START)
    assert limits == [3.0]


def test_a_start_that_was_deleted_meanwhile_is_none(checkpoint: LocalObjectStore) -> None:
    assert read_start(checkpoint, f"{FOLDER}1") is None


def test_a_start_of_a_version_that_measured_nothing_is_read(checkpoint: LocalObjectStore) -> None:
    checkpoint.put(f"{FOLDER}1", [b'{"started_at_ms": 1, "settings": {}}'])
    assert read_start(checkpoint, f"{FOLDER}1") == DriverStart(1, {})


def test_only_the_newest_starts_are_retained(checkpoint: LocalObjectStore) -> None:
    for number in range(RETAINED + 3):
        write_start(checkpoint.url, replace(START, started_at_ms=number))
    read = [read_start(checkpoint, name) for name in sorted(checkpoint.entries(FOLDER))]
    assert [start.started_at_ms for start in read if start] == list(range(3, RETAINED + 3))


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"[]",
        b'{"started_at_ms": 1}',
        b'{"settings": []}',
        b'{"started_at_ms": 1, "settings": {}, "seconds": {"session": NaN}}',
    ],
)
def test_a_damaged_start_is_named(checkpoint: LocalObjectStore, damage: bytes) -> None:
    checkpoint.put(f"{FOLDER}1", [damage])
    with pytest.raises(ValueError, match=f"{FOLDER}1 is damaged"):
        read_start(checkpoint, f"{FOLDER}1")


def test_a_checkpoint_that_cannot_be_written_is_only_logged(
    checkpoint: LocalObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint.put("starts", [b"a file in the place of the folder"])
    write_start(checkpoint.url, START)
    assert "were not recorded" in caplog.text
