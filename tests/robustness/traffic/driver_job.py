"""A user's job as a plain script: counts hits per address from files and dumps the totals at exit.

Run with `python -m sluicegate.driver --file`. It counts without a window, so each epoch
emits every total again, and lost or repeated state shows in the next row.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import functions as F

from sluicegate import epochs, session
from sluicegate.sinks.memory import MemorySink, committed


def main(source: str, totals_file: str) -> None:
    """Count the hits in a folder; always write the sink's content to a file at exit."""
    spark = session("counts")
    rows = spark.readStream.schema("ip string").option("maxFilesPerTrigger", 1).json(source)
    counts = rows.groupBy("ip").agg(F.count("*").alias("hits"))
    job = epochs(
        counts, sinks=[MemorySink("out")], name="counts", checkpoint="/nowhere", trigger="1 hour"
    )
    try:
        query = job.start()
        print("started", flush=True)  # noqa: T201 - the test waits for it
        query.await_end()
    finally:
        Path(totals_file).write_text(json.dumps([row["hits"] for row in committed("out")]))


if __name__ == "__main__":
    main(*sys.argv[1:])
