"""orders_batch: total, largest, smallest and number of orders by user, by batch SQL, into MySQL.

Wiring only. Reads a file or folder of JSON lines (id, user, time, amount). Run again it changes
nothing; a run that was killed is finished by the next. Lines that are no orders go to the dead
letters with the file that they are from.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sluicegate import AVAILABLE_NOW, KafkaSink, MySQLSink, batch
from sluicegate.cli.job import PackagedJob
from sluicegate.protocol.errors import SettingsInvalid, TargetMissing
from sluicegate.settings.job import JobSettings
from sluicegate.settings.schema import option
from sluicegate.spark.batch import BatchWriter
from sluicegate_jobs.dead_letters import letter_columns
from sluicegate_jobs.generating import orders
from sluicegate_jobs.orders import read_orders
from sluicegate_jobs.orders_batch_verify import verify
from sluicegate_jobs.targets import create_table, create_topics

QUERY = """
SELECT user, count(*) AS orders, sum(amount) AS total, max(amount) AS largest, min(amount) AS smallest
FROM orders
GROUP BY user
"""

TABLE = """
CREATE TABLE IF NOT EXISTS {table} (
  user VARCHAR(64) NOT NULL,
  orders BIGINT NOT NULL,
  total DECIMAL(22,2) NOT NULL,
  largest DECIMAL(12,2) NOT NULL,
  smallest DECIMAL(12,2) NOT NULL,
  PRIMARY KEY (user)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
"""

GENERATED = "orders.jsonl"


@dataclass(frozen=True)
class OrdersBatchSettings(JobSettings):
    """The settings of orders_batch."""

    checkpoint: str = option(
        "checkpoints/orders_batch", "checkpoint of this batch alone: another input needs another"
    )
    interval: str = option(AVAILABLE_NOW, "of no use here: a batch is one epoch")
    timeout_s: float = option(0.0, "a batch that takes longer ends the driver; 0: none does")
    source: str = option("orders", "file or folder of orders, a JSON object a line")
    table: str = option("orders_by_user", "table of the sums")
    dead_letters: str = option("orders_batch_dead_letters", "topic of lines that are no orders")


def build(spark: SparkSession, settings: OrdersBatchSettings) -> BatchWriter:
    """Return the job, not started.

    Raises:
        TargetMissing: there is no such file or folder.
    """
    try:
        lines = spark.read.text(settings.source)
    except AnalysisException as error:
        raise TargetMissing(
            f"the orders {settings.source} cannot be read: {str(error).splitlines()[0]}",
            data="nothing was read or written",
            do="give a file or folder in --source; `sluicegate generate orders_batch` makes one",
        ) from error
    read = read_orders(lines.select("value", F.col("_metadata.file_path").alias("file")))
    read.where(F.col("broken").isNull()).createOrReplaceTempView("orders")
    letter = letter_columns(F.col("broken"), F.col("value").cast("binary"), F.struct("file"))[0]
    letters = read.where(F.col("broken").isNotNull()).select(letter)
    return batch(
        {"sums": spark.sql(QUERY), "dead_letters": letters},
        name="orders_batch",
        sinks=[MySQLSink(settings.table, keys=("user",), of="sums", url=settings.mysql or None)],
        dead_letters=KafkaSink(
            settings.dead_letters,
            value="value",
            of="dead_letters",
            bootstrap=settings.kafka or None,
        ),
        checkpoint=settings.checkpoint,
        settings=settings,
    )


def create_targets(settings: OrdersBatchSettings) -> list[str]:
    """Create the topic and the table where they are missing; return what was created."""
    made = create_topics(settings.kafka, (settings.dead_letters,), partitions=1)
    return made + create_table(settings.mysql, settings.table, TABLE)


def generate(settings: OrdersBatchSettings, records: int, seed: int) -> str:
    """Write a file of orders into the source's folder, in one step; return what was done.

    Raises:
        SettingsInvalid: the source is no local folder.
    """
    folder = Path(settings.source)
    if urlsplit(settings.source).scheme or folder.is_file():
        raise SettingsInvalid(
            f"source {settings.source} is no local folder",
            data="nothing was written",
            do="give a folder in --source",
        )
    folder.mkdir(parents=True, exist_ok=True)
    target, scratch = folder / GENERATED, folder / f".{GENERATED}"
    scratch.write_bytes(b"".join((m.value or b"") + b"\n" for m in orders(records, seed)))
    scratch.replace(target)
    return f"{records:,} orders into {target}"


JOB = PackagedJob(
    name="orders_batch",
    summary="batch SQL: total, max, min, count of a folder of orders by user, into MySQL",
    settings=OrdersBatchSettings,
    build=build,
    create_targets=create_targets,
    verify=verify,
    generate=generate,
)
