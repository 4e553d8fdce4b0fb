"""One run of one contender: `python -m tests.bench.contender FOLDER`, started by `child`.

Reads `order.json` in the folder. With the trigger available-now it exits when the topic is read,
otherwise when a file `stop` appears or the records of the order are read. Writes Spark's progress and
the error, if any, to `result.json`. It measures nothing itself.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from infra.local_services import MySQLEndpoint
from infra.local_services.services import MYSQL_VARIABLE
from sluicegate import failpoints, session
from sluicegate.settings.epoch import AVAILABLE_NOW
from tests.bench.epochs import read_epochs
from tests.bench.order import Order
from tests.bench.plan import SESSION, SPARK_JDBC
from tests.bench.queries import Started, start
from tests.bench.stage_and_merge import driver_jar
from tests.bench.usage import EVERY_S

STOP = "stop"
RESULT = "result.json"


def main() -> int:
    """Run and write the result."""
    folder = Path(sys.argv[1])
    order = Order.read(folder)
    url = os.environ.get(MYSQL_VARIABLE)
    if order.apply_wait_s:
        failpoints.hook("wait", partial(time.sleep, order.apply_wait_s))
        failpoints.arm("before-apply=wait")
    settings = dict(SESSION)
    if order.contender == SPARK_JDBC:
        settings["spark.driver.extraClassPath"] = driver_jar()
    spark = session("bench", master=order.spark_master, settings=settings)
    started: Started | None = None
    error = ""
    try:
        started = start(spark, order, MySQLEndpoint.parse(url) if url else None, folder)
        if order.trigger == AVAILABLE_NOW:
            started.await_end()
        else:
            _until_stopped(started, order.records, folder / STOP)
    except Exception as raised:  # noqa: BLE001 - after any error the run has no number
        error = f"{type(raised).__name__}: {str(raised)[:2000]}"
    _write(folder, {"error": error, "progress": _progress(started) if started else []})
    time.sleep(2 * EVERY_S)  # the watcher needs a sample after the last epoch
    return 1 if error else 0


def _progress(started: Started) -> list[dict[str, Any]]:
    return [json.loads(progress.json) for progress in started.query.recentProgress]


def _until_stopped(started: Started, records: int, stop: Path) -> None:
    while not stop.exists():
        if records and sum(epoch.records for epoch in read_epochs(_progress(started))) >= records:
            break
        if not started.query.isActive:
            started.await_end()
            raise RuntimeError("the query stopped unexpectedly")
        time.sleep(0.1)
    started.stop()


def _write(folder: Path, result: dict[str, Any]) -> None:
    """Write the result atomically, because a partial file would look like a contender's error."""
    partial_file = folder / f"{RESULT}.part"
    partial_file.write_text(json.dumps(result), encoding="utf-8")
    partial_file.rename(folder / RESULT)


if __name__ == "__main__":
    sys.exit(main())
