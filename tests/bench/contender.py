"""One run of one contender: `python -m tests.bench.contender FOLDER`, started by `child`.

Reads `order.json` of the folder; with the trigger available-now it ends when the topic is read,
otherwise when a file `stop` appears. Leaves Spark's progress and the error, if any, in
`result.json`. Never measures anything itself.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from infra.embedded import MySQLEndpoint
from infra.embedded.services import MYSQL_VARIABLE
from sluicegate import session
from sluicegate.settings.epoch import AVAILABLE_NOW
from tests.bench.cpu import EVERY_S
from tests.bench.plan import SESSION, Order
from tests.bench.queries import Started, start

STOP = "stop"
RESULT = "result.json"


def main() -> int:
    """Run and write the result."""
    folder = Path(sys.argv[1])
    order = Order.read(folder)
    url = os.environ.get(MYSQL_VARIABLE)
    spark = session("bench", settings=SESSION)
    started: Started | None = None
    error = ""
    try:
        started = start(spark, order, MySQLEndpoint.parse(url) if url else None, folder)
        if order.trigger == AVAILABLE_NOW:
            started.await_end()
        else:
            _until_stopped(started, folder / STOP)
    except Exception as raised:  # noqa: BLE001 - whatever it is, the run has no number
        error = f"{type(raised).__name__}: {str(raised)[:2000]}"
    progress = [json.loads(p.json) for p in started.query.recentProgress] if started else []
    _write(folder, {"error": error, "progress": progress})
    time.sleep(2 * EVERY_S)  # the watcher needs a sample after the last epoch
    return 1 if error else 0


def _until_stopped(started: Started, stop: Path) -> None:
    while not stop.exists():
        if not started.query.isActive:
            started.await_end()
            raise RuntimeError("the query ended by itself")
        time.sleep(0.1)
    started.stop()


def _write(folder: Path, result: dict[str, Any]) -> None:
    """Write the result in one step: a half-written one would read as an error of the contender."""
    part = folder / f"{RESULT}.part"
    part.write_text(json.dumps(result), encoding="utf-8")
    part.rename(folder / RESULT)


if __name__ == "__main__":
    sys.exit(main())
