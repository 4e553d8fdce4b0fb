"""Packaged jobs: what a job declares so that `sluicegate run`, `targets` and `verify` can use it.

Jobs are found through the entry point group `sluicegate.jobs`, so any installed package can add one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from sluicegate.settings.epoch import EpochSettings
from sluicegate.settings.restart import RestartSettings
from sluicegate.settings.schema import option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sluicegate.spark.epochs import EpochsWriter

GROUP = "sluicegate.jobs"


@dataclass(frozen=True)
class JobSettings(EpochSettings, RestartSettings):
    """The settings that all packaged jobs share; a job adds fields or changes defaults.

    It can be passed to `epochs(settings=...)` because it is an `EpochSettings`.
    """

    checkpoint: str = option(
        "", "Checkpoint of this job alone: a path, file:///path or s3://bucket/prefix."
    )
    kafka: str = option("", "Kafka bootstrap servers. If empty: $SLUICEGATE_KAFKA.")
    mysql: str = option(
        "", "MySQL server, as mysql://user:password@host:port/db. If empty: $SLUICEGATE_MYSQL."
    )
    max_records: int = option(
        200_000, "Maximum number of records that an epoch reads from each source.", at_least=1
    )

    def __post_init__(self) -> None:
        """Reject invalid values."""
        EpochSettings.__post_init__(self)
        RestartSettings.__post_init__(self)


def with_default(name: str, default: object) -> Any:  # noqa: ANN401 - as of `option`
    """Return a field of `JobSettings` with another default, for the settings of a job."""
    return field(default=default, metadata=JobSettings.__dataclass_fields__[name].metadata)


@dataclass(frozen=True)
class PackagedJob:
    """The declaration of a job.

    Args:
        name: the name on the command line.
        summary: one line of help.
        settings: the job's settings; each field becomes an option.
        build: wires the job on a Spark session; a batch job returns a `BatchWriter`.
        create_targets: creates the missing topics and tables and returns their names.
        verify: recomputes the result independently; raises a SluicegateError if something cannot be
            read, nothing was ever decided, or the job ran meanwhile. None: the job has no check.
        generate: generates example input for a number of records and a seed, and returns a
            description of it; None: the job has no generator.
    """

    name: str
    summary: str
    settings: type[JobSettings]
    build: Callable[[SparkSession, Any], EpochsWriter]
    create_targets: Callable[[Any], list[str]]
    verify: Callable[[Any], Verification] | None = None
    generate: Callable[[Any, int, int], str] | None = None


@dataclass(frozen=True)
class Verification:
    """The outcome of an independent recomputation.

    Args:
        checked: what was compared: label -> number.
        findings: empty if every row is where it belongs, exactly once.
    """

    checked: dict[str, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether nothing is lost, duplicated, wrong or undecided."""
        return not self.findings


@dataclass(frozen=True)
class Finding:
    """One kind of deviation that a verification found.

    Args:
        kind: 'lost', 'duplicated', 'wrong' or 'undecided-but-visible'.
        count: the number of rows.
        examples: some of them, for people.
    """

    kind: str
    count: int
    examples: tuple[str, ...] = ()


def packaged_jobs() -> dict[str, EntryPoint]:
    """Return the installed jobs by name; `load` of one imports its module and returns its `PackagedJob`."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}
