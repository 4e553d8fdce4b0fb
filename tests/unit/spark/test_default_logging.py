"""Progress is shown without any set-up of logging, and a set-up of the user's is left alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

_BODY = """
import logging, sys
from sluicegate.spark.session import log_by_default
{before}
log_by_default()
log_by_default()
{after}
logging.getLogger("sluicegate.epoch").info("progress")
"""
_BASIC = "logging.basicConfig(level=logging.INFO)"


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ("", "", 1),
        (_BASIC, "", 1),
        ("", _BASIC, 1),
        ("logging.basicConfig(level=logging.WARNING)", "", 0),
        ("logging.getLogger('sluicegate').addHandler(logging.NullHandler())", "", 0),
        ("logging.getLogger('sluicegate').setLevel(logging.ERROR)", "", 0),
        ("logging.getLogger('sluicegate.epoch').addHandler(logging.NullHandler())", "", 0),
    ],
)
def test_a_progress_line_is_shown_once_or_as_the_user_wants(
    before: str, after: str, lines: int
) -> None:
    """In a process of its own, because pytest sets up logging."""
    code = _BODY.format(before=before, after=after)
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stderr.count("progress") == lines, result.stderr
