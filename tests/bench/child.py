"""Runs a benchmark process in its own folder and always kills it at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from infra.local_services import MySQLEndpoint
from infra.local_services.services import MYSQL_VARIABLE
from infra.toolchain.maven import folder as jars
from infra.workspace import CHECKOUT
from sluicegate.spark.conf import JARS_VARIABLE
from sluicegate.tracing import TRACE_FILE_VARIABLE
from tests.bench.contender import RESULT

TRACES = "traces.jsonl"
LOG = "contender.log"


class RunFailed(Exception):
    """A run failed and gets no number; the message has the reason."""


@contextmanager
def running(
    module: str, folder: Path, mysql: MySQLEndpoint | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `python -m module FOLDER`; kill it and its JVM when the block exits."""
    environment = os.environ | {
        JARS_VARIABLE: str(jars("spark")),
        TRACE_FILE_VARIABLE: str(folder / TRACES),
    }
    if mysql is not None:
        environment[MYSQL_VARIABLE] = mysql.url  # not in the order: it holds a password
    command = [sys.executable, "-m", module, str(folder)]
    log = folder / f"{module.rpartition('.')[2]}.log"
    with running_command(command, log, environment) as process:
        yield process


@contextmanager
def running_command(
    command: Sequence[str], log: Path, environment: Mapping[str, str] = os.environ
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command with its output in a log file; kill its process group when the block exits."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=CHECKOUT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            _end_group(process)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group: a JVM briefly outlives its Python, and a failed run may never exit."""
    with suppress(ProcessLookupError):  # the group has already exited
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def await_exit(process: subprocess.Popen[bytes], timeout_s: float, name: str) -> None:
    """Wait for a process to end.

    Raises:
        RunFailed: the process did not exit in time.
    """
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired as error:
        raise RunFailed(f"{name} did not exit within {timeout_s:.0f} s") from error


def await_ready(
    ready: Callable[[], bool], folder: Path, process: subprocess.Popen[bytes], timeout_s: float
) -> None:
    """Wait until a process is ready.

    Args:
        ready: returns whether it is.
        folder: where it writes its result.
        process: the process.
        timeout_s: how long to wait.

    Raises:
        RunFailed: the process exited, or was not ready in time.
    """
    end = time.monotonic() + timeout_s
    while not ready():
        if process.poll() is not None and not ready():
            raise RunFailed(
                f"the process exited (exit code {process.returncode}): {_error(folder)}"
            )
        if time.monotonic() > end:
            raise RunFailed(f"the process was not ready within {timeout_s:.0f} s")
        time.sleep(0.05)


def result(folder: Path) -> Mapping[str, Any]:
    """Return the result that a contender wrote.

    Raises:
        RunFailed: the contender failed or wrote no result.
    """
    file = folder / RESULT
    if not file.exists():
        raise RunFailed(
            f"the contender exited without a result; the end of its log: {last_words(folder)}"
        )
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if content["error"]:
        raise RunFailed(" ".join(str(content["error"]).split())[:300])
    return content


def _error(folder: Path) -> str:
    try:
        result(folder)
    except RunFailed as error:
        return str(error)
    return "no error was written"


def last_words(folder: Path) -> str:
    """Return the end of a contender's log."""
    text = (folder / LOG).read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-3:])[:300] or "nothing"


def spans(folder: Path) -> Iterable[Mapping[str, Any]]:
    """Return the spans of a run; empty for a contender without tracing."""
    file = folder / TRACES
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [json.loads(line) for line in lines]
