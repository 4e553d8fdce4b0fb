"""A driver from its start to its exit code, in a process of its own; no job here needs Spark.

Jobs that use Spark are covered by tests/robustness/scenarios/test_driver_process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from sluicegate.deployment.termination import STOPPED
from sluicegate.failpoints import VARIABLE
from sluicegate.storage import driver_end
from sluicegate.storage.driver_end import Why, read_end
from sluicegate.storage.driver_failure import FOLDER, read_failure
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.object_store import LocalObjectStore
from tests.unit.savepoints.builders import checkpoint, run_epoch, take

PATIENCE_S = 120.0

PACKAGED = ["--module", "sluicegate.cli", "--", "run", "ip_count", "--once"]


@dataclass(frozen=True)
class Ended:
    """How a driver ended."""

    code: int
    printed: str
    log: str
    reason: Mapping[str, str]


@dataclass(frozen=True)
class Pod:
    """A driver's container whose job is a file with the given lines."""

    folder: Path

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def start(self, lines: str, **more: str) -> subprocess.Popen[str]:
        job = self.folder / "job.py"
        job.write_text(lines)
        (self.folder / "reason").unlink(missing_ok=True)
        return subprocess.Popen(
            [sys.executable, "-m", "sluicegate.driver", "--file", str(job), "--", "-a", "b"],
            env={
                **os.environ,
                "SLUICEGATE_CHECKPOINT": str(self.checkpoint),
                "SLUICEGATE_TERMINATION_FILE": str(self.folder / "reason"),
                **more,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, process: subprocess.Popen[str]) -> Ended:
        printed, log = process.communicate(timeout=PATIENCE_S)
        file = self.folder / "reason"
        reason = json.loads(file.read_text()) if file.exists() else {}
        return Ended(process.returncode, printed, log, reason)

    def run(self, lines: str, **more: str) -> Ended:
        return self.end(self.start(lines, **more))


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def test_a_file_runs_as_python_would_run_it(pod: Pod) -> None:
    (pod.folder / "neighbor.py").write_text("NAME = 'neighbor'")
    ended = pod.run("import sys, neighbor; print(__name__, sys.argv[1:], neighbor.NAME)")
    assert ended.code == 0, ended.log
    assert ended.printed == "__main__ ['-a', 'b'] neighbor\n"
    assert ended.reason == {}


def test_a_sluicegate_error_gives_its_exit_code_and_its_three_parts(pod: Pod) -> None:
    ended = pod.run(
        "from sluicegate.errors import Fenced\n"
        "raise Fenced('epoch 3 was overtaken', data='none', do='keep one')"
    )
    assert ended.code == 65
    assert ended.reason == {
        "kind": "Fenced",
        "what": "epoch 3 was overtaken",
        "data": "none",
        "do": "keep one",
    }


def test_any_other_exception_gives_exit_code_1_and_a_traceback(pod: Pod) -> None:
    ended = pod.run("raise KeyError('no such\\nthing') from ValueError('x\\ny')")
    assert ended.code == 1
    assert ended.reason["kind"] == "KeyError"
    assert "Traceback" in ended.log
    assert "job.py" in ended.log


def test_the_first_line_of_an_exception_is_reported(pod: Pod) -> None:
    assert pod.run("raise ValueError('one\\ntwo')").reason["what"] == "one"


@pytest.mark.parametrize(("end", "code"), [("3", 3), ("None", 0), ("0", 0), ("'why'", 1)])
def test_an_exit_code_is_preserved(pod: Pod, end: str, code: int) -> None:
    ended = pod.run(f"raise SystemExit({end})")
    assert ended.code == code
    assert bool(ended.reason) == bool(code)


def test_a_packaged_job_runs_as_a_module(pod: Pod) -> None:
    """An error of its command line is written for the operator too."""
    ended = subprocess.run(
        [sys.executable, "-m", "sluicegate.driver", *PACKAGED, "--state-backend=memory"],
        env={**os.environ, "SLUICEGATE_TERMINATION_FILE": str(pod.folder / "reason")},
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert ended.returncode == 64, ended.stderr
    assert json.loads((pod.folder / "reason").read_text())["kind"] == "SettingsInvalid"


# --- stopping --------------------------------------------------------------------------------------

WAITS = "import time; print('up', flush=True); time.sleep(3600)"


def stopped(pod: Pod, **more: str) -> Ended:
    """Run a job that has no query yet, and send it SIGTERM."""
    process = pod.start(WAITS, **more)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    return pod.end(process)


def test_before_its_query_a_driver_stops_at_once_with_0_and_says_that_it_was_stopped(
    pod: Pod,
) -> None:
    """Otherwise the operator takes a job that reads what is available for finished."""
    ended = stopped(pod)
    assert ended.code == 0, ended.log
    assert ended.reason["kind"] == STOPPED
    assert pod.run("pass").reason == {}


def test_a_driver_does_not_end_with_0_while_an_epoch_is_unapplied(pod: Pod) -> None:
    """After exit code 0 nobody would apply it: the operator may delete the checkpoint."""
    run_epoch(pod.checkpoint, 0, committed=False)
    ended = stopped(pod)
    assert ended.code == 1, ended.log
    assert ended.reason["kind"] == "EpochUnfinished"
    assert "epoch 0" in ended.reason["what"]
    store = LocalObjectStore(pod.checkpoint)
    (recorded,) = (read_failure(store, name) for name in store.entries(FOLDER))
    assert recorded is not None
    assert recorded.what == ended.reason["what"], "the console shows it"


@pytest.mark.parametrize(("by_signal", "why"), [(True, Why.STOPPED), (False, Why.FINISHED)])
def test_an_orderly_end_is_recorded_for_the_console(pod: Pod, why: Why, *, by_signal: bool) -> None:
    checkpoint(pod.checkpoint, 1)
    store = LocalObjectStore(pod.checkpoint)
    ended = stopped(pod) if by_signal else pod.run("pass")
    assert ended.code == 0, ended.log
    (recorded,) = (read_end(store, name) for name in store.entries(driver_end.FOLDER))
    assert recorded is not None
    assert recorded.why == why


# --- apply-only ------------------------------------------------------------------------------------


@pytest.mark.parametrize("epochs", [0, 2])
def test_an_apply_only_driver_with_nothing_to_apply_does_not_run_the_job(
    pod: Pod, epochs: int
) -> None:
    """So a job whose code or sinks are gone can still be deleted."""
    checkpoint(pod.checkpoint, epochs)
    ended = pod.run("raise ValueError", SLUICEGATE_MODE="apply-only")
    assert ended.code == 0, ended.log
    assert list(LocalObjectStore(pod.checkpoint).entries(driver_end.FOLDER)) == []


def test_an_apply_only_job_that_applies_nothing_does_not_end_with_0(pod: Pod) -> None:
    run_epoch(pod.checkpoint, 0, committed=False)
    ended = pod.run("pass", SLUICEGATE_MODE="apply-only")
    assert ended.code == 1
    assert ended.reason["kind"] == "EpochUnfinished"


# --- restoring -------------------------------------------------------------------------------------


def savepoint(pod: Pod, *, seal: bool) -> str:
    """Take a savepoint of another checkpoint and return its address."""
    return take(checkpoint(pod.folder / "old", 3), str(pod.folder / "points"), seal=seal).url


@pytest.mark.parametrize("seal", [True, False])
def test_a_savepoint_is_restored_before_the_job_runs(pod: Pod, *, seal: bool) -> None:
    """A sealed savepoint moves the job, any other creates a branch."""
    job = "import os; print(os.path.exists(os.environ['SLUICEGATE_CHECKPOINT'] + '/lineage.json'))"
    ended = pod.run(job, SLUICEGATE_RESTORE_FROM=savepoint(pod, seal=seal))
    assert ended.code == 0, ended.log
    assert ended.printed == "True\n"
    lineage = read_lineage(LocalObjectStore(pod.checkpoint))
    assert lineage is not None
    assert lineage.moved == seal
    assert lineage.first_epoch == 3


def test_a_killed_restore_is_resumed(pod: Pod) -> None:
    where = savepoint(pod, seal=True)
    point = {VARIABLE: "restore-copying=kill-self"}
    killed = pod.run("print('ran')", SLUICEGATE_RESTORE_FROM=where, **point)
    assert killed.code == -signal.SIGKILL
    assert read_lineage(LocalObjectStore(pod.checkpoint)) is None
    ended = pod.run("print('ran')", SLUICEGATE_RESTORE_FROM=where)
    assert (ended.code, ended.printed) == (0, "ran\n"), ended.log
    lineage = read_lineage(LocalObjectStore(pod.checkpoint))
    assert lineage is not None
    assert lineage.moved


def test_a_checkpoint_with_a_lineage_is_not_restored_again(pod: Pod) -> None:
    """Every later driver of the job gets the same savepoint."""
    checkpoint(pod.checkpoint, 1)
    before = read_lineage(LocalObjectStore(pod.checkpoint))
    ended = pod.run("pass", SLUICEGATE_RESTORE_FROM=str(pod.folder / "gone"))
    assert ended.code == 0, ended.log
    assert read_lineage(LocalObjectStore(pod.checkpoint)) == before


def test_an_invalid_savepoint_ends_the_driver_before_the_job_runs(pod: Pod) -> None:
    ended = pod.run("print('ran')", SLUICEGATE_RESTORE_FROM=str(pod.folder / "gone"))
    assert (ended.code, ended.printed) == (64, "")
    assert ended.reason["kind"] == "SavepointInvalid"


def numbered(pod: Pod, number: int) -> str:
    """Return the address of a numbered checkpoint of a job."""
    return str(pod.folder / "clicks" / str(number))


@pytest.mark.parametrize("newer", [2, 3])
def test_a_job_created_again_does_not_start_at_an_outdated_checkpoint(pod: Pod, newer: int) -> None:
    """An earlier job of its path went on to a newer checkpoint; the job's code does not run."""
    checkpoint(Path(numbered(pod, 1)), 1)
    checkpoint(Path(numbered(pod, newer)), 1)
    environment = {"SLUICEGATE_NEWEST_CHECKPOINT": "1", "SLUICEGATE_CHECKPOINT": numbered(pod, 1)}
    ended = pod.run("print('ran')", **environment)
    assert (ended.code, ended.printed) == (64, "")
    assert f"has a checkpoint {newer}" in ended.reason["what"]


def test_a_rolled_back_job_continues_at_its_older_checkpoint(pod: Pod) -> None:
    """It knows the newer checkpoint, because it created it."""
    checkpoint(Path(numbered(pod, 1)), 1)
    checkpoint(Path(numbered(pod, 2)), 1)
    environment = {"SLUICEGATE_NEWEST_CHECKPOINT": "2", "SLUICEGATE_CHECKPOINT": numbered(pod, 1)}
    assert pod.run("print('ran')", **environment).printed == "ran\n"


def test_an_apply_only_driver_may_use_an_outdated_checkpoint(pod: Pod) -> None:
    """It reads no input."""
    checkpoint(Path(numbered(pod, 1)), 1)
    checkpoint(Path(numbered(pod, 2)), 1)
    environment = {"SLUICEGATE_NEWEST_CHECKPOINT": "1", "SLUICEGATE_CHECKPOINT": numbered(pod, 1)}
    ended = pod.run("print('ran')", SLUICEGATE_MODE="apply-only", **environment)
    assert ended.code == 0, ended.log
