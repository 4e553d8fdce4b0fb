"""File streams with memory sinks in this process, for the fast tests of the rules.

Here a failpoint raises an error instead of killing the driver. That leaves the same state and needs no
new JVM. Killed drivers are in tests/robustness/scenarios.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from sluicegate import failpoints
from sluicegate.errors import StageFailed
from sluicegate.settings.epoch import AVAILABLE_NOW, EpochSettings
from sluicegate.sinks.contract import Sink
from sluicegate.sinks.memory import Row, committed
from sluicegate.spark.epochs import epochs
from sluicegate.spark.outputs import Output
from sluicegate.spark.query import EpochsQuery
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import open_store


@dataclass
class Stream:
    """A stream that reads one file per epoch, with its own checkpoint and memory stores."""

    spark: SparkSession
    folder: Path
    schema: str
    prefix: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    files: int = 0
    location: str = ""
    """URL of the checkpoint if it is not in the folder: s3://…"""

    def add(self, *epochs_rows: Sequence[Mapping[str, object]]) -> None:
        """Add a file for each epoch."""
        source = self.folder / "source"
        source.mkdir(exist_ok=True)
        for rows in epochs_rows:
            file = source / f"{self.files:04}.json"
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
            os.utime(file, (1_000_000 + self.files, 1_000_000 + self.files))  # sets the read order
            self.files += 1

    @property
    def rows(self) -> DataFrame:
        """The files as a stream."""
        reader = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.folder / "source"))

    @property
    def checkpoint(self) -> Path:
        """The checkpoint's folder."""
        return self.folder / "checkpoint"

    @property
    def url(self) -> str:
        """The checkpoint's URL or path, as a job's setting."""
        return self.location or str(self.checkpoint)

    def store(self, name: str) -> str:
        """Return a store name that is unique to this stream."""
        return f"{self.prefix}.{name}"

    def committed_rows(self, name: str) -> list[Row]:
        """Return the committed rows of a store."""
        return committed(self.store(name))

    def newest(self) -> int | None:
        """Return the newest decided epoch."""
        return StoredEpochLog(open_store(self.url)).newest()

    def run(
        self,
        outputs: Output | Mapping[str, Output],
        sinks: Sequence[Sink],
        *,
        dead_letters: Sink | None = None,
        output_mode: str = "update",
        settings: EpochSettings | None = None,
    ) -> EpochsQuery:
        """Process all existing files."""
        query = epochs(
            outputs,
            sinks=sinks,
            name="stream",
            checkpoint=self.url,
            dead_letters=dead_letters,
            settings=settings or EpochSettings(interval=AVAILABLE_NOW),
            output_mode=output_mode,
        ).start()
        query.await_end()
        return query


@contextmanager
def failing_at(failpoint: str, error: type[Exception] = StageFailed) -> Iterator[None]:
    """Make a query fail at a failpoint, such as 'after-decide@2'; a batch raises `FailpointHit`."""
    failpoints.arm(f"{failpoint}=raise")
    try:
        with pytest.raises(error):
            yield
    finally:
        failpoints.arm("")
