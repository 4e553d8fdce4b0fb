"""A driver's container from its start to its exit code, in a process of its own; no job here needs Spark.

What a job does with Spark in it is in tests/faults/test_pod.
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

from sluicegate.checkpoint.savepoints import take
from sluicegate.protocol.failpoints import VARIABLE
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.objects import LocalObjects
from tests.unit.checkpoint.made import checkpoint, run_epoch

PATIENCE_S = 120.0

PACKAGED = ["--module", "sluicegate.cli", "--", "run", "ip_count", "--once"]


@dataclass(frozen=True)
class Ended:
    """How a driver ended."""

    code: int
    printed: str
    log: str
    said: Mapping[str, str]


@dataclass(frozen=True)
class Pod:
    """A driver's container; its job is a file with the lines that a test gives."""

    folder: Path

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def start(self, lines: str, **more: str) -> subprocess.Popen[str]:
        job = self.folder / "job.py"
        job.write_text(lines)
        (self.folder / "said").unlink(missing_ok=True)
        return subprocess.Popen(
            [sys.executable, "-m", "sluicegate.pod", "--file", str(job), "--", "-a", "b"],
            env={
                **os.environ,
                "SLUICEGATE_CHECKPOINT": str(self.checkpoint),
                "SLUICEGATE_OUTCOME": str(self.folder / "said"),
                **more,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, process: subprocess.Popen[str]) -> Ended:
        printed, log = process.communicate(timeout=PATIENCE_S)
        said = self.folder / "said"
        left = json.loads(said.read_text()) if said.exists() else {}
        return Ended(process.returncode, printed, log, left)

    def run(self, lines: str, **more: str) -> Ended:
        return self.end(self.start(lines, **more))


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def test_a_file_runs_as_python_runs_it(pod: Pod) -> None:
    (pod.folder / "beside.py").write_text("NAME = 'beside'")
    ended = pod.run("import sys, beside; print(__name__, sys.argv[1:], beside.NAME)")
    assert ended.code == 0, ended.log
    assert ended.printed == "__main__ ['-a', 'b'] beside\n"
    assert ended.said == {}


def test_an_error_of_ours_ends_it_with_its_code_and_its_sentences(pod: Pod) -> None:
    ended = pod.run(
        "from sluicegate.protocol.errors import Fenced\n"
        "raise Fenced('epoch 3 is behind', data='none', do='keep one')"
    )
    assert ended.code == 65
    assert ended.said == {
        "kind": "Fenced",
        "what": "epoch 3 is behind",
        "data": "none",
        "do": "keep one",
    }


def test_any_other_exception_is_1_with_its_first_line_and_a_traceback(pod: Pod) -> None:
    ended = pod.run("raise KeyError('no such\\nthing') from ValueError('x\\ny')")
    assert ended.code == 1
    assert ended.said["kind"] == "KeyError"
    assert "Traceback" in ended.log
    assert "job.py" in ended.log


def test_the_first_line_of_an_exception_is_what_is_left(pod: Pod) -> None:
    assert pod.run("raise ValueError('one\\ntwo')").said["what"] == "one"


@pytest.mark.parametrize(("end", "code"), [("3", 3), ("None", 0), ("0", 0), ("'why'", 1)])
def test_an_exit_code_is_kept(pod: Pod, end: str, code: int) -> None:
    ended = pod.run(f"raise SystemExit({end})")
    assert ended.code == code
    assert bool(ended.said) == bool(code)


def test_the_command_line_of_a_packaged_job_is_a_module(pod: Pod) -> None:
    """What it refuses is left for the operator too."""
    ended = subprocess.run(
        [sys.executable, "-m", "sluicegate.pod", *PACKAGED, "--state-backend=memory"],
        env={**os.environ, "SLUICEGATE_OUTCOME": str(pod.folder / "said")},
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert ended.returncode == 64, ended.stderr
    assert json.loads((pod.folder / "said").read_text())["kind"] == "SettingsInvalid"


# --- being asked to end ----------------------------------------------------------------------------

WAITS = "import time; print('up', flush=True); time.sleep(3600)"


def stopped(pod: Pod, **more: str) -> Ended:
    """Run a job that has no query yet, and ask it to end."""
    process = pod.start(WAITS, **more)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    return pod.end(process)


def test_before_its_query_it_ends_at_once_with_0(pod: Pod) -> None:
    ended = stopped(pod)
    assert ended.code == 0, ended.log
    assert ended.said == {}


def test_it_does_not_end_with_0_while_a_decided_epoch_is_owed(pod: Pod) -> None:
    """After a 0 nobody would apply it: the operator may delete the checkpoint."""
    run_epoch(pod.checkpoint, 0, committed=False)
    ended = stopped(pod)
    assert ended.code == 1, ended.log
    assert ended.said["kind"] == "EpochUnfinished"
    assert "epoch 0" in ended.said["what"]


# --- finishing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("epochs", [0, 2])
def test_a_driver_that_has_nothing_to_finish_does_not_run_the_job(pod: Pod, epochs: int) -> None:
    """So a job whose code or sinks are gone can be deleted all the same."""
    checkpoint(pod.checkpoint, epochs)
    ended = pod.run("raise ValueError", SLUICEGATE_PURPOSE="finish")
    assert ended.code == 0, ended.log


def test_a_job_that_finishes_nothing_though_it_should_does_not_end_with_0(pod: Pod) -> None:
    run_epoch(pod.checkpoint, 0, committed=False)
    ended = pod.run("pass", SLUICEGATE_PURPOSE="finish")
    assert ended.code == 1
    assert ended.said["kind"] == "EpochUnfinished"


# --- restoring -------------------------------------------------------------------------------------


def savepoint(pod: Pod, *, seal: bool) -> str:
    """Return the address of a savepoint of another checkpoint."""
    return take(checkpoint(pod.folder / "old", 3), str(pod.folder / "points"), seal=seal).url


@pytest.mark.parametrize("seal", [True, False])
def test_a_savepoint_is_restored_before_the_job_runs(pod: Pod, *, seal: bool) -> None:
    """A sealed one moves the job, another branches it."""
    job = "import os; print(os.path.exists(os.environ['SLUICEGATE_CHECKPOINT'] + '/lineage.json'))"
    ended = pod.run(job, SLUICEGATE_RESTORE_FROM=savepoint(pod, seal=seal))
    assert ended.code == 0, ended.log
    assert ended.printed == "True\n"
    found = read_lineage(LocalObjects(pod.checkpoint))
    assert found is not None
    assert found.moved == seal
    assert found.first_epoch == 3


def test_a_restore_that_was_killed_is_done_again(pod: Pod) -> None:
    where = savepoint(pod, seal=True)
    point = {VARIABLE: "restore-copying=kill-self"}
    killed = pod.run("print('ran')", SLUICEGATE_RESTORE_FROM=where, **point)
    assert killed.code == -signal.SIGKILL
    assert read_lineage(LocalObjects(pod.checkpoint)) is None
    ended = pod.run("print('ran')", SLUICEGATE_RESTORE_FROM=where)
    assert (ended.code, ended.printed) == (0, "ran\n"), ended.log
    found = read_lineage(LocalObjects(pod.checkpoint))
    assert found is not None
    assert found.moved


def test_a_checkpoint_with_a_lineage_is_left_as_it_is(pod: Pod) -> None:
    """Every later driver of the job is told of the same savepoint."""
    checkpoint(pod.checkpoint, 1)
    before = read_lineage(LocalObjects(pod.checkpoint))
    ended = pod.run("pass", SLUICEGATE_RESTORE_FROM=str(pod.folder / "gone"))
    assert ended.code == 0, ended.log
    assert read_lineage(LocalObjects(pod.checkpoint)) == before


def test_what_is_no_savepoint_ends_it_before_the_job(pod: Pod) -> None:
    ended = pod.run("print('ran')", SLUICEGATE_RESTORE_FROM=str(pod.folder / "gone"))
    assert (ended.code, ended.printed) == (64, "")
    assert ended.said["kind"] == "NoSavepoint"


def numbered(pod: Pod, number: int) -> str:
    """Return the address of a job's checkpoint of a number."""
    return str(pod.folder / "clicks" / str(number))


@pytest.mark.parametrize("left", [2, 3])
def test_a_job_made_again_does_not_begin_at_a_checkpoint_that_was_left(pod: Pod, left: int) -> None:
    """An earlier one of its path went on to a newer one; the job's code does not run."""
    checkpoint(Path(numbered(pod, 1)), 1)
    checkpoint(Path(numbered(pod, left)), 1)
    told = {"SLUICEGATE_NEWEST_CHECKPOINT": "1", "SLUICEGATE_CHECKPOINT": numbered(pod, 1)}
    ended = pod.run("print('ran')", **told)
    assert (ended.code, ended.printed) == (64, "")
    assert f"has a checkpoint {left}" in ended.said["what"]


def test_a_job_that_went_back_by_rollback_goes_on_there(pod: Pod) -> None:
    """It knows of the newer one: it has made it itself."""
    checkpoint(Path(numbered(pod, 1)), 1)
    checkpoint(Path(numbered(pod, 2)), 1)
    told = {"SLUICEGATE_NEWEST_CHECKPOINT": "2", "SLUICEGATE_CHECKPOINT": numbered(pod, 1)}
    assert pod.run("print('ran')", **told).printed == "ran\n"


def test_what_is_decided_is_applied_there_too(pod: Pod) -> None:
    """Finishing reads no input."""
    checkpoint(Path(numbered(pod, 1)), 1)
    checkpoint(Path(numbered(pod, 2)), 1)
    told = {"SLUICEGATE_NEWEST_CHECKPOINT": "1", "SLUICEGATE_CHECKPOINT": numbered(pod, 1)}
    ended = pod.run("print('ran')", SLUICEGATE_PURPOSE="finish", **told)
    assert ended.code == 0, ended.log
