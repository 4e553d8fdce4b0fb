"""Executors and Python workers are killed while they stage and apply; the result stays exact."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest

from infra.local_services import Services
from tests.integration.kafka_reader import read_topic
from tests.robustness.failpoints.fault_matrix import select_cases
from tests.robustness.traffic.faulty_jobs import DIE_ONCE_VARIABLE
from tests.robustness.traffic.ip_count_harness import CLUSTER, DriverResult, Scenario, new_scenario

pytestmark = [pytest.mark.faults, pytest.mark.slow]

EPOCH = 2


@pytest.fixture
def scenario(services: Services, tmp_path: Path) -> Scenario:
    """Return a scenario whose table can be written in parts, because its key compares bytewise."""
    created = new_scenario(services, tmp_path)
    with services.mysql.connect() as connection, connection.cursor() as cursor:
        column = "VARCHAR(45) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
        cursor.execute(f"ALTER TABLE {created.settings.table} MODIFY ip {column}")
    return created


def failpoint_fired_once(scenario: Scenario, point: str, action: str) -> tuple[str, Path]:
    """Return a failpoint that fires in one process only, and the file that marks that it has."""
    file = scenario.folder / "fired"
    return f"{point}@{EPOCH}={action}~{file}", file


def check_survived(result: DriverResult, marker_file: Path) -> None:
    """Assert that a process was killed and the driver continued without a restart."""
    assert marker_file.exists()
    assert result.code == 0, result.log
    assert EPOCH in result.epochs("committed")


@pytest.mark.parametrize("action", ["kill-self", "kill-executor"])
def test_an_executor_killed_while_it_stages_stages_its_rows_once(
    scenario: Scenario, action: str
) -> None:
    """A Python worker, or its whole executor, dies while staging; its rows are staged once."""
    failpoint, marker_file = failpoint_fired_once(scenario, "stage-part", action)
    check_survived(scenario.run(failpoint, env=CLUSTER), marker_file)
    scenario.check_exact()


def test_a_worker_killed_in_local_mode_leaves_the_epoch_undecided(scenario: Scenario) -> None:
    """Local mode retries no task: the epoch fails undecided, and the restart is exact."""
    failpoint, marker_file = failpoint_fired_once(scenario, "stage-part", "kill-self")
    result = scenario.with_settings(restart_attempts=1, restart_delay_s=0.2).run(
        failpoint, supervised=True
    )
    assert "StageFailed" in result.log
    check_survived(result, marker_file)
    scenario.check_exact()


def check_executors_applied(scenario: Scenario) -> None:
    """Assert that the rows of the epoch were staged as files, in two parts per sink."""
    record = scenario.epoch_log().read(EPOCH)
    assert record is not None
    assert not any(chunk.inline for chunk in record.chunks)
    assert all(
        record.parts_with_rows(scenario.sinks[sink]) == (0, 1) for sink in ("kafka", "mysql")
    )


CASES = list(
    itertools.product(
        ("kafka", "mysql"), ("apply-written", "before-commit"), ("kill-self", "kill-executor")
    )
)
DEFAULT_CASES = [
    ("kafka", "apply-written", "kill-self"),
    ("mysql", "before-commit", "kill-executor"),
]
"""Each sink, point and action occurs once."""


@pytest.mark.parametrize(("sink", "point", "action"), select_cases(CASES, DEFAULT_CASES))
def test_an_executor_killed_while_it_applies_writes_its_part_once(
    scenario: Scenario, sink: str, point: str, action: str
) -> None:
    """A part whose applier dies with an open transaction is in the sink once."""
    failpoint, marker_file = failpoint_fired_once(
        scenario, f"{point}:{scenario.sinks[sink]}", action
    )
    check_survived(scenario.run_job("distributed", failpoint, env=CLUSTER), marker_file)
    check_executors_applied(scenario)
    scenario.check_exact()


ID_COUNT = 4000


def staged_ids(services: Services, tmp_path: Path, job: str) -> Counter[bytes]:
    """Return how often each id is in the sink of a job whose executor dies during a random shuffle."""
    lines = [b"%d" % i for i in range(ID_COUNT)]
    few_retries = "--conf spark.shuffle.io.maxRetries=1 --conf spark.shuffle.io.retryWait=200ms"
    variables = {
        **CLUSTER,
        DIE_ONCE_VARIABLE: str(tmp_path / "died"),
        "PYSPARK_SUBMIT_ARGS": f"{few_retries} pyspark-shell",
    }
    scenario = new_scenario(services, tmp_path, lines=lines, max_records=ID_COUNT * 10)
    result = scenario.run_job(job, env=variables)
    assert (tmp_path / "died").exists(), result.log
    for _ in range(3):
        if result.code == 0:
            break
        assert "StageFailed" in result.log, result.log
        result = scenario.run_job(job, env=variables)
    assert result.code == 0, result.log
    records = read_topic(services.kafka.bootstrap, scenario.settings.topic, stable=False)
    return Counter(record.value or b"" for record in records)


def test_rule_06_rows_of_a_random_shuffle_are_evaluated_once(
    services: Services, tmp_path: Path
) -> None:
    """An executor is killed during a shuffle by a random key; every id is staged once."""
    id_counts = staged_ids(services, tmp_path, "shuffled")
    assert id_counts == Counter(b"%d" % i for i in range(ID_COUNT))


def test_rule_06_without_the_checksums_spark_loses_and_repeats_rows(
    services: Services, tmp_path: Path
) -> None:
    """Without the rule the result is wrong, so the test above does test the rule."""
    id_counts = staged_ids(services, tmp_path, "shuffled_unsafe")
    assert len(id_counts) < ID_COUNT
    assert max(id_counts.values()) > 1
