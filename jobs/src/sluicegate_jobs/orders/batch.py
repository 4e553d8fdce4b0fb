"""orders_batch: total, largest, smallest and number of orders by user, by batch SQL, into MySQL.

Reads a file or folder of JSON lines (id, user, time, amount). A second run changes nothing; a run that
was killed is completed by the next one. Invalid lines become dead letters with the name of their file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sluicegate import AVAILABLE_NOW, MySQLSink, batch
from sluicegate.errors import SettingsInvalid, TargetMissing
from sluicegate.packaged_job import JobSettings
from sluicegate.settings.schema import option
from sluicegate.spark.batch import BatchWriter
from sluicegate_jobs.dead_letters import dead_letter_sink, letter_columns
from sluicegate_jobs.generators import orders
from sluicegate_jobs.orders.schema import read_orders
from sluicegate_jobs.targets import create_table, create_topics

QUERY = """
SELECT user, count(*) AS orders, sum(amount) AS total, max(amount) AS largest, min(amount) AS smallest
FROM orders
GROUP BY user
"""

TABLE_COLUMNS = """
  user VARCHAR(64) NOT NULL,
  orders BIGINT NOT NULL,
  total DECIMAL(22,2) NOT NULL,
  largest DECIMAL(12,2) NOT NULL,
  smallest DECIMAL(12,2) NOT NULL,
  PRIMARY KEY (user)
"""

GENERATED = "orders.jsonl"


@dataclass(frozen=True)
class OrdersBatchSettings(JobSettings):
    """The settings of orders_batch."""

    checkpoint: str = option(
        "checkpoints/orders_batch",
        "Checkpoint of this batch alone; another input needs another checkpoint.",
    )
    interval: str = option(AVAILABLE_NOW, "Unused: a batch is one epoch.")
    timeout_s: float = option(
        0.0,
        "Time limit of the batch in seconds. A batch that exceeds it ends the driver. 0 disables the limit.",
    )
    source: str = option("orders", "File or folder of orders, one JSON object per line.")
    table: str = option("orders_by_user", "Table of the sums.")
    dead_letters: str = option("orders_batch_dead_letters", "Topic of dead letters: invalid lines.")


def build(spark: SparkSession, settings: OrdersBatchSettings) -> BatchWriter:
    """Return the job, not started; raises TargetMissing if the file or folder does not exist."""
    try:
        lines = spark.read.text(settings.source)
    except AnalysisException as error:
        raise TargetMissing(
            f"the orders {settings.source} cannot be read: {str(error).splitlines()[0]}",
            data="nothing was read or written",
            do="name a file or folder with --source; `sluicegate generate orders_batch` creates one",
        ) from error
    read = read_orders(lines.select("value", F.col("_metadata.file_path").alias("file")))
    read.where(F.col("invalid").isNull()).createOrReplaceTempView("orders")
    letter = letter_columns(F.col("invalid"), F.col("value").cast("binary"), F.struct("file"))[0]
    letters = read.where(F.col("invalid").isNotNull()).select(letter)
    return batch(
        {"sums": spark.sql(QUERY), "dead_letters": letters},
        name="orders_batch",
        sinks=[MySQLSink(settings.table, keys=("user",), of="sums", url=settings.mysql)],
        dead_letters=dead_letter_sink(settings, settings.dead_letters),
        checkpoint=settings.checkpoint,
        settings=settings,
    )


def create_targets(settings: OrdersBatchSettings) -> list[str]:
    """Create the missing topic and table; return what was created."""
    created = create_topics(settings.kafka, (settings.dead_letters,), partitions=1)
    return created + create_table(settings.mysql, settings.table, TABLE_COLUMNS)


def generate(settings: OrdersBatchSettings, records: int, seed: int) -> str:
    """Write a file of orders into the source's folder, atomically; return a description."""
    folder = Path(settings.source)
    if urlsplit(settings.source).scheme or folder.is_file():
        raise SettingsInvalid(
            f"source {settings.source} is not a local folder",
            data="nothing was written",
            do="name a folder with --source",
        )
    folder.mkdir(parents=True, exist_ok=True)
    target, scratch = folder / GENERATED, folder / f".{GENERATED}"
    scratch.write_bytes(b"".join((m.value or b"") + b"\n" for m in orders(records, seed)))
    scratch.replace(target)
    return f"{records:,} orders into {target}"
