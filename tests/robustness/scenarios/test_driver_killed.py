"""The driver is killed with kill -9 at each of its failpoints; after a restart the result is exact."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from infra.local_services import Services
from sluicegate.cli.app import app
from sluicegate.failpoints import POINTS
from sluicegate_jobs.ip_count.verify import verify
from tests.robustness.failpoints.fault_matrix import select_cases
from tests.robustness.traffic.ip_count_harness import DriverResult, Scenario, new_scenario

pytestmark = [pytest.mark.faults, pytest.mark.slow]

EPOCH = 2
"""The epoch that is killed; two epochs precede it and four follow."""

UNDECIDED_POINTS = ("before-stage", "after-stage", "before-decide")
DECIDED_POINTS = ("after-decide", "before-done")
APPLY_POINTS = (
    "before-apply",
    "apply-begun",
    "apply-written",
    "apply-flushed",
    "before-commit",
    "after-commit",
    "after-apply",
)
"""Points that a driver passes once for each sink."""

SAVEPOINT_POINTS = {
    "savepoint-copying",
    "before-seal",
    "after-seal",
    "before-manifest",
    "restore-copying",
}
TESTED_ELSEWHERE = {
    "stage-part",
    *SAVEPOINT_POINTS,
    *("pruning-log", "before-sweep", "before-takeover", "after-takeover"),
    *("before-receipt", "after-receipt"),
    *("replay-begun", "replay-written", "replay-committed"),
}
"""Tested in test_executors_killed, test_savepoints, test_socket_to_kafka and test_dead_letters, and by unit
tests of the epoch log (pruning) and of the takeover."""

CASES = [
    *((point, "") for point in (*UNDECIDED_POINTS, *DECIDED_POINTS)),
    *((point, sink) for point in APPLY_POINTS for sink in ("kafka", "mysql")),
    *((point, "dead-letters") for point in ("before-commit", "after-commit")),
]

DEFAULT_CASES = [("after-stage", ""), ("after-commit", "kafka")]
"""One before the decision, one in doubt; a supervised job passes all points below."""

JVM_CASES = [("after-stage", ""), ("after-decide", ""), ("before-commit", "mysql")]
PYTHON_CASES = [("before-decide", ""), ("before-commit", "kafka")]


@pytest.fixture
def scenario(services: Services, tmp_path: Path) -> Scenario:
    """Return a scenario with the default lines, and without overlap.

    With it the sinks may not have the epoch before the killed one yet; see test_overlap.
    """
    return new_scenario(services, tmp_path, overlap=False)


def failpoint_setting(scenario: Scenario, point: str, sink: str, action: str = "kill-group") -> str:
    """Return the failpoint setting for a point of the killed epoch."""
    return f"{scenario.failpoint(point, sink, EPOCH)}={action}"


def check_epoch(result: DriverResult, *, decided: bool) -> None:
    """Assert that a decided epoch was replayed and an undecided one ran again."""
    epochs = result.epochs("committed"), result.epochs("replayed")
    assert EPOCH in epochs[decided], result.log
    assert EPOCH not in epochs[not decided], result.log


def test_every_failpoint_of_the_driver_is_covered() -> None:
    assert {point for point, _ in CASES} | TESTED_ELSEWHERE == set(POINTS)


@pytest.mark.parametrize(
    ("point", "sink"), select_cases(CASES, DEFAULT_CASES), ids=lambda value: value or "driver"
)
def test_a_driver_killed_at_a_failpoint_loses_and_repeats_nothing(
    scenario: Scenario, point: str, sink: str
) -> None:
    """Python and JVM are killed together with kill -9.

    Until the restart the sinks have exactly the decided rows: no row of an undecided epoch is visible.
    """
    killed = scenario.run(failpoint_setting(scenario, point, sink))
    assert killed.code == -signal.SIGKILL, killed.log
    assert scenario.epoch_log().newest() == (EPOCH - 1 if point in UNDECIDED_POINTS else EPOCH)
    if point in UNDECIDED_POINTS:
        assert verify(scenario.settings).findings == ()
    check_epoch(scenario.finish(), decided=point not in UNDECIDED_POINTS)
    scenario.check_exact()
    scenario.check_rows()


def test_epochs_show_lists_the_sinks_that_have_a_killed_epoch(scenario: Scenario) -> None:
    """Between the two commits the markers show that only the first sink has the epoch."""
    scenario.run(failpoint_setting(scenario, "after-apply", "kafka"))
    settings = scenario.settings
    options = ["--kafka", settings.kafka, "--mysql", settings.mysql]
    show = ["epochs", "show", settings.checkpoint, str(EPOCH), *options]
    lines = CliRunner().invoke(app, show).output.splitlines()
    states = {
        lines[i - 1].split(":")[0].strip(): line for i, line in enumerate(lines) if "part 0" in line
    }
    assert states[scenario.sinks["kafka"]].endswith("; applied")
    assert states[scenario.sinks["mysql"]].endswith("; not applied yet")


@pytest.mark.parametrize(("point", "sink"), select_cases(JVM_CASES, JVM_CASES[1:2]))
def test_a_driver_whose_jvm_is_killed_exits_and_the_restart_is_exact(
    scenario: Scenario, point: str, sink: str
) -> None:
    """The exit code requests a restart.

    Python may still decide a staged epoch before it notices; the epoch log has the outcome.
    """
    result = scenario.run(failpoint_setting(scenario, point, sink, "kill-jvm"))
    assert result.code not in (0, 64, 65, 66, -signal.SIGKILL), result.log
    decided = scenario.epoch_log().newest() == EPOCH
    assert decided or point in UNDECIDED_POINTS
    check_epoch(scenario.finish(), decided=decided)
    scenario.check_exact()


@pytest.mark.parametrize(("point", "sink"), select_cases(PYTHON_CASES, PYTHON_CASES[1:]))
def test_a_jvm_whose_python_is_killed_exits_and_the_restart_is_exact(
    scenario: Scenario, point: str, sink: str
) -> None:
    """No process of the driver is left running."""
    driver = scenario.start(failpoint_setting(scenario, point, sink, "kill-self"))
    assert driver.process.wait(120) == -signal.SIGKILL, driver.text()
    wait_until_gone(driver.process.pid)
    check_epoch(scenario.finish(), decided=point not in UNDECIDED_POINTS)
    scenario.check_exact()


def wait_until_gone(group: int, timeout_s: float = 30.0) -> None:
    """Wait until a process group has no process."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    os.killpg(group, signal.SIGKILL)
    raise AssertionError(
        f"processes of group {group} are still running {timeout_s:g} s after their leader exited"
    )


