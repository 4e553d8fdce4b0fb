"""Each delivery guarantee on a real Kafka: drivers and appliers are killed, lines are counted."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from infra.local_services import Services
from sluicegate.errors import RowsLost
from tests.integration.kafka_reader import read_topic
from tests.robustness.failpoints.fault_matrix import select_cases
from tests.robustness.traffic.ip_count_harness import CLUSTER, Scenario, access_lines, new_scenario

pytestmark = [pytest.mark.faults, pytest.mark.slow]

LINES, EPOCH_LINES, EPOCH = access_lines(600), 200, 1


def delivered(services: Services, scenario: Scenario) -> Counter[bytes]:
    """Return how often a read_committed reader sees each line in the sink."""
    records = read_topic(services.kafka.bootstrap, scenario.settings.topic, stable=False)
    return Counter(record.value or b"" for record in records)


KILLED = [
    ("exactly-once", "after-commit", 1),
    ("at-least-once", "before-commit", 1),
    ("at-least-once", "after-commit", 2),
    ("at-most-once", "before-commit", 0),
    ("at-most-once", "after-commit", 1),
]

RETRIED = [("before-commit", EPOCH_LINES), ("after-commit", 0)]


@pytest.mark.parametrize(
    ("delivery", "point", "times"),
    select_cases(KILLED, KILLED[1:]),  # exactly-once is that of test_driver_killed
)
def test_a_killed_epoch_is_delivered_as_often_as_the_guarantee_allows(
    services: Services, tmp_path: Path, delivery: str, point: str, times: int
) -> None:
    """The killed epoch's lines appear as often as the guarantee allows, all others once."""
    scenario = new_scenario(services, tmp_path, lines=LINES, delivery=delivery)
    killed = scenario.run_job("copied", f"{point}@{EPOCH}=kill-group")
    assert killed.code == -signal.SIGKILL, killed.log
    result = scenario.run_job("copied")
    assert result.code == 0, result.log
    line_counts = delivered(services, scenario)
    frequencies = Counter(line_counts[line] for line in LINES)
    others = len(LINES) - EPOCH_LINES
    assert frequencies == Counter({1: others}) + Counter({times: EPOCH_LINES})
    assert set(line_counts) <= set(LINES)


@pytest.mark.parametrize(("point", "lost"), select_cases(RETRIED, RETRIED[:1]))
def test_at_most_once_a_retried_task_writes_nothing_and_the_driver_says_so(
    services: Services, tmp_path: Path, point: str, lost: int
) -> None:
    """Spark retries a killed applier's task; the retry finds the claim of the first attempt.

    Whether that one has committed is unknown, so the driver ends with RowsLost.
    """
    marker_file = tmp_path / "killed"
    scenario = new_scenario(services, tmp_path, lines=LINES, delivery="at-most-once")
    failpoint = f"{point}@{EPOCH}=kill-self~{marker_file}"
    result = scenario.run_job("copied_in_parts", failpoint, env=CLUSTER)
    assert marker_file.exists(), result.log
    assert result.code == RowsLost.exit_code, result.log
    assert "RowsLost" in result.log
    result = scenario.run_job("copied_in_parts", env=CLUSTER)
    assert result.code == 0, result.log
    line_counts = delivered(services, scenario)
    assert max(line_counts.values()) == 1
    assert line_counts.total() == len(LINES) - lost
