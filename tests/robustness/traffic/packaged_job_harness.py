"""Runs any packaged job as a user does: in its own process if a test kills it, otherwise in a warm one.

The counterpart of `ip_count_harness.Scenario` for the other jobs: each test has its own topics, table and
checkpoint, and input from the job's generator. A kill happens at a random failpoint, drawn from a
printed seed (`random_failpoint`).
"""

from __future__ import annotations

import dataclasses
import signal
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.local_services import Services
from sluicegate.failpoints import VARIABLE
from sluicegate.packaged_job import JobSettings, PackagedJob
from sluicegate.settings.epoch import AVAILABLE_NOW
from sluicegate.sinks.kafka.reader import Record
from tests.integration.kafka_reader import read_topic
from tests.robustness.failpoints.random_failpoint import SeededRandom
from tests.robustness.traffic.ip_count_harness import (
    NO_VARIABLES,
    DriverResult,
    RunningDriver,
    command_of,
    new_log_file,
    run_driver,
    start,
)
from tests.robustness.validate.checker.running_jobs import check_job


@dataclass(frozen=True)
class JobScenario:
    """A packaged job with settings that no other test shares."""

    folder: Path
    job: PackagedJob
    settings: Any

    def with_settings(self, **changes: object) -> JobScenario:
        """Return the scenario with changed settings."""
        return dataclasses.replace(self, settings=dataclasses.replace(self.settings, **changes))

    def start(
        self,
        failpoints: str = "",
        *,
        supervised: bool = False,
        env: Mapping[str, str] = NO_VARIABLES,
    ) -> RunningDriver:
        """Start a driver, or its supervisor."""
        command = command_of(self.job.name, self.settings, supervised=supervised)
        return start(command, new_log_file(self.folder), {VARIABLE: failpoints, **env})

    def run(self, failpoints: str = "") -> DriverResult:
        """Run a driver until it exits."""
        command = command_of(self.job.name, self.settings)
        return run_driver(command, new_log_file(self.folder), {VARIABLE: failpoints})

    def finish(self) -> DriverResult:
        """Run a driver that must exit with code 0."""
        result = self.run()
        assert result.code == 0, result.log
        return result

    def run_killed(self, epochs: range, sinks: Sequence[str] = ()) -> str:
        """Run a driver that is killed at a random failpoint; return the failpoint.

        Args:
            epochs: see `SeededRandom.draw_failpoint`.
            sinks: see `SeededRandom.draw_failpoint`.
        """
        seeded_random = SeededRandom()
        failpoint = seeded_random.draw_failpoint(epochs, sinks)
        result = self.run(f"{failpoint}=kill-group")
        assert result.code == -signal.SIGKILL, (
            f"{seeded_random.seed_value} {failpoint}:\n{result.log}"
        )
        return failpoint

    def check_exact(self, *, dead_letters: int | None = 0) -> dict[str, int]:
        """Assert that the sinks are exact; return the counts of `verify`.

        Args:
            dead_letters: how many there are; None if the test pins them itself.
        """
        assert self.job.verify is not None
        outcome = self.job.verify(self.settings)
        assert outcome.exact, outcome.findings
        found = outcome.checked.get("dead letters", 0)
        assert dead_letters in (None, found), outcome.checked
        return outcome.checked

    def check_rows(self, *, skew: int = 0) -> Mapping[str, int]:
        """Assert the same by the checker that shares no code with the job; return its dead letters by kind.

        Args:
            skew: see `Lateness`; 0 for a job without late rows.
        """
        report = check_job(self.job.name, self.settings, skew=skew)
        assert not report.anomalies, report
        return report.letters

    def records(self, topic: str) -> list[Record]:
        """Return a topic's committed records, by partition and offset."""
        return read_topic(self.settings.kafka, topic, stable=False)


def new_job_scenario(
    services: Services, folder: Path, job: PackagedJob, records: int, **settings: object
) -> JobScenario:
    """Return a new scenario of a job with its targets and a number of input records.

    Args:
        services: Kafka and MySQL.
        folder: folder for the checkpoint and the logs.
        job: a job that can generate its input.
        records: number of input records; 0 for none.
        settings: job settings in addition to those of a scenario.
    """
    name = f"j{uuid.uuid4().hex[:8]}"
    job_fields = {field.name for field in dataclasses.fields(job.settings)}
    job_fields -= {field.name for field in dataclasses.fields(JobSettings)}
    targets = {role: f"{name}_{role}" for role in ("source", "topic", "table", "dead_letters")}
    values: dict[str, Any] = {
        "checkpoint": str(folder / "checkpoint"),
        "interval": AVAILABLE_NOW,
        "kafka": services.kafka.bootstrap,
        "mysql": services.mysql.url,
        **{role: target for role, target in targets.items() if role in job_fields},
        **settings,
    }
    scenario = JobScenario(folder, job, job.settings(**values))
    job.create_targets(scenario.settings)
    if records and job.generate is not None:
        job.generate(scenario.settings, records, 7)
    return scenario
