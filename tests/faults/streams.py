"""A streaming source of files and queries into memory, in this process: the fast half of the rules.

Not collected by itself. Called by tests/integration/test_spark_rules. A driver that is killed
is in the test files beside this; here a failpoint raises, which leaves the same behind and needs no new JVM.
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

from sluicegate.protocol import failpoints
from sluicegate.protocol.errors import StageFailed
from sluicegate.settings.epoch import AVAILABLE_NOW, EpochSettings
from sluicegate.sinks.contract import Sink
from sluicegate.sinks.memory import Row, committed
from sluicegate.spark.outputs import Output
from sluicegate.spark.query import EpochsQuery, epochs
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.objects import open_objects


@dataclass
class Stream:
    """Files that are read one an epoch, a checkpoint, and names of stores that nobody else has."""

    spark: SparkSession
    folder: Path
    schema: str
    prefix: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    files: int = 0
    location: str = ""
    """Where the checkpoint is if not in the folder: s3://…"""

    def add(self, *epochs_rows: Sequence[Mapping[str, object]]) -> None:
        """Add a file for each epoch."""
        source = self.folder / "source"
        source.mkdir(exist_ok=True)
        for rows in epochs_rows:
            file = source / f"{self.files:04}.json"
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
            os.utime(file, (1_000_000 + self.files, 1_000_000 + self.files))  # read in this order
            self.files += 1

    @property
    def rows(self) -> DataFrame:
        """The files as a stream."""
        reader = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.folder / "source"))

    @property
    def checkpoint(self) -> Path:
        """Where the query keeps everything."""
        return self.folder / "checkpoint"

    @property
    def url(self) -> str:
        """The checkpoint as a job is told of it."""
        return self.location or str(self.checkpoint)

    def store(self, name: str) -> str:
        """Return the name of a store of this stream's own."""
        return f"{self.prefix}.{name}"

    def seen(self, name: str) -> list[Row]:
        """Return what is committed in a store."""
        return committed(self.store(name))

    def newest(self) -> int | None:
        """Return the newest decided epoch."""
        return StoredEpochLog(open_objects(self.url)).newest()

    def run(
        self,
        outputs: Output | Mapping[str, Output],
        sinks: Sequence[Sink],
        *,
        dead_letters: Sink | None = None,
        output_mode: str = "update",
        settings: EpochSettings | None = None,
    ) -> EpochsQuery:
        """Read all files that are there, to the end."""
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
def dying_at(failpoint: str) -> Iterator[None]:
    """Let a query fail at a failpoint, such as 'after-decide@2'."""
    failpoints.arm(f"{failpoint}=raise")
    try:
        with pytest.raises(StageFailed):
            yield
    finally:
        failpoints.arm("")
