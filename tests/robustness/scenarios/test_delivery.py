"""Each delivery guarantee on a real Kafka: drivers and appliers are killed, lines are counted."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from infra.local_services import Services
from tests.integration.kafka_reader import read_topic
from tests.robustness.traffic.ip_count_harness import CLUSTER, Scene, access_lines, scene

pytestmark = [pytest.mark.faults, pytest.mark.slow]

LINES, EPOCH_LINES, EPOCH = access_lines(600), 200, 1


def delivered(services: Services, played: Scene) -> Counter[bytes]:
    """Return how often a read_committed reader sees each line in the sink."""
    records = read_topic(services.kafka.bootstrap, played.settings.topic, stable=False)
    return Counter(record.value or b"" for record in records)


@pytest.mark.parametrize(
    ("delivery", "point", "times"),
    [
        ("exactly-once", "after-commit", 1),
        ("at-least-once", "before-commit", 1),
        ("at-least-once", "after-commit", 2),
        ("at-most-once", "before-commit", 0),
        ("at-most-once", "after-commit", 1),
    ],
)
def test_driver_killed_while_applying(
    services: Services, tmp_path: Path, delivery: str, point: str, times: int
) -> None:
    """The killed epoch's lines appear as often as the guarantee allows, all others once."""
    with scene(services, tmp_path, lines=LINES, delivery=delivery) as played:
        killed = played.run_job("copied", f"{point}@{EPOCH}=kill-group")
        assert killed.code == -signal.SIGKILL, killed.log
        ended = played.run_job("copied")
        assert ended.code == 0, ended.log
        found = delivered(services, played)
    often = Counter(found[line] for line in LINES)
    others = len(LINES) - EPOCH_LINES
    assert often == Counter({1: others}) + Counter({times: EPOCH_LINES})
    assert set(found) <= set(LINES)


def test_at_most_once_a_retried_task_writes_nothing(services: Services, tmp_path: Path) -> None:
    """Spark retries a killed applier's task; the retry finds the claim of the first attempt."""
    once = tmp_path / "killed"
    with scene(services, tmp_path, lines=LINES, delivery="at-most-once") as played:
        ended = played.run_job(
            "copied_in_parts", f"after-commit@{EPOCH}=kill-self~{once}", env=CLUSTER
        )
        assert once.exists(), ended.log
        if ended.code:
            ended = played.run_job("copied_in_parts", env=CLUSTER)
        assert ended.code == 0, ended.log
        found = delivered(services, played)
    assert max(found.values()) == 1
    assert found == Counter(LINES)
