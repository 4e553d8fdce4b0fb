"""What a packaged job tells the CLI: its settings, how to build it, how to check it.

A job is found by the entry point group `sluicegate.jobs`, so that a user's own package can add
one. Callers: `sluicegate run`, `targets` and `verify`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate.settings.job import JobSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sluicegate.spark.query import EpochsWriter

GROUP = "sluicegate.jobs"


@dataclass(frozen=True)
class Finding:
    """What a check found wrong.

    Args:
        kind: 'lost', 'duplicated', 'wrong' or 'undecided-but-visible'.
        count: how many rows.
        examples: a few of them, for people.
    """

    kind: str
    count: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verification:
    """The outcome of an independent recomputation.

    Args:
        checked: what was compared, as label -> number.
        findings: empty if every row is where it belongs, once.
    """

    checked: dict[str, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether nothing is lost, duplicated, wrong or undecided."""
        return not self.findings


@dataclass(frozen=True)
class PackagedJob:
    """A job as the CLI sees it.

    Args:
        name: what the user types.
        summary: one line for the help.
        settings: its `JobSettings`; the fields become options.
        build: wires the job on a session; a `BatchWriter` for a batch.
        create_targets: creates topics and tables that are missing.
        verify: recomputes the answer independently; None where a job has no check.
        generate: makes input to try it with, of a number of records and a seed; says what it made.
    """

    name: str
    summary: str
    settings: type[JobSettings]
    build: Callable[[SparkSession, Any], EpochsWriter]
    create_targets: Callable[[Any], list[str]]
    verify: Callable[[Any], Verification] | None = None
    generate: Callable[[Any, int, int], str] | None = None


def packaged_jobs() -> dict[str, PackagedJob]:
    """Return the jobs that are installed, by name."""
    return {entry.name: entry.load() for entry in entry_points(group=GROUP)}


def find_job(name: str) -> PackagedJob:
    """Return a job by name.

    Raises:
        SettingsInvalid: there is none; the message lists those there are.
    """
    jobs = packaged_jobs()
    if name not in jobs:
        raise SettingsInvalid(
            f"there is no job {name!r}", do=f"choose one of: {', '.join(sorted(jobs))}"
        )
    return jobs[name]
