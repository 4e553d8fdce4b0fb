"""A user's job as a plain script: counts hits per address from files and dumps the totals at exit.

Run with `python -m sluicegate.driver --file`. It counts without a window, so each epoch
emits every total again, and lost or repeated state shows in the next row.
"""

import json
import os
import pickle
import sys
from pathlib import Path

from pyspark.sql import functions as F

from sluicegate import epochs, session
from sluicegate.sinks import memory
from sluicegate.sinks.contract import PartDecision
from sluicegate.sinks.memory import MemorySink, committed

KEPT_STORE = "KEPT_STORE"
"""Variable with a file that holds the sink between processes; without it each starts with an empty one."""


def keep_store(file: Path) -> None:
    """Load the sink from a file, and write it there after each commit."""
    if file.exists():
        memory._stores.update(pickle.loads(file.read_bytes()))  # noqa: S301 - our own bytes
    commit = memory.MemoryPartWriter._commit

    def commit_and_keep(
        writer: memory.MemoryPartWriter, decision: PartDecision, rows: list[memory.Row]
    ) -> None:
        commit(writer, decision, rows)
        file.write_bytes(pickle.dumps(memory._stores))

    setattr(memory.MemoryPartWriter, "_commit", commit_and_keep)  # noqa: B010 - mypy refuses the other form


def main(source: str, totals_file: str) -> None:
    """Count the hits in a folder; always write the sink's content to a file at exit."""
    if KEPT_STORE in os.environ:
        keep_store(Path(os.environ[KEPT_STORE]))
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
