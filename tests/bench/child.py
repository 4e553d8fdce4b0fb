"""A process of one run: started in a folder of its own, and gone at the end whatever happens.

Called by `throughput` and `latency`, for contenders and for the reader.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from infra.embedded import MySQLEndpoint
from infra.embedded.services import MYSQL_VARIABLE
from infra.jars import folder as jars
from infra.work import CHECKOUT
from sluicegate.spark.session import JARS_VARIABLE
from sluicegate.tracing import TRACE_FILE_VARIABLE
from tests.bench.contender import RESULT

TRACES = "traces.jsonl"


class RunFailed(Exception):
    """A run that gets no number; says why."""


@contextmanager
def running(
    module: str, folder: Path, mysql: MySQLEndpoint | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `python -m module FOLDER`; kill it and its JVM when the block is left."""
    environment = os.environ | {
        JARS_VARIABLE: str(jars("spark")),
        TRACE_FILE_VARIABLE: str(folder / TRACES),
    }
    if mysql is not None:
        environment[MYSQL_VARIABLE] = mysql.url  # not in the order: it holds a password
    with (folder / f"{module.rpartition('.')[2]}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(folder)],
            cwd=CHECKOUT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            _end_group(process)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """A JVM outlives its Python for a moment, and a run that failed does not end by itself."""
    with suppress(ProcessLookupError):  # raised where all of it has ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def await_exit(process: subprocess.Popen[bytes], timeout_s: float, what: str) -> None:
    """Wait for a process to end.

    Raises:
        RunFailed: it takes too long.
    """
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired as error:
        raise RunFailed(f"{what} did not end within {timeout_s:.0f} s") from error


def await_file(path: Path, process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Wait until a process has made a file.

    Raises:
        RunFailed: the process has ended, or it takes too long.
    """
    end = time.monotonic() + timeout_s
    while not path.exists():
        if process.poll() is not None:
            raise RunFailed(
                f"the process ended (exit code {process.returncode}): {_error(path.parent)}"
            )
        if time.monotonic() > end:
            raise RunFailed(f"no {path.name} within {timeout_s:.0f} s")
        time.sleep(0.05)


def result(folder: Path) -> Mapping[str, Any]:
    """Return what a contender left.

    Raises:
        RunFailed: it had an error, or left nothing.
    """
    found = folder / RESULT
    if not found.exists():
        raise RunFailed(f"it ended without a result; its log ends with: {_last_words(folder)}")
    read: dict[str, Any] = json.loads(found.read_text(encoding="utf-8"))
    if read["error"]:
        raise RunFailed(" ".join(str(read["error"]).split())[:300])
    return read


def _error(folder: Path) -> str:
    try:
        result(folder)
    except RunFailed as error:
        return str(error)
    return "it left no error"


def _last_words(folder: Path) -> str:
    lines = [
        line.strip()
        for log in folder.glob("contender.log")
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
        if line.strip()
    ]
    return " / ".join(lines[-3:])[:300] or "nothing"


def spans(folder: Path) -> Iterable[Mapping[str, Any]]:
    """Return the spans of a run; none of a contender that does not trace."""
    file = folder / TRACES
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [json.loads(line) for line in lines]
