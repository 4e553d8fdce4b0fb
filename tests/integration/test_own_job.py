"""A job of one's own, run with `python job.py` at a terminal, or with spark-submit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest

from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import open_store
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

JOB = """
import pathlib, sys, time
from sluicegate import epochs, session
from sluicegate.sinks.memory import MemorySink

folder = pathlib.Path(sys.argv[1])

def wait(batches):
    (folder / "staging").touch()
    while not (folder / "continue").exists():
        time.sleep(0.05)
    yield from batches

rows = session("own").readStream.format("rate").load().mapInArrow(wait, "timestamp timestamp, value long")
query = epochs(rows, name="own", sinks=[MemorySink("out")], checkpoint=str(folder / "checkpoint")).start()
query.await_end()
print("the job goes on")
"""


def test_ctrl_c_ends_a_job_at_the_end_of_its_epoch(tmp_path: Path) -> None:
    """While Python workers stage, which receive SIGINT too; the epoch is shown without set-up."""
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", JOB, str(tmp_path)],
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_until((tmp_path / "staging").exists, "the first epoch", process)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        (tmp_path / "continue").touch()
        code = process.wait(60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    text = (tmp_path / "log").read_text()
    assert (code, "Traceback" in text) == (0, False), text
    assert "the job goes on" in text
    assert text.count("epoch 0 committed") == 1, text
    newest = StoredEpochLog(open_store(str(tmp_path / "checkpoint"))).newest()
    assert f"epoch {newest} committed" in text, text


def test_a_job_runs_under_spark_submit(tmp_path: Path) -> None:
    """There the JVM is the parent of the job's process."""
    script = tmp_path / "job.py"
    script.write_text(JOB)
    (tmp_path / "continue").touch()
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [submit, script, tmp_path],
            env=os.environ | {"PYSPARK_PYTHON": sys.executable},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        shown = "epoch 0 committed"
        _wait_until(lambda: shown in (tmp_path / "log").read_text(), shown, process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_until(condition: Callable[[], bool], what: str, process: subprocess.Popen[bytes]) -> None:
    def holds() -> bool:
        if condition():
            return True
        assert process.poll() is None, f"the job ended before {what} came"
        return False

    wait_until(holds, what, seconds=90)
