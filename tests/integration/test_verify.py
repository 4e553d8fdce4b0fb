"""`sluicegate verify` finds damage in real sinks; tests/unit has each kind of damage."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from infra.local_services import Services
from sluicegate.cli.app import app
from sluicegate.cli.options import as_arguments
from tests.integration.kafka_reader import read_topic
from tests.robustness.traffic.ip_count_harness import Scenario, new_scenario

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def scenario(services: Services, tmp_path: Path) -> Scenario:
    """Return a scenario whose job has read all input and is exact."""
    created = new_scenario(services, tmp_path, max_records=100_000)
    result = created.run()
    assert result.code == 0, result.log
    created.check_exact(late=0)  # one epoch has read all
    return created


def test_verify_finds_damage_in_the_sinks(services: Services, scenario: Scenario) -> None:
    """A deleted row, a changed count and a repeated record: three findings and exit code 1."""
    settings = scenario.settings
    with services.mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {settings.table} ORDER BY window_start, ip LIMIT 1")
        cursor.execute(
            f"UPDATE {settings.table} SET hits = hits + 1 ORDER BY window_start DESC, ip LIMIT 1"
        )
        connection.commit()
    first = read_topic(services.kafka.bootstrap, settings.topic)[0]
    producer = Producer({"bootstrap.servers": services.kafka.bootstrap})
    producer.produce(settings.topic, first.value, first.key)
    assert producer.flush(30) == 0
    result = CliRunner().invoke(app, ["verify", "ip_count", *as_arguments(settings)])
    assert result.exit_code == 1
    assert "LOST: 1" in result.output
    assert "WRONG: 1" in result.output
    assert "DUPLICATED: 1" in result.output
    assert "NOT EXACT" in result.output
