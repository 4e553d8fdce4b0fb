"""A driver whose JVM has no memory left ends at once, instead of going on without some of its threads."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.local_services import Services
from sluicegate.deployment.environment import DriverVariable
from sluicegate.errors import FINAL_EXIT_CODES
from tests.robustness.traffic.ip_count_harness import EPOCH_LINES, access_lines, new_scenario
from tests.robustness.traffic.late_lines import count_late

pytestmark = [pytest.mark.faults, pytest.mark.slow]

_MEMORY = {str(DriverVariable.DRIVER_MEMORY): "512m"}


def test_a_driver_whose_heap_is_full_ends_and_the_next_one_is_exact(
    services: Services, tmp_path: Path
) -> None:
    """The thread that meets the error may be any: what catches it would leave a driver that does nothing."""
    scenario = new_scenario(services, tmp_path)
    result = scenario.run_job("out_of_memory", "after-decide@1=fill-heap", env=_MEMORY)
    assert "Terminating due to java.lang.OutOfMemoryError: Java heap space" in result.log
    assert result.code not in {0, *FINAL_EXIT_CODES}
    scenario.finish()
    # it dies in epoch 1, and epoch 2 reads the rest
    scenario.check_exact(late=count_late(access_lines(), 2 * [EPOCH_LINES]))
