"""Runs any packaged job as a user does: in a process of its own where a test kills it, else in a warm one.

As `harness.Scene`, which is ip_count's, for the other jobs: topics, table and checkpoint that no
other test shares, and input by the job's own generator. The failpoint of a kill is drawn by a seed
that is printed (`chance`). Called by test_jobs_* and test_city_lookup.
"""

from __future__ import annotations

import dataclasses
import signal
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.embedded import Services
from sluicegate.cli.job import PackagedJob
from sluicegate.protocol.failpoints import VARIABLE
from sluicegate.settings.epoch import AVAILABLE_NOW
from sluicegate.settings.job import JobSettings
from sluicegate_jobs.kafka_reader import Record, TopicReader
from tests.faults.chance import Chance
from tests.faults.harness import NOTHING, Ended, Running, command_of, log_in, run_driver, start


@dataclass(frozen=True)
class JobScene:
    """A packaged job with settings that no other test shares."""

    folder: Path
    job: PackagedJob
    settings: Any

    def but(self, **changes: object) -> JobScene:
        """Return the scene with other settings."""
        return dataclasses.replace(self, settings=dataclasses.replace(self.settings, **changes))

    def start(
        self, failpoints: str = "", *, supervised: bool = False, env: Mapping[str, str] = NOTHING
    ) -> Running:
        """Start a driver, or its supervisor."""
        command = command_of(self.job.name, self.settings, supervised=supervised)
        return start(command, log_in(self.folder), {VARIABLE: failpoints, **env})

    def run(self, failpoints: str = "") -> Ended:
        """Run a driver to its end."""
        command = command_of(self.job.name, self.settings)
        return run_driver(command, log_in(self.folder), {VARIABLE: failpoints})

    def finish(self) -> Ended:
        """Run a driver that must end well."""
        ended = self.run()
        assert ended.code == 0, ended.log
        return ended

    def run_killed(self, epochs: range, sinks: Sequence[str] = ()) -> str:
        """Run a driver that is killed at a random failpoint; return where.

        Args:
            epochs: see `Chance.killed_at`.
            sinks: likewise.
        """
        chance = Chance()
        where = chance.killed_at(epochs, sinks)
        ended = self.run(f"{where}=kill-group")
        assert ended.code == -signal.SIGKILL, f"{chance.drawn} {where}:\n{ended.log}"
        return where

    def check_exact(self) -> dict[str, int]:
        """Recompute everything independently; return what was counted."""
        assert self.job.verify is not None
        outcome = self.job.verify(self.settings)
        assert outcome.exact, outcome.findings
        return outcome.checked

    def records(self, topic: str) -> list[Record]:
        """Return a topic's committed records, by partition and offset."""
        return sorted(TopicReader(self.settings.kafka, topic))


def job_scene(
    services: Services, folder: Path, job: PackagedJob, records: int, **settings: object
) -> JobScene:
    """Return a fresh scene of a job with its targets, and input of so many records.

    Args:
        services: where Kafka and MySQL are.
        folder: for the checkpoint and the logs.
        job: any that can generate its input.
        records: of the input; 0 for none.
        settings: of the job, besides those that a scene has.
    """
    name = f"j{uuid.uuid4().hex[:8]}"
    own = {field.name for field in dataclasses.fields(job.settings)}
    own -= {field.name for field in dataclasses.fields(JobSettings)}
    targets = {role: f"{name}_{role}" for role in ("source", "topic", "table", "dead_letters")}
    given: dict[str, Any] = {
        "checkpoint": str(folder / "checkpoint"),
        "interval": AVAILABLE_NOW,
        "kafka": services.kafka.bootstrap,
        "mysql": services.mysql.url,
        **{role: target for role, target in targets.items() if role in own},
        **settings,
    }
    made = JobScene(folder, job, job.settings(**given))
    job.create_targets(made.settings)
    if records and job.generate is not None:
        job.generate(made.settings, records, 7)
    return made
