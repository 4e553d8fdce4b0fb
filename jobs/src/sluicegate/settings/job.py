"""What every packaged job can be told; a job adds its own fields, or another default.

Not here: how the command line asks for it (`cli.options`). Called by jobs.
"""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate.settings.epoch import EpochSettings
from sluicegate.settings.restart import RestartSettings
from sluicegate.settings.schema import option


@dataclass(frozen=True)
class JobSettings(EpochSettings, RestartSettings):
    """The settings of a job; to `epochs(settings=...)` it is its `EpochSettings`.

    Args:
        checkpoint: of this job alone.
        kafka: bootstrap servers; empty: SLUICEGATE_KAFKA.
        mysql: a url; empty: SLUICEGATE_MYSQL.
        max_records: of one epoch at most, from each source.
    """

    checkpoint: str = option("", "checkpoint of this job alone: a path or s3://…")
    kafka: str = option("", "bootstrap servers; default $SLUICEGATE_KAFKA")
    mysql: str = option("", "mysql://user:password@host:port/db; default $SLUICEGATE_MYSQL")
    max_records: int = option(200_000, "records of one epoch at most, from each source")

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        EpochSettings.__post_init__(self)
        RestartSettings.__post_init__(self)