SUPERVISED_POINTS = [
    *UNDECIDED_POINTS,
    "after-decide",
    *(f"{point}:{sink}" for sink in ("kafka", "mysql") for point in APPLY_POINTS),
    "before-commit:dead-letters",
    "before-done",
]
"""The points of an epoch in the order of a driver's life, which ends at each of them once."""

DEFAULT_SUPERVISED_POINTS = [
    *UNDECIDED_POINTS,
    "after-decide",
    *(f"{point}:kafka" for point in ("before-commit", "after-apply")),
    *(
        f"{point}:mysql"
        for point in ("before-apply", "apply-begun", "apply-written", "after-commit")
    ),
    "before-done",
]
"""Each point once. The other sink's applier dies at the same points in test_kafka_sink, and its
connection in test_mysql_sink; the dead-letter sink is another topic, written by the same code."""


def _marker_files(scenario: Scenario) -> dict[str, Path]:
    """Return the points of the killed epoch, each with the file that marks that it has fired."""
    cases = select_cases(SUPERVISED_POINTS, DEFAULT_SUPERVISED_POINTS)
    points = [scenario.failpoint(*case.partition(":")[::2], EPOCH) for case in cases]
    return {point: scenario.folder / f"once-{i}" for i, point in enumerate(points)}


@pytest.mark.timeout(900)
def test_a_supervised_job_killed_at_every_failpoint_is_exact(scenario: Scenario) -> None:
    """A supervisor's drivers die one after another, each at the next point; the result is exact.

    With overlap each start applies the last epoch again, as no driver came so far as to mark it.
    """
    marker_files = _marker_files(scenario)
    failpoints = ";".join(f"{point}=kill-group~{path}" for point, path in marker_files.items())
    supervised = scenario.with_settings(
        overlap=True, restart_attempts=len(marker_files), restart_delay_s=0.2
    )
    result = supervised.start(failpoints, supervised=True).wait(timeout_s=840)
    assert result.code == 0, result.log
    assert [point for point, path in marker_files.items() if not path.exists()] == []
    assert set(result.epochs("replayed")) == {EPOCH - 1, EPOCH}
    scenario.check_exact()
    scenario.check_rows()
