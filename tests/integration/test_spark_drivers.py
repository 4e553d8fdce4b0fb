"""Whole drivers, concurrent and in sequence: zombies, endless epochs, and a requested stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local_services import Services
from tests.robustness.failpoints.fault_matrix import chosen
from tests.robustness.traffic.ip_count_harness import Scene, scene

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.slow]

EPOCH = 2

WHERE = [("after-stage", ""), ("after-decide", ""), ("before-commit", "kafka"), ("before-done", "")]


@pytest.fixture
def played(services: Services, tmp_path: Path) -> Iterator[Scene]:
    """Give a scene with the default lines."""
    with scene(services, tmp_path) as made:
        yield made


@pytest.mark.parametrize(("point", "sink"), chosen(WHERE, [WHERE[0], WHERE[2]]))
def test_rule_17_a_zombie_is_harmless_to_sinks(played: Scene, point: str, sink: str) -> None:
    """A driver that resumes after another has taken over exits Fenced; the result is exact."""
    where = f"{point}{f':{played.sinks[sink]}' if sink else ''}@{EPOCH}"
    zombie = played.but(timeout_s=0.0).start(f"{where}=stop-group")
    try:
        zombie.wait_stopped()
        ended = played.but(max_records=100_000).run()
        assert ended.code == 0, ended.log
        zombie.signal_group(signal.SIGCONT)
        ended = zombie.wait()
    finally:
        zombie.kill()
    assert ended.code == 65, ended.log
    assert "Fenced: " in ended.log
    played.check_exact()


def test_rule_18_an_epoch_beyond_its_timeout_is_restarted(played: Scene) -> None:
    """The process exits with code 75, the supervisor restarts it, and the result is exact."""
    hang = f"after-stage@{EPOCH}=hang~{played.folder / 'hung'}"
    patient = played.but(timeout_s=40.0, restart_attempts=1, restart_delay_s=0.2)
    ended = patient.run(hang, supervised=True)
    assert ended.code == 0, ended.log
    assert (
        f"with exit code 75: EpochTimeout: epoch {EPOCH} took longer than its timeout" in ended.log
    )
    assert "restart in 0.2 s (fixed-delay: restart 1 of 1)" in ended.log
    played.check_exact()


def test_sigterm_stops_the_driver_after_its_epoch(played: Scene) -> None:
    """The running epoch is applied, the exit code is 0, and the next start has nothing to replay."""
    driver = played.start(f"after-stage@{EPOCH}=stop-group")
    driver.wait_stopped()
    driver.process.send_signal(signal.SIGTERM)  # delivered as soon as it continues
    driver.signal_group(signal.SIGCONT)
    ended = driver.wait()
    assert ended.code == 0, ended.log
    assert EPOCH in ended.epochs("committed")
    newest = played.epoch_log().newest()
    assert newest is not None
    assert newest < 5, "it has not stopped"
    assert (played.checkpoint / "commits" / str(newest)).exists()
    ended = played.but(max_records=100_000).run()
    assert ended.code == 0, ended.log
    assert ended.epochs("replayed") == []
    played.check_exact()
