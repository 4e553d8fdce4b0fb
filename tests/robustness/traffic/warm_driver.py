"""Runs drivers that are not killed one after another in a single process, whose JVM stays warm.

A driver costs half a minute of a core in its own process, mostly for the JVM's start, and a few seconds
here. Each driver has its own SparkContext and shares only the disk and the sinks with the others. A driver
that dies takes the process with it, and the next one starts another. SLUICEGATE_EXHAUSTIVE=1 runs each
driver in its own process.
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
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from pyspark.sql import SparkSession

from tests.spark_sessions import stop


class WarmProcess:
    """A process that runs drivers for one test process, started on demand.

    One file has all output of the process, its JVM and its Python workers; each driver gets its section.
    The process exits when the test process exits and closes its input.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._environment: Mapping[str, str] = {}
        self._output: IO[bytes] = tempfile.TemporaryFile("ab+")  # noqa: SIM115 - open until the process exits
        self._answers: IO[str] | None = None

    def run(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str], timeout_s: float
    ) -> int:
        """Run a Python module with arguments, with its output in a file; return its exit code.

        Raises:
            TimeoutError: it did not exit in time and was killed.
        """
        process = self._alive(environment)
        begin, end = os.fstat(self._output.fileno()).st_size, -1
        try:
            assert process.stdin
            process.stdin.write(json.dumps(list(command)) + "\n")
            process.stdin.flush()
            answer = self._answer(timeout_s)
            code, begin, end = json.loads(answer) if answer else (self._end(), begin, -1)
        except BaseException:
            self._end()  # otherwise the next driver would get this driver's answer
            raise
        finally:
            log.write_bytes(self._printed(begin, end))
        return int(code)

    def _printed(self, begin: int, end: int) -> bytes:
        """Return the output between two positions; -1: up to its end.

        The file object cannot read it: the processes that write share its position.
        """
        fd = self._output.fileno()
        return os.pread(fd, (os.fstat(fd).st_size if end < 0 else end) - begin, begin)

    def _answer(self, timeout_s: float) -> str:
        """Return the answer; empty if the process died."""
        assert self._answers
        if not select.select([self._answers], [], [], timeout_s)[0]:
            raise TimeoutError
        return self._answers.readline()

    def _alive(self, environment: Mapping[str, str]) -> subprocess.Popen[str]:
        """Return a live process that was started with this environment."""
        variables = {k: v for k, v in environment.items() if k != "PYTEST_CURRENT_TEST"}
        if self._process and (self._process.poll() is not None or variables != self._environment):
            self._end()
        if self._process is None:
            self._environment = variables
            read_fd, write_fd = os.pipe()
            self._answers = os.fdopen(read_fd)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.robustness.traffic.warm_driver", str(write_fd)],
                env=variables,
                stdin=subprocess.PIPE,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                pass_fds=(write_fd,),
                start_new_session=True,
                text=True,
            )
            os.close(write_fd)
        return self._process

    def _end(self) -> int:
        """Kill the process and its JVM if they are running; return the exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        code = process.poll()
        with contextlib.suppress(ProcessLookupError):  # the whole group has exited
            os.killpg(process.pid, signal.SIGKILL)
        if self._answers:
            self._answers.close()
        with contextlib.suppress(BrokenPipeError), process:  # closes its input and waits
            process.wait()
        return process.returncode if code is None else code


def serve(answers: IO[str]) -> None:
    """Run the command of each input line; at the end of the input exit with the JVM."""
    while line := sys.stdin.readline():
        begin = _output_size()
        code = _run(json.loads(line))
        end = _output_size()
        _stop_spark()
        answers.write(f"{json.dumps((code, begin, end))}\n")
        answers.flush()
    os.killpg(0, signal.SIGKILL)


def _output_size() -> int:
    """Return how many bytes this process and its children have printed."""
    sys.stdout.flush()
    sys.stderr.flush()
    return os.fstat(2).st_size


def _run(command: Sequence[str]) -> int:
    module, *arguments = command
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=False)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        return 1
    return 0


def _stop_spark() -> None:
    """Stop everything that the exit of a driver process would stop, except the JVM."""
    session = SparkSession.getActiveSession()
    if session is not None:
        stop(session)


if __name__ == "__main__":
    serve(os.fdopen(int(sys.argv[1]), "w"))
