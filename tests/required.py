"""A pytest plugin that makes skipped tests fail, except for reasons that were chosen.

A test that is skipped because a program cannot be built is a test that nobody misses.
`SLUICEGATE_MAY_SKIP` is a regular expression of the reasons for which tests may be skipped. Without
it, as on a machine of your own, they may be skipped for any reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from typing import Final

import pytest

MAY_SKIP: Final = "SLUICEGATE_MAY_SKIP"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn the report of a skipped test into that of a failed one."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        assert isinstance(report.longrepr, tuple)
        reason = report.longrepr[2]
        if not _may_be_skipped(reason):
            report.outcome = "failed"
            report.longrepr = (
                f"{reason}\nThe test must run here: {MAY_SKIP} does not match the reason."
            )
    return report


def _may_be_skipped(reason: str) -> bool:
    allowed = os.environ.get(MAY_SKIP)
    return allowed is None or (allowed != "" and re.search(allowed, reason) is not None)
