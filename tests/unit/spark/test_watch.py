"""A driver in which something takes too long ends; in a process of its own, because it ends that."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sluicegate.errors import EpochTimeout, OutOfMemory

_HEAD = """
import logging, threading, time
from sluicegate.spark.watch import ProgressLimit, deadline

logging.basicConfig(format="%(message)s")

def noted(note, seconds=1.0):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        note()
        time.sleep(0.02)

def hang():
    time.sleep(60)
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _HEAD + code],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("with deadline(3, 0.1): hang()", "epoch 3 took longer than its timeout of 0.1 s"),
        (
            "with ProgressLimit(0.1).watched(lambda: False) as note: noted(note, 60)",
            "Spark began no epoch for 0.1 s",
        ),
        (
            "with ProgressLimit(0.1).watched(lambda: True) as note: hang()",
            "Spark began no epoch for 0.1 s",
        ),
    ],
    ids=["an epoch", "Spark", "the thread that waits for Spark"],
)
def test_what_takes_too_long_ends_the_process_and_the_log_shows_where_it_was(
    code: str, text: str
) -> None:
    done = run(code)
    assert done.returncode == EpochTimeout.exit_code, done.stderr
    assert text in done.stderr
    assert "in hang" in done.stderr or "in noted" in done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "with deadline(3, 0): noted(lambda: None)",
        "with deadline(3, 0.1): pass\nnoted(lambda: None)",
        "with ProgressLimit(0.4).watched(lambda: True) as note: noted(note)",
        "with ProgressLimit(0).watched(lambda: False) as note: noted(note)",
        """
limit = ProgressLimit(0.4)
with limit.watched(lambda: False) as note, limit.epoch():
    noted(note)
""",
        """
limit = ProgressLimit(0.4)
with limit.watched(lambda: False) as note:
    for _ in range(4):
        with limit.epoch():
            noted(note, 0.2)
""",
    ],
    ids=["no timeout", "a fast epoch", "idle", "no limit", "a long epoch", "epochs"],
)
def test_what_takes_no_longer_than_it_may_goes_on(code: str) -> None:
    done = run(code)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_thread_that_fails_as_it_begins_ends_the_process_that_waits_for_it() -> None:
    done = run(
        """
from sluicegate.spark import watch

watch._BEGIN_POLLS = 3

class Failing(threading.Thread):
    def _bootstrap(self):
        pass

with deadline(3, 60):
    Failing(name="mine").start()
"""
    )
    assert done.returncode == OutOfMemory.exit_code, done.stderr
    assert "the thread mine has not begun" in done.stderr


def test_a_limit_holds_where_no_more_threads_can_be_started() -> None:
    """Thread.start never returns if the new thread fails for lack of memory."""
    done = run(
        """
with deadline(2, 60):
    pass
threading.Thread.start = lambda _self: hang()
with deadline(3, 0.1):
    hang()
"""
    )
    assert done.returncode == EpochTimeout.exit_code, done.stderr
    assert "epoch 3 took longer" in done.stderr
