"""Drivers that apply an epoch while they stage the next are killed and stopped; the result is exact."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local_services import Services
from tests.robustness.failpoints.fault_matrix import chosen
from tests.robustness.traffic.ip_count_harness import Ended, Running, Scene, scene

pytestmark = [pytest.mark.faults, pytest.mark.slow]

EPOCH = 2

WHERE = [("apply-written", "kafka"), ("after-commit", "kafka"), ("before-done", "")]


@pytest.fixture
def played(services: Services, tmp_path: Path) -> Iterator[Scene]:
    """Yield a scene whose epochs overlap."""
    with scene(services, tmp_path, overlap=True) as made:
        yield made


def restarted(played: Scene) -> Ended:
    """Process the remaining input in as few epochs as possible."""
    ended = played.but(max_records=100_000).run()
    assert ended.code == 0, ended.log
    return ended


def wait_committed(played: Scene, driver: Running, epoch: int, timeout_s: float = 60.0) -> None:
    """Wait until Spark has committed an epoch."""
    deadline = time.monotonic() + timeout_s
    while not (played.checkpoint / "commits" / str(epoch)).exists():
        assert time.monotonic() < deadline, driver.text()
        time.sleep(0.05)


def test_an_epoch_that_spark_committed_and_no_sink_has_is_applied(played: Scene) -> None:
    """After a kill between Spark's commit and the apply, the next start applies the epoch."""
    driver = played.start(f"before-apply:{played.sinks['kafka']}@{EPOCH}=hang")
    wait_committed(played, driver, EPOCH)
    driver.kill()
    driver.wait()
    assert played.epoch_log().newest() == EPOCH
    ended = restarted(played)
    assert ended.epochs("replayed") == [EPOCH]
    played.check_exact()


@pytest.mark.parametrize(("point", "sink"), chosen(WHERE, WHERE[1:2]))
def test_killed_during_a_background_apply(played: Scene, point: str, sink: str) -> None:
    """A kill -9 during the apply, while the next epoch is being staged, loses and repeats nothing."""
    where = f"{point}{f':{played.sinks[sink]}' if sink else ''}"
    killed = played.run(f"{where}@{EPOCH}=kill-group")
    assert killed.code == -signal.SIGKILL, killed.log
    assert EPOCH in restarted(played).epochs("replayed")
    played.check_exact()


def test_a_driver_that_stops_cleanly_leaves_no_unapplied_epoch(played: Scene) -> None:
    """Its last epoch is marked applied, so the next start does not query the sinks for it."""
    ended = restarted(played)
    newest = played.epoch_log().newest()
    assert newest is not None
    assert newest in ended.epochs("committed")
    assert played.epoch_log().is_marked_applied(newest)
    assert restarted(played).epochs("replayed") == []
    played.check_exact()
