"""The alerts and dashboards of a job, in a real Prometheus that scrapes the driver of a running job.

The job is ip_count in a driver of its own. Each of its faults is staged for real, and fires its alert.
`test_alerts_fire.py` has what an alert must not fire at.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import psutil
import pytest

from infra.local_services import Services
from infra.local_services.mariadb import MariaDB
from infra.local_services.process import free_ports
from sluicegate_jobs.ip_count.job import IpCountSettings
from tests.integration.charts.rendering import Charts, only_of_kind
from tests.integration.charts.test_dashboards import DASHBOARDS, expressions
from tests.integration.console.jobs import SOON_S, Stage
from tests.integration.operator.api import eventually
from tests.integration.prometheus import (
    Prometheus,
    empty_panels,
    filled,
    in_seconds,
    running_prometheus,
)
from tests.robustness.traffic.ip_count_harness import RunningDriver, command_of, start

pytestmark = [
    pytest.mark.integration,
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

NAMESPACE, JOB, POD = "shop", "clicks", "clicks-1-driver"
OF_JOB: Final = {"namespace": NAMESPACE, "job": JOB}
TOPIC = "clicks-in"

RECORDS, ADDRESSES = 500, 100
"""Records of an epoch, and the rows that a sink has of them."""

SLOW_MS = 20
"""How long a slow table takes for a row: two seconds an epoch."""

THRESHOLDS: Final = {
    "inDoubtSeconds": 8,
    "stalledSeconds": 20,
    "lagRecords": 4 * RECORDS,
    "sinkSeconds": 1,
    "stateRows": 8 * ADDRESSES,
}
"""A healthy job is below them with room for a machine that is busy with other tests."""

VALUES: Final[dict[str, Any]] = {
    "spec": {"epochs": {"metricsPort": 9464}},
    "metrics": {"podMonitor": {"enabled": True}, "alerts": {"enabled": True, **THRESHOLDS}},
}

NO_DATA: Final = {"Dead letters"}
"""Panels of a job that have no data before its first fault."""


@dataclass
class Scene:
    """A running job, its database, and the Prometheus that scrapes its driver."""

    stage: Stage
    settings: IpCountSettings
    database: MariaDB
    driver: RunningDriver
    prometheus: Prometheus
    sent: int = 0
    minute: int = 0

    def send(self, *records: bytes) -> None:
        """Send records to the source."""
        self.stage.send(TOPIC, records)
        self.sent += len(records)

    def send_minutes(self, count: int, addresses: int = ADDRESSES, records: int = RECORDS) -> None:
        """Send the hits of the next minutes; the windows of a minute end with a later one."""
        for _ in range(count):
            self.minute += 1
            time = f"07/Jan/2026:{self.minute // 60:02}:{self.minute % 60:02}:00 +0000"
            hosts = (f"10.0.{i % addresses // 250}.{i % addresses % 250}" for i in range(records))
            self.send(*(f'{host} - - [{time}] "GET / HTTP/1.1"'.encode() for host in hosts))

    def await_idle(self) -> None:
        """Wait until every sink has all that was sent, and no epoch runs."""
        self.stage.await_read(JOB, self.sent)
        applied = (
            f"sluicegate_epoch_applied >= {self.stage.newest(JOB)}"  # one without rows may follow
        )
        idle = f"{applied} and changes(sluicegate_epoch_applied[3s]) == 0"
        eventually(lambda: self.prometheus.query(idle), within_s=SOON_S)

    def execute(self, statement: str) -> None:
        """Execute a statement in the database."""
        with self.database.endpoint.connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement)

    def signal_jvm(self, number: signal.Signals) -> None:
        """Send a signal to the driver's JVM, and not to its Python."""
        children = psutil.Process(self.driver.process.pid).children(recursive=True)
        (jvm,) = (child for child in children if child.name() == "java")
        jvm.send_signal(number)


@pytest.fixture(scope="module")
def scene(
    services: Services, charts: Charts, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    """Yield a job that has run some epochs; the last test ends it."""
    folder = tmp_path_factory.mktemp("scene")
    documents = charts.render("job", VALUES, release=JOB, namespace=NAMESPACE)
    monitor = only_of_kind(documents, "PodMonitor")
    stage, database = Stage(services, folder / "checkpoints"), MariaDB(folder)
    (port,) = free_ports(1)
    with ExitStack() as ending:
        prometheus = ending.enter_context(running_prometheus(folder / "prometheus", monitor))
        ending.callback(database.stop)
        database.start()
        services.kafka.create_topic(TOPIC)  # of one partition, so that no hit is late
        settings = stage.ip_count(
            JOB,
            mysql=database.endpoint.url,
            metrics_port=port,
            max_records=RECORDS,
            timeout_s=0,
            apply_timeout_s=60.0,
        )
        command = command_of("ip_count", settings)
        variables = {"SLUICEGATE_JOB": f"{NAMESPACE}/{JOB}"}
        driver = start(command, folder / "driver.log", variables)
        ending.callback(driver.process.wait)
        ending.callback(driver.kill)
        scene = Scene(stage, settings, database, driver, prometheus)
        scene.send_minutes(3)
        driver.wait_for(" epoch 0 committed")
        stage.await_read(JOB, scene.sent)
        prometheus.scrape(POD, port)
        prometheus.evaluate(in_seconds(only_of_kind(documents, "PrometheusRule")["spec"]))
        yield scene


def test_prometheus_accepts_each_query_of_the_dashboards(scene: Scene) -> None:
    for dashboard in DASHBOARDS.values():
        for query in expressions(dashboard):
            scene.prometheus.query(filled(query, **OF_JOB))


def test_each_panel_of_a_running_job_has_data(scene: Scene) -> None:
    dashboard = DASHBOARDS["sluicegate-job.json"]
    scene.send_minutes(3)
    eventually(lambda: empty_panels(scene.prometheus, dashboard, **OF_JOB) <= NO_DATA)


def test_each_alert_of_a_job_fires_at_its_fault_and_not_before(scene: Scene) -> None:
    prometheus = scene.prometheus
    scene.await_idle()
    assert prometheus.fired() == set()

    with prometheus.fires("SluicegateDeadLetters", **OF_JOB, kind="unparsed"):
        scene.send(b"not a line of a log")

    with prometheus.fires("SluicegateStateLarge", **OF_JOB):
        scene.send_minutes(1, addresses=1_000, records=1_000)
    scene.send_minutes(3)
    scene.await_idle()

    with prometheus.fires("SluicegateNoProgress", **OF_JOB):
        scene.signal_jvm(signal.SIGSTOP)
    scene.signal_jvm(signal.SIGCONT)

    with prometheus.fires("SluicegateSinkSlow", **OF_JOB, sink=f"mysql.{JOB}"):
        slow = f"FOR EACH ROW DO SLEEP({SLOW_MS / 1000})"
        scene.execute(f"CREATE TRIGGER slow BEFORE INSERT ON {JOB} {slow}")
        scene.send_minutes(4)

    with prometheus.fires("SluicegateLagGrows", **OF_JOB):
        scene.send_minutes(20)

    with prometheus.fires("SluicegateEpochInDoubt", **OF_JOB):
        scene.database.kill()

    of_target = {"namespace": NAMESPACE, "job": f"{NAMESPACE}/{JOB}", "pod": POD}
    with prometheus.fires("SluicegateMetricsMissing", **of_target):
        scene.driver.signal_group(signal.SIGSTOP)
    assert len(prometheus.fired()) == 7
    assert set(prometheus.rule_health().values()) == {"ok"}
