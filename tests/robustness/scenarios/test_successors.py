"""A long run replaces only drivers that a supervisor would replace."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from tests.robustness.failpoints.fault_plan import PARTITIONS, Change
from tests.robustness.scenarios.judgment import Stuck
from tests.robustness.scenarios.successors import WHOLE_BACKLOG, Successors
from tests.robustness.traffic.long_lived_job import SupervisedDriver


def successors_of(code: int, line: str = "the end", age_s: float = 5.0) -> tuple[Successors, Mock]:
    """Return the successors of a driver that has exited with a code, and its job, without servers."""
    driver = SimpleNamespace(
        code=code, kill=Mock(), last_line=lambda: line, says=line.__contains__, age_s=age_s
    )
    job = Mock(driver=driver)
    job.scenario.settings.timeout_s = 120.0
    return Successors(job, Mock(), Mock()), job


@pytest.mark.parametrize("code", [0, 64, 66])
def test_a_driver_that_no_supervisor_restarts_is_stuck(code: int) -> None:
    """Whether the run itself had struck a server before, or not."""
    successors, job = successors_of(code)
    with pytest.raises(Stuck, match=f"exit code {code}"):
        successors.replace_ended()
    job.restart.assert_not_called()


@pytest.mark.parametrize("code", [1, 65, 75, 247])
def test_a_supervisor_that_ends_by_itself_is_stuck(code: int) -> None:
    """It has crashed or given up: the run must not restart in its place."""
    successors, job = successors_of(code)
    job.driver = Mock(spec=SupervisedDriver, **vars(job.driver))
    with pytest.raises(Stuck, match=f"exit code {code}"):
        successors.replace_ended()
    job.restart.assert_not_called()


@pytest.mark.parametrize("code", [1, 75, -9])
def test_a_driver_that_a_supervisor_restarts_is_replaced(code: int) -> None:
    successors, job = successors_of(code)
    for _ in range(2):
        successors.replace_ended()
    assert job.restart.call_count == 2


def test_a_fenced_driver_is_replaced_once() -> None:
    successors, job = successors_of(65)
    successors.replace_ended()
    with pytest.raises(Stuck):
        successors.replace_ended()
    job.restart.assert_called_once()


@pytest.mark.parametrize(("line", "age_s"), [("Sealed: …", 5.0), ("Fenced: …", 500.0)])
def test_a_driver_that_no_earlier_one_can_have_fenced_is_stuck(line: str, age_s: float) -> None:
    successors, _ = successors_of(65, line, age_s)
    with pytest.raises(Stuck):
        successors.replace_ended()


def test_a_driver_that_finds_another_partition_reads_its_whole_backlog_at_once() -> None:
    """Rows of the other partitions would be late otherwise, although the input has no late ones."""
    _, job = successors_of(-9)
    traffic, services, before = Mock(partitions=4), Mock(), job.scenario
    before.settings.source = "source"
    services.kafka.admin().create_partitions.return_value = {"source": Mock()}
    successors = Successors(job, traffic, services)
    successors.plan(Change(PARTITIONS, 1))
    successors.replace_ended()
    before.with_settings.assert_called_once_with(max_records=WHOLE_BACKLOG)
    assert job.scenario is before.with_settings.return_value
    traffic.grow.assert_called_once_with(5)
    assert successors.changed
