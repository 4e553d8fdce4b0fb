"""Executors and Python workers are killed while they stage and apply; the result stays exact."""

from __future__ import annotations

import itertools
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local_services import Services
from tests.integration.kafka_reader import read_topic
from tests.robustness.failpoints.fault_matrix import chosen
from tests.robustness.traffic.faulty_jobs import DIE_ONCE
from tests.robustness.traffic.ip_count_harness import CLUSTER, Ended, Scene, scene

pytestmark = [pytest.mark.faults, pytest.mark.slow]

EPOCH = 2


@pytest.fixture
def played(services: Services, tmp_path: Path) -> Iterator[Scene]:
    """Yield a scene whose table can be written in parts, because its key compares bytewise."""
    with scene(services, tmp_path) as made:
        with services.mysql.connect() as connection, connection.cursor() as cursor:
            exact = "VARCHAR(45) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
            cursor.execute(f"ALTER TABLE {made.settings.table} MODIFY ip {exact}")
        yield made


def once(played: Scene, point: str, action: str) -> tuple[str, Path]:
    """Return a failpoint that fires in one process only, and the file that marks that it has."""
    file = played.folder / "fired"
    return f"{point}@{EPOCH}={action}~{file}", file


def check_survived(ended: Ended, fired: Path) -> None:
    """Assert that a process was killed and the driver continued without a restart."""
    assert fired.exists()
    assert ended.code == 0, ended.log
    assert EPOCH in ended.epochs("committed")


@pytest.mark.parametrize("action", ["kill-self", "kill-executor"])
def test_executor_killed_while_it_stages(played: Scene, action: str) -> None:
    """A Python worker, or its whole executor, dies while staging; its rows are staged once."""
    failpoint, fired = once(played, "stage-part", action)
    check_survived(played.run(failpoint, env=CLUSTER), fired)
    played.check_exact()


def test_worker_killed_while_it_stages_in_one_process(played: Scene) -> None:
    """Local mode retries no task: the epoch fails undecided, and the restart is exact."""
    failpoint, fired = once(played, "stage-part", "kill-self")
    ended = played.but(restart_attempts=1, restart_delay_s=0.2).run(failpoint, supervised=True)
    assert "StageFailed" in ended.log
    check_survived(ended, fired)
    played.check_exact()


def test_parts_are_applied_by_executors(played: Scene) -> None:
    """A precondition of the next tests: rows are staged as files, in two parts per sink."""
    ended = played.run_job("distributed", "before-done@1=kill-group", env=CLUSTER)
    assert ended.code == -signal.SIGKILL, ended.log
    record = played.epoch_log().read(1)
    assert record is not None
    assert not any(chunk.inline for chunk in record.chunks)
    assert all(record.parts_with_rows(played.sinks[sink]) == (0, 1) for sink in ("kafka", "mysql"))


WHERE = list(
    itertools.product(
        ("kafka", "mysql"), ("apply-written", "before-commit"), ("kill-self", "kill-executor")
    )
)
FEW = [("kafka", "apply-written", "kill-self"), ("mysql", "before-commit", "kill-executor")]
"""Each sink, point and action occurs once."""


@pytest.mark.parametrize(("sink", "point", "action"), chosen(WHERE, FEW))
def test_executor_killed_while_it_applies(
    played: Scene, sink: str, point: str, action: str
) -> None:
    """A part whose applier dies with an open transaction is in the sink once."""
    failpoint, fired = once(played, f"{point}:{played.sinks[sink]}", action)
    check_survived(played.run_job("distributed", failpoint, env=CLUSTER), fired)
    played.check_exact()


IDS = 4000


def staged_ids(services: Services, tmp_path: Path, job: str) -> Counter[bytes]:
    """Return how often each id is in the sink of a job whose executor dies during a random shuffle."""
    lines = [b"%d" % i for i in range(IDS)]
    impatient = "--conf spark.shuffle.io.maxRetries=1 --conf spark.shuffle.io.retryWait=200ms"
    settings = {
        **CLUSTER,
        DIE_ONCE: str(tmp_path / "died"),
        "PYSPARK_SUBMIT_ARGS": f"{impatient} pyspark-shell",
    }
    with scene(services, tmp_path, lines=lines, max_records=IDS * 10) as played:
        ended = played.run_job(job, env=settings)
        assert (tmp_path / "died").exists(), ended.log
        for _ in range(3):
            if ended.code == 0:
                break
            assert "StageFailed" in ended.log, ended.log
            ended = played.run_job(job, env=settings)
        assert ended.code == 0, ended.log
        records = read_topic(services.kafka.bootstrap, played.settings.topic, stable=False)
        return Counter(record.value or b"" for record in records)


def test_rule_06_one_evaluation(services: Services, tmp_path: Path) -> None:
    """An executor is killed during a shuffle by a random key; every id is staged once."""
    found = staged_ids(services, tmp_path, "shuffled")
    assert found == Counter(b"%d" % i for i in range(IDS))


def test_rule_06_without_the_checksums_spark_loses_and_repeats_rows(
    services: Services, tmp_path: Path
) -> None:
    """Without the rule the result is wrong, so the test above does test the rule."""
    found = staged_ids(services, tmp_path, "shuffled_unsafe")
    assert len(found) < IDS
    assert max(found.values()) > 1
