"""The end of a long run: a driver reads the rest of the input, and every row of every sink is judged."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

from sluicegate.errors import FINAL_EXIT_CODES
from sluicegate.settings.epoch import AVAILABLE_NOW, EXACTLY_ONCE
from tests.robustness.history.recorder import Recorder
from tests.robustness.traffic.ip_count_harness import command_of, start
from tests.robustness.traffic.long_lived_job import Driver
from tests.robustness.traffic.packaged_job_harness import JobScenario
from tests.robustness.validate.checker.running_jobs import check_job

DRAIN_TIMEOUT_S = 600.0
_SKEW = 2000


class Stuck(Exception):
    """The job does not go on; the run ends here."""


def read_rest(scenario: JobScenario, history: Recorder) -> JobScenario:
    """Run drivers until one has read the rest of the input; return the scenario as that one ran.

    Raises:
        Stuck: none has read it in time, or one must not be restarted.
    """
    final = scenario.with_settings(interval=AVAILABLE_NOW, max_records=200_000)
    command = command_of(final.job.name, final.settings)
    deadline = time.monotonic() + DRAIN_TIMEOUT_S
    for number in itertools.count(1):
        driver = Driver(start(command, final.folder / f"driver-last-{number}.log"))
        try:
            code = driver.wait_code(deadline - time.monotonic())
        finally:
            driver.kill()
        if code == 0:
            break
        if code is None or code in FINAL_EXIT_CODES:
            raise Stuck(f"the last driver exited with {code}: {driver.last_line()}")
        history.add("restart", code=code)
    return final


def judge(scenario: JobScenario, history: Recorder) -> Iterator[str]:
    """Yield the anomalies of a job that has read all of its input, and note the judgment.

    Args:
        scenario: the job.
        history: of the run.
    """
    report = check_job(scenario.job.name, scenario.settings, skew=_SKEW)
    for (kind, where), rows in sorted(report.anomalies.items()):
        yield f"{kind}: {rows} in {where}"
    if report.anomalies:
        history.add("differences", of_keys=report.differences)
    if report.letters.get("late"):
        yield f"late: {report.letters['late']} rows, but the input has none"
    checked = {}
    if scenario.settings.delivery == EXACTLY_ONCE and scenario.job.verify is not None:
        outcome = scenario.job.verify(scenario.settings)
        checked = outcome.checked
        for finding in outcome.findings:
            yield f"{finding.kind}: {finding.count}, {finding.examples[:1]}"
    history.add("judged", rows=report.rows, letters=dict(report.letters), verify=checked)
