"""Does one task on an object store: `python -m sluicegate_operator.storage_tasks TASK`, JSON in and out.

stdin has the task's fields as a line of JSON, and AWS_* variables have the volume's endpoint and keys.
stdout gets `{"result": …}`, or `{"error": {kind, what, data, do}}` with exit code 1; logs go to stderr.
With --tethered the process ends when stdin is closed, because its caller is gone. The command also helps
to debug a store by hand.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from sluicegate.errors import SluicegateError
from sluicegate_operator.reconcile.storage_tasks import TASKS, parse_task
from sluicegate_operator.storage_tasks.worker import egress
from sluicegate_operator.storage_tasks.worker.objects import check_volume, delete, measure
from sluicegate_operator.storage_tasks.worker.prune import prune
from sluicegate_operator.storage_tasks.worker.savepoint import dispose, take

_WORK: Mapping[str, Callable[[Any], Any]] = {
    "check": check_volume,
    "measure": measure,
    "delete": delete,
    "take": take,
    "dispose": dispose,
    "prune": prune,
}


def main(arguments: list[str] | None = None) -> int:
    """Do a task; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m sluicegate_operator.storage_tasks")
    parser.add_argument("task", choices=sorted(TASKS))
    parser.add_argument("--tethered", action="store_true", help="end when stdin is closed")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    task = parse_task(options.task, json.loads(sys.stdin.readline()))
    if options.tethered:
        threading.Thread(target=_end_with_caller, daemon=True).start()
    egress.restrict()
    try:
        answer = {"result": asdict(_WORK[options.task](task))}
    except SluicegateError as error:
        parts = {"kind": type(error).__name__, "what": without_answer(error)}
        answer = {"error": {**parts, "data": error.data, "do": error.do}}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    return 1 if "error" in answer else 0


def without_answer(error: SluicegateError) -> str:
    """Return what happened, without the endpoint's own words: they could be those of any internal server.

    An error that has a cause outside of this project quotes it after a colon. Its class, HTTP status and S3
    error code stay.
    """
    cause: BaseException | None = error
    while isinstance(cause, SluicegateError):
        cause = cause.__cause__
    what, colon, _ = error.what.partition(": ")
    if cause is None or not colon:
        return error.what
    text = str(cause)
    status = re.search("|".join(f"{one.value} {one.phrase}" for one in HTTPStatus), text)
    code = re.search("(?:<Code>|code: )([A-Za-z]{1,64})", text)
    details = [found for found in (status and status[0], code and code[1]) if found]
    return f"{what}: {type(cause).__name__}" + (f" ({', '.join(details)})" if details else "")


def _end_with_caller() -> None:
    """Exit once the other end of stdin is closed: nobody waits for the answer any more."""
    while os.read(0, 1024):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
