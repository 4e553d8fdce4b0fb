"""Faults that end the driver: a stranger finds why, what it means for the data, and what is next."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.local_services.kafka import KafkaBroker
from infra.local_services.mariadb import MariaDB
from infra.local_services.process import Server
from sluicegate_jobs.two_sinks.job import TwoSinksSettings
from tests.integration.console.conftest import Visit
from tests.integration.console.jobs import Stage, sums, supervised
from tests.integration.console.stranger import Answers, Stranger
from tests.integration.mysql_fixtures import MySQL
from tests.integration.test_spark_drivers import wait_for_stopped_child

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.slow]

ROWS_OF_EPOCH = 20

Start = Callable[[Server], None]


@pytest.fixture
def start() -> Iterator[Start]:
    """Yield what starts a server that the test may kill."""
    started: list[Server] = []

    def start_server(server: Server) -> None:
        started.append(server)
        server.start()

    yield start_server
    for server in started:
        server.stop()


def job(stage: Stage, fault: str, **settings: object) -> TwoSinksSettings:
    """Return a job with enough input for half a minute, whose driver is restarted late."""
    restart = {"restart": "fixed-delay", "restart_delay_s": 300.0}
    made = stage.two_sinks(fault, max_records=ROWS_OF_EPOCH, **restart, **settings)
    stage.send(made.source, sums(60 * ROWS_OF_EPOCH), bootstrap=made.kafka)
    return made


def finds_the_failure(visit: Visit, fault: str, reason: str) -> Stranger:
    """Find all answers, and what every failed driver has: why it failed, and what is next."""
    in_doubt = dict.fromkeys((f"kafka.{fault}-out", f"mysql.{fault.replace('-', '_')}"), True)
    stranger = visit(fault)
    stranger.finds_the_answers(Answers("failed", in_doubt, restarted="Failed: its last failed"))
    stranger.reads("Its driver failed (Stuck), and no driver has started since: restart in 300 s")
    stranger.reads(
        re.compile(r"next try\s+\u2013\s+by a new driver at 20\d\d-"),
        "section[aria-labelledby=ladder] tbody",
    )
    stranger.reads(reason, ".problem")
    for part in ("Data: ", "Do: "):
        stranger.reads(part, ".problem")
    stranger.saves_a_screenshot(fault, height=840)
    stranger.opens("#signs a")
    stranger.reads(reason, "details[open] dl")
    return stranger


def test_a_sink_that_is_down_is_named_with_its_epoch_in_doubt(
    stage: Stage, visit: Visit, start: Start, tmp_path: Path
) -> None:
    database = MariaDB(tmp_path)
    start(database)
    settings = job(stage, "sink-down", mysql=database.endpoint.url)
    with supervised(settings, tmp_path):
        stage.await_epochs("sink-down", 1)
        database.kill()
        stage.await_failure("sink-down")
        finds_the_failure(visit, "sink-down", "sink mysql.sink_down")


def test_a_broker_that_is_away_is_named(
    stage: Stage, visit: Visit, start: Start, tmp_path: Path
) -> None:
    broker = KafkaBroker(tmp_path)
    start(broker)
    settings = job(stage, "broker-away", kafka=broker.endpoint.bootstrap)
    failpoint = f"before-apply:kafka.{settings.topic}@2=stop-group"
    with supervised(settings, tmp_path, failpoint) as supervisor:
        driver = wait_for_stopped_child(supervisor)
        broker.kill()
        os.killpg(driver, signal.SIGCONT)
        stage.await_failure("broker-away")
        stranger = finds_the_failure(visit, "broker-away", "Broker transport failure")
        stranger.reads("in doubt: has 1, or 2 too", "tr.doubt")


def test_a_quota_that_is_used_up_is_named(stage: Stage, visit: Visit, tmp_path: Path) -> None:
    url = login(stage, "quota", "first", " WITH MAX_UPDATES_PER_HOUR 25")
    with supervised(job(stage, "quota", mysql=url), tmp_path):
        stage.await_failure("quota")
        finds_the_failure(visit, "quota", "max_updates_per_hour")


def test_a_wrong_secret_is_named_and_not_shown(stage: Stage, visit: Visit, tmp_path: Path) -> None:
    url = login(stage, "wrong_secret", "first-secret")
    mysql = MySQL.of(stage.services)
    with supervised(job(stage, "wrong-secret", mysql=url), tmp_path):
        stage.await_epochs("wrong-secret", 1)
        mysql.execute("ALTER USER 'wrong_secret'@'127.0.0.1' IDENTIFIED BY 'second-secret'")
        mysql.execute("KILL USER 'wrong_secret'@'127.0.0.1'")
        stage.await_failure("wrong-secret")
        stranger = finds_the_failure(visit, "wrong-secret", "Access denied")
        stranger.does_not_read("first-secret")


def login(stage: Stage, user: str, password: str, options: str = "") -> str:
    """Create a user of the database with the rights of a job; return the URL with its password."""
    mysql, server = MySQL.of(stage.services), stage.services.mysql
    who = f"'{user}'@'127.0.0.1'"
    mysql.execute(f"CREATE USER {who} IDENTIFIED BY '{password}'{options}")
    mysql.execute(f"GRANT ALL ON {server.database}.* TO {who}")
    return f"mysql://{user}:{password}@{server.host}:{server.port}/{server.database}"
