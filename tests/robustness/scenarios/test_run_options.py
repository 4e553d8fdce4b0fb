"""The end of a long run is kept, whatever it waits for."""

from __future__ import annotations

import time

import pytest

from sluicegate.settings.restart import Failure, next_restart
from tests.robustness.scenarios.run_options import (
    CLEAN_UP_S,
    ENDLESS_RESTARTS,
    JOBS,
    JUDGMENT_S,
    EndOfRun,
    OutOfTime,
)

RESERVED_MINUTES = (CLEAN_UP_S + JUDGMENT_S) / 60


def test_a_wait_for_a_fault_ends_in_time_for_the_judgment() -> None:
    began = time.monotonic()
    end = EndOfRun(RESERVED_MINUTES + 1)
    assert end.deadline(30) - began == pytest.approx(30, abs=1)
    assert end.deadline(240) - began == pytest.approx(60, abs=1)
    assert not end.faults_over()
    assert EndOfRun(RESERVED_MINUTES).faults_over()


def test_a_run_that_waits_is_cut_off_at_its_end() -> None:
    end = EndOfRun((CLEAN_UP_S + 0.2) / 60)
    began = time.monotonic()
    with pytest.raises(OutOfTime), end.enforced():
        time.sleep(10)
    assert time.monotonic() - began < 5


def test_a_run_that_has_ended_is_not_cut_off() -> None:
    with EndOfRun((CLEAN_UP_S + 0.2) / 60).enforced():
        pass
    time.sleep(0.4)


@pytest.mark.parametrize("job", sorted(JOBS))
def test_the_supervisor_of_a_run_restarts_its_drivers_without_end(job: str) -> None:
    """By default that of ip_count gives up after three failures."""
    settings = JOBS[job].job.settings(**ENDLESS_RESTARTS)
    delay_s = next_restart(settings, [Failure(0.0, 5.0)] * 1000, lambda: 0.5).delay_s
    assert delay_s == pytest.approx(2)
