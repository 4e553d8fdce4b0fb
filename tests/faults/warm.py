"""Runs the drivers that nobody kills one after another in one process: its JVM is warm by then.

A driver is half a minute of a core in a process of its own, most of it the JVM's start, and a few
seconds here. Each has a SparkContext of its own and knows of the others nothing but what is on disk
and in the sinks. One that dies takes the process with it; the next starts another.
SLUICEGATE_EXHAUSTIVE=1 gives each driver a process again. Not here: drivers with failpoints, with an
environment of their own or under a supervisor. Called by `harness`.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class WarmProcess:
    """A process that runs drivers for one test process, started when it is needed.

    It ends with the test process, whose end closes its input.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._environment: Mapping[str, str] = {}

    def run(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str], timeout_s: float
    ) -> int:
        """Run a Python module with arguments to its end, its output in a file; return its exit code.

        Raises:
            TimeoutError: it has not ended in time, and was killed.
        """
        log.touch()
        process = self._alive(environment)
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps({"command": list(command), "log": str(log)}) + "\n")
        process.stdin.flush()
        if not select.select([process.stdout], [], [], timeout_s)[0]:
            self._end()
            raise TimeoutError
        said = process.stdout.readline()
        return int(said) if said else self._end()

    def _alive(self, environment: Mapping[str, str]) -> subprocess.Popen[str]:
        """Return a process that lives and was started with this environment."""
        told = {k: v for k, v in environment.items() if k != "PYTEST_CURRENT_TEST"}
        if self._process is not None and told != self._environment:
            self._end()
        if self._process is None:
            self._environment = told
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.warm"],
                env=told,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                text=True,
            )
        return self._process

    def _end(self) -> int:
        """End the process, where it has not ended by itself, and its JVM; return its exit code."""
        process, self._process = self._process, None
        assert process is not None
        code = process.poll()
        with contextlib.suppress(ProcessLookupError):  # all of it has ended by itself
            os.killpg(process.pid, signal.SIGKILL)
        with process:  # closes its pipes and waits
            return process.wait() if code is None else code


def serve() -> None:
    """Run what each line of the input asks for; end when there is no more, with the JVM."""
    answers = os.fdopen(os.dup(1), "w")
    while line := sys.stdin.readline():
        asked = json.loads(line)
        output = os.open(asked["log"], os.O_WRONLY | os.O_APPEND)
        for number in (1, 2):
            os.dup2(output, number)
        os.close(output)
        code = _run(asked["command"])
        sys.stdout.flush()
        answers.write(f"{code}\n")
        answers.flush()
    os.killpg(0, signal.SIGKILL)


def _run(command: Sequence[str]) -> int:
    module, *arguments = command
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=False)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter would
        traceback.print_exc()
        return 1
    finally:
        _stop_spark()
    return 0


def _stop_spark() -> None:
    """End what the driver's process would have ended, but the JVM."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - a driver may end before it needs Spark

    session = SparkSession.getActiveSession()
    if session is not None:
        jvm: Any = session._jvm
        # the thread that maintains state stores outlives a session, and keeps that session's interval
        jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
        session.stop()


if __name__ == "__main__":
    serve()
