"""Does one task on an object store: `python -m sluicegate_operator.store TASK`, JSON in and out.

The task's fields come as a line of JSON on stdin, the volume's endpoint and keys as AWS_* variables.
On stdout goes `{"result": …}`, or `{"error": {kind, what, data, do}}` and the exit code is 1; logs go
to stderr. With --tethered the process ends when stdin is closed: its caller is gone. Not here: what
a task does (`child`). Called by `running`, and by people who look for a fault.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from sluicegate.protocol.errors import SluicegateError
from sluicegate_operator.store.child.clearing import delete, exists, measure
from sluicegate_operator.store.child.preparing import prepare
from sluicegate_operator.store.child.pruning import prune
from sluicegate_operator.store.child.taking import dispose, take
from sluicegate_operator.volumes.tasks import TASKS, task_from, to_json

_WORK: Mapping[str, Callable[[Any], Any]] = {
    "prepare": prepare,
    "measure": measure,
    "exists": exists,
    "delete": delete,
    "take": take,
    "dispose": dispose,
    "prune": prune,
}


def main(arguments: list[str] | None = None) -> int:
    """Do a task; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m sluicegate_operator.store")
    parser.add_argument("task", choices=sorted(TASKS))
    parser.add_argument("--tethered", action="store_true", help="end when stdin is closed")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    task = task_from(given.task, json.loads(sys.stdin.readline()))
    if given.tethered:
        threading.Thread(target=_end_with_caller, daemon=True).start()
    try:
        answer = {"result": to_json(_WORK[given.task](task))}
    except SluicegateError as error:
        said = {"kind": type(error).__name__, "what": error.what}
        answer = {"error": {**said, "data": error.data, "do": error.do}}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    return 1 if "error" in answer else 0


def _end_with_caller() -> None:
    """Wait until nobody holds the other end of stdin, and end: nobody waits for the answer."""
    while os.read(0, 1024):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
