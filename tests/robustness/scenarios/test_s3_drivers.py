"""Drivers with their checkpoint on S3 are killed, refused and superseded; restarts are exact."""

from __future__ import annotations

import signal
import uuid
from pathlib import Path

import pytest

from infra.local_services import S3Endpoint, Services
from sluicegate.storage.object_store import open_store
from tests.robustness.failpoints.fault_matrix import select_cases
from tests.robustness.failpoints.random_failpoint import SeededRandom
from tests.robustness.failpoints.s3_proxy import Fault, proxied
from tests.robustness.traffic.ip_count_harness import (
    EPOCH_LINES,
    Scenario,
    access_lines,
    new_scenario,
)
from tests.robustness.traffic.late_lines import count_late

pytestmark = [pytest.mark.faults, pytest.mark.slow]

EPOCH = 2
"""The epoch that is killed; two epochs precede it and the rest follow."""

CASES = [("after-stage", ""), ("after-decide", ""), ("before-commit", "mysql")]
"""Always tested; of the other points each run tests a random one."""


@pytest.fixture
def scenario(services: Services, bucket: S3Endpoint, tmp_path: Path) -> Scenario:
    """Return a scenario with the default lines and its checkpoint on S3."""
    checkpoint = f"{bucket.url}/{uuid.uuid4().hex}"
    return new_scenario(services, tmp_path, checkpoint=checkpoint)


def finish_exact(scenario: Scenario) -> None:
    """Process the remaining input; assert that the result is exact."""
    scenario.finish()
    scenario.check_exact()


@pytest.mark.parametrize(("point", "sink"), select_cases(CASES, CASES[1:2]))
def test_a_driver_killed_at_a_failpoint_loses_and_repeats_nothing(
    scenario: Scenario, point: str, sink: str
) -> None:
    killed = scenario.run(f"{scenario.failpoint(point, sink, EPOCH)}=kill-group")
    assert killed.code == -signal.SIGKILL, killed.log
    assert scenario.epoch_log().newest() == (EPOCH - 1 if point == "after-stage" else EPOCH)
    finish_exact(scenario)


def test_a_driver_killed_at_a_random_failpoint_loses_and_repeats_nothing(
    scenario: Scenario,
) -> None:
    failpoint = SeededRandom().draw_failpoint(range(4))
    killed = scenario.run(f"{failpoint}=kill-group")
    assert killed.code == -signal.SIGKILL, killed.log
    scenario.finish()
    # the killed epoch has its offsets, and the next one may have: it is staged while that is applied
    least = int(failpoint.rpartition("@")[2]) + 1
    planned = [number * [EPOCH_LINES] for number in (least, least + 1)]
    scenario.check_exact(late={count_late(access_lines(), epochs) for epochs in planned})


@pytest.mark.parametrize("name", ["commits/2", r"state/0/0/3\.changelog"])
def test_a_refused_write_stops_the_driver_and_the_next_continues(
    scenario: Scenario, bucket: S3Endpoint, name: str
) -> None:
    """No file of Spark goes missing silently: the driver exits, and its supervisor restarts it."""
    with proxied(bucket) as proxy:
        proxy.faults.append(Fault("PUT", f"{name}$", "refuse"))
        result = scenario.run(env=proxy.endpoint.environment())
        assert proxy.faults[0].met == 1
    assert result.code == 1, result.log
    assert "StageFailed" in result.log
    finish_exact(scenario)


def test_rule_17_a_zombie_on_s3_exits_fenced(scenario: Scenario) -> None:
    """A driver that resumes after another has taken over exits Fenced; the result is exact."""
    zombie = scenario.with_settings(timeout_s=0.0).start(f"after-stage@{EPOCH}=stop-group")
    try:
        zombie.wait_stopped()
        finish_exact(scenario)
        zombie.signal_group(signal.SIGCONT)
        result = zombie.wait()
    finally:
        zombie.kill()
    assert result.code == 65, result.log
    scenario.check_exact()


def test_a_checkpoint_on_s3_leaves_nothing_on_local_disk(
    scenario: Scenario, tmp_path: Path
) -> None:
    """Spark's logs, state and sources and our records are all in the bucket."""
    scenario.finish()
    folders = {n.split("/")[0] for n in open_store(scenario.settings.checkpoint).names("")}
    assert {"metadata", "offsets", "commits", "state", "epochs", "sources"} <= folders
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".log"}
