"""The driver is killed with kill -9 at each of its failpoints; after a restart the result is exact."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from infra.local_services import Services
from sluicegate.cli.app import app
from sluicegate.failpoints import POINTS
from sluicegate_jobs.ip_count.verify import verify
from tests.robustness.failpoints.fault_matrix import chosen
from tests.robustness.traffic.ip_count_harness import Ended, Scene, scene

pytestmark = [pytest.mark.faults, pytest.mark.slow]

EPOCH = 2
"""The epoch that is killed; two epochs precede it and four follow."""

UNDECIDED = ("before-stage", "after-stage", "before-decide")
DECIDED = ("after-decide", "before-done")
APPLYING = (
    "before-apply",
    "apply-begun",
    "apply-written",
    "before-commit",
    "after-commit",
    "after-apply",
)
"""Points that are passed once for each sink."""

SAVEPOINTS = {
    "savepoint-copying",
    "before-seal",
    "after-seal",
    "before-manifest",
    "restore-copying",
}
ELSEWHERE = {
    "stage-part",
    *SAVEPOINTS,
    *("before-receipt", "after-receipt"),
    *("replay-begun", "replay-written", "replay-committed"),
}
"""Tested in test_executors_killed, test_savepoints, test_socket_to_kafka and test_dead_letters."""

WHERE = [
    *((point, "") for point in (*UNDECIDED, *DECIDED)),
    *((point, sink) for point in APPLYING for sink in ("kafka", "mysql")),
    *((point, "letters") for point in ("before-commit", "after-commit")),
]

FEW = [("after-stage", ""), ("after-commit", "kafka")]
"""One before the decision, one in doubt; a supervised job passes all points below."""

OF_JVM = [("after-stage", ""), ("after-decide", ""), ("before-commit", "mysql")]
OF_PYTHON = [("before-decide", ""), ("before-commit", "kafka")]


@pytest.fixture
def played(services: Services, tmp_path: Path) -> Iterator[Scene]:
    """Yield a scene with the default lines."""
    with scene(services, tmp_path) as made:
        yield made


def armed(played: Scene, point: str, sink: str, action: str = "kill-group") -> str:
    """Return the failpoint setting for a point of the killed epoch."""
    return f"{point}{f':{played.sinks[sink]}' if sink else ''}@{EPOCH}={action}"


def restarted(played: Scene) -> Ended:
    """Process the remaining input in as few epochs as possible."""
    ended = played.but(max_records=100_000).run()
    assert ended.code == 0, ended.log
    return ended


def check_epoch(ended: Ended, *, decided: bool) -> None:
    """Assert that a decided epoch was replayed and an undecided one ran again."""
    again = ended.epochs("committed"), ended.epochs("replayed")
    assert EPOCH in again[decided], ended.log
    assert EPOCH not in again[not decided], ended.log


def test_every_failpoint_of_the_driver_is_covered() -> None:
    assert {point for point, _ in WHERE} | ELSEWHERE == set(POINTS)


@pytest.mark.parametrize(("point", "sink"), chosen(WHERE, FEW), ids=lambda value: value or "driver")
def test_driver_killed_at_a_failpoint(played: Scene, point: str, sink: str) -> None:
    """A kill -9 of Python and JVM together loses and repeats nothing.

    Until the restart the sinks have exactly the decided rows: no row of an undecided epoch is visible.
    """
    killed = played.run(armed(played, point, sink))
    assert killed.code == -signal.SIGKILL, killed.log
    assert played.epoch_log().newest() == (EPOCH - 1 if point in UNDECIDED else EPOCH)
    if point in UNDECIDED:
        assert verify(played.settings).findings == ()
    check_epoch(restarted(played), decided=point not in UNDECIDED)
    played.check_exact()


def test_epochs_show_lists_the_sinks_that_have_a_killed_epoch(played: Scene) -> None:
    """Between the two commits the markers show that only the first sink has the epoch."""
    played.run(armed(played, "after-apply", "kafka"))
    settings = played.settings
    servers = ["--kafka", settings.kafka, "--mysql", settings.mysql]
    show = ["epochs", "show", settings.checkpoint, str(EPOCH), *servers]
    said = CliRunner().invoke(app, show).output.splitlines()
    states = {
        said[i - 1].split(":")[0].strip(): line for i, line in enumerate(said) if "part 0" in line
    }
    assert states[played.sinks["kafka"]].endswith("; applied")
    assert states[played.sinks["mysql"]].endswith("; not applied yet")


@pytest.mark.parametrize(("point", "sink"), chosen(OF_JVM, OF_JVM[:1]))
def test_only_the_jvm_killed(played: Scene, point: str, sink: str) -> None:
    """A driver whose JVM is killed exits with a request for a restart, and the restart is exact.

    Python may still decide a staged epoch before it notices; the epoch log has the outcome.
    """
    ended = played.run(armed(played, point, sink, "kill-jvm"))
    assert ended.code not in (0, 64, 65, 66, -signal.SIGKILL), ended.log
    decided = played.epoch_log().newest() == EPOCH
    assert decided or point in UNDECIDED
    check_epoch(restarted(played), decided=decided)
    played.check_exact()


@pytest.mark.parametrize(("point", "sink"), chosen(OF_PYTHON, OF_PYTHON[1:]))
def test_only_python_killed(played: Scene, point: str, sink: str) -> None:
    """A JVM whose Python is killed exits, and the next driver is exact."""
    driver = played.start(armed(played, point, sink, "kill-self"))
    assert driver.process.wait(120) == -signal.SIGKILL, driver.text()
    wait_until_gone(driver.process.pid)
    check_epoch(restarted(played), decided=point not in UNDECIDED)
    played.check_exact()


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


def _once(played: Scene) -> dict[str, Path]:
    """Return the points of an epoch, each with the file that marks that it has fired."""
    sinks = [f"{point}:{played.sinks[sink]}" for point, sink in WHERE if sink and sink != "letters"]
    # the dead-letter sink is another topic, written by the same code
    sinks.append(f"before-commit:{played.sinks['letters']}")
    points = [*UNDECIDED, "after-decide", *sinks, "before-done"]
    return {point: played.folder / f"once-{i}" for i, point in enumerate(points)}


@pytest.mark.timeout(900)
def test_a_supervised_job_killed_at_every_failpoint_is_exact(played: Scene) -> None:
    """A supervisor's drivers die one after another, each at the next point; the result is exact."""
    once = _once(played)
    failpoints = ";".join(f"{p}@{EPOCH}=kill-group~{path}" for p, path in once.items())
    lived = played.but(restart_attempts=len(once), restart_delay_s=0.2)
    ended = lived.start(failpoints, supervised=True).wait(timeout_s=840)
    assert ended.code == 0, ended.log
    assert [p for p, path in once.items() if not path.exists()] == []
    assert ended.epochs("replayed") == [EPOCH]
    played.check_exact()
