"""A user's job as a plain script: hits by address from files, into memory, told at its end.

Run by `python -m sluicegate.pod --file`, by test_pod. It counts without a window, so that each epoch
tells every total anew: state that is lost or repeated shows in the next row.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import functions as F

from sluicegate import epochs, session
from sluicegate.sinks.memory import MemorySink, committed


def main(source: str, told: str) -> None:
    """Count what is in a folder; write what the sink holds into a file, however it ends."""
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
        Path(told).write_text(json.dumps([row["hits"] for row in committed("out")]))


if __name__ == "__main__":
    main(*sys.argv[1:])
