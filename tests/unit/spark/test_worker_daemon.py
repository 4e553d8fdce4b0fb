"""The parent process of Spark's Python workers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sluicegate.spark.worker_daemon import ended_by_the_jvm


def test_a_worker_whose_connection_the_jvm_closed_ends_without_a_traceback() -> None:
    def worker(*_: object) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    assert ended_by_the_jvm(worker)() == 1


def test_any_other_exception_of_a_worker_is_raised() -> None:
    def worker(*_: object) -> int:
        raise EOFError

    with pytest.raises(EOFError):
        ended_by_the_jvm(worker)()


_DRAW_IN_TWO_WORKERS = """
import os
from sluicegate.spark.worker_daemon import import_for_workers
import_for_workers()
import numpy
for _ in range(2):
    if os.fork() == 0:
        print(numpy.random.random(), flush=True)
        os._exit(0)
    os.wait()
"""


def test_workers_draw_different_random_numbers() -> None:
    """As with Spark's own daemon, whose workers load `numpy.random` after the fork."""
    command = [sys.executable, "-c", _DRAW_IN_TWO_WORKERS]
    first, second = subprocess.check_output(command, text=True).split()
    assert first != second
